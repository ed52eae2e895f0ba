"""``--serve``: figures of the engine's own server, by its log and by requests of the plan's shape."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from kvplan.comparison import Comparison, Verdict, compare
from kvplan.comparison.compare import TOLERANCE
from kvplan.errors import CannotRunHere
from kvplan.files.logs import read_log
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.devices import CPU
from kvplan.proof.validate.installed.kept import kept_folder
from kvplan.proof.validate.installed.load import MOST, Served, Shape, drive
from kvplan.proof.validate.installed.question import Start, asked_settings, environment, write_model
from kvplan.proof.validate.installed.run import EngineOptions, EngineOutcome
from kvplan.proof.validate.installed.serving import NAME, Server, write_tokenizer
from kvplan.proof.validate.stages.base import EXACT
from kvplan.proof.validate.target import Target
from kvplan.record import record, replace

STAGE = "serve"
_NUMBERS = 10**15
"""A load's prompts are numbered from one of so many: none begins as another load's, whose blocks the server
may have kept."""
_UNITS = frozenset(("bytes", "tokens", "blocks", "requests"))


def serve(
    found: EngineOutcome,
    start_of: Callable[[Target, Path], Start],
    options: EngineOptions,
    *,
    stop: Callable[[], bool] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> EngineOutcome:
    """The outcome, with the server's figures added.

    The requests are those of the plan with the settings of the engine's platform. Raises
    CannotRunHere(server-ended | server-silent …), TimeUp.
    """
    target = found.outcome.target
    with kept_folder("kvplan-serve-") as place:
        folder, log = place / "model", place / "server.log"
        folder.mkdir()
        write_model(target.model, folder)
        write_tokenizer(folder)
        if on_stage is not None:
            on_stage(STAGE)
        start = start_of(target, folder)
        command = [options.interpreter, *found.server, *start.words, "--served-model-name", NAME]
        environ = environment(options.device, options.gpu, start.variables, count=options.gpus)
        server = Server(command, log, environment=environ, stop=stop)
        with server:
            told = load(server.url, NAME, sent(found.own or target), stop=stop)
        on_gpu = options.device != CPU
        pool = asked_settings(target, on_gpu=on_gpu).kv_cache_memory
        given = {} if pool is None else {"kv_cache_memory": pool}
        gpu = target.settings.gpu if on_gpu else None
        exactly = TOLERANCE if pool is None else Fraction(0)
        compared = compare(
            target.model, read_log(log), given, gpu=gpu, with_budget=pool is None, tolerance=exactly
        )
    figures = [*told_figures(compared, "log"), *load_figures(told), *_end(server.stopped)]
    findings = [*told_findings(compared, "log"), *load_findings(told)]
    if options.shared and on_gpu:  # its memory is what others left at that moment
        figures = [replace(one, allowed_ppm=None) for one in figures]
        findings = [replace(one, severity=Severity.WARNING) for one in findings]
    outcome = found.outcome
    outcome = replace(outcome, figures=(*outcome.figures, *figures), findings=(*outcome.findings, *findings))
    return replace(found, outcome=outcome)


@record()
class Load:
    """So many requests at once, and then one more; more: None where that was not sent."""

    first: Served
    more: Served | None = None

    @property
    def one_waits(self) -> bool:
        """Whether one more than ran together was seen to wait."""
        more = self.more
        return more is not None and more.waits(self.first.sent, self.first.turn)

    @property
    def one_ran(self) -> bool:
        """Whether one more ran beside them."""
        return self.more is not None and self.more.together


def load(
    url: str, model: str, shape: Shape, *, token: str | None = None, stop: Callable[[], bool] | None = None
) -> Load:
    """The requests of the shape at once, and then one more, where that many may be sent and all of the first
    were answered without one being thrown out. Raises as `drive` does."""
    begin = secrets.randbelow(_NUMBERS)
    first = drive(url, model, shape, token=token, first=begin, stop=stop)
    if shape.count >= MOST or first.failed is not None or first.preemptions:
        return Load(first)
    more = replace(shape, count=shape.count + 1)
    return Load(first, drive(url, model, more, token=token, first=begin + shape.count, stop=stop))


def sent(own: Target) -> Shape:
    """How many requests are sent at once, and how long they are: as many as the plan says run together,
    and at most MOST."""
    request, pool = own.result.request, own.result.pool
    if request.encoder_tokens:
        raise CannotRunHere(
            "no-load", "requests with an encoder's input are not sent: leave out --serve or --load"
        )
    answer = max(1, request.answer_tokens)
    count = pool.max_running if pool is not None else own.settings.requests
    return Shape(min(MOST, max(1, count)), max(1, request.tokens - answer), answer)


def _figure(
    name: str, predicted: int | None, measured: int | None, unit: str = "count", *, decides: bool = True
) -> Figure:
    return Figure(
        f"served_{name}", unit, predicted, measured, EXACT if decides else None, STAGE, None, independent=True
    )


def told_figures(compared: Comparison, source: str) -> list[Figure]:
    """Figures that the server told (source: log or report) against the rules, by the comparison's own
    verdict: exactly where the pool is given, within its tolerance where the engine divides the memory."""
    rows = [row for row in compared.rows if row.predicted is not None]
    wrong = sum(not row.overlaps for row in rows) if compared.verdict is Verdict.DIFFERS else 0
    decides = compared.verdict is not Verdict.CANNOT_COMPARE
    found = [
        _figure(f"{source}_lines", None, len(rows), decides=False),
        _figure(f"{source}_lines_that_differ", 0, wrong, decides=decides),
    ]
    return found + [
        _figure(row.name, int(row.predicted), int(row.reported), row.unit, decides=False)
        for row in rows
        if row.unit in _UNITS and row.predicted is not None
    ]


def told_findings(compared: Comparison, source: str) -> list[Finding]:
    """Lines that the server told otherwise than the rules do."""
    if compared.verdict in (Verdict.AGREES, Verdict.INSIDE):
        return []
    off = [
        f"{row.label}: {row.printed} printed, {row.predicted} predicted"
        for row in compared.rows
        if row.predicted is not None and not row.overlaps
    ]
    severity = Severity.ERROR if compared.verdict is Verdict.DIFFERS else Severity.WARNING
    said = f"the server's {source}: {compared.reason}"
    return [Finding(f"{source}-differs", severity, said, detail=tuple(off))]


def load_figures(told: Load) -> list[Figure]:
    """Requests, preemptions and peaks of the load. They confirm where all were seen running together, and
    where one more was seen to wait; what is off refutes in any case."""
    first, more = told.first, told.more
    ran, usage = first.together, first.usage_peak
    thrown = first.preemptions
    found = [
        _figure(
            "requests", first.sent, first.answered, "requests", decides=ran or first.answered < first.sent
        ),
        _figure("answers_of_another_length", 0, first.wrong, decides=ran or first.wrong > 0),
        _figure("preemptions", 0, thrown, "requests", decides=bool(thrown) or (ran and thrown is not None)),
        _figure("running_peak", first.sent, first.running_peak, "requests", decides=ran),
        _figure("usage_peak_ppm", None, None if usage is None else int(usage * 10**6), decides=False),
        _figure("looks", None, len(first.looks), decides=False),
    ]
    if more is not None:
        seen = told.one_waits or told.one_ran
        waits = int(told.one_waits) if seen else None
        found += [
            _figure("one_more_waits", 1, waits, decides=seen),
            _figure("running_peak_of_one_more", None, more.running_peak, "requests", decides=False),
        ]
    return found


def _end(stopped: bool | None) -> list[Figure]:
    return [_figure("stopped_when_asked", 1, int(bool(stopped)), decides=False)]


def load_findings(told: Load) -> list[Finding]:
    """Requests that failed or ran where they should wait, and what the metrics did not show."""
    found: list[Finding] = []
    for one in filter(None, (told.first, told.more)):
        if one.failed is not None:
            said = f"a request was not answered: {one.failed}"
            found.append(
                Finding("request-failed", Severity.ERROR, said, detail=(one.said,) if one.said else ())
            )
    first, more = told.first, told.more
    if any(one.beside for one in (first, more) if one is not None):
        said = "others sent requests meanwhile, so that what ran together proves nothing"
        found.append(Finding("server-in-use", Severity.WARNING, said))
    elif first.failed is None and not first.together and not first.preemptions:
        most = "none" if first.running_peak is None else f"{first.running_peak:,}"
        said = f"that all {first.sent:,} requests run together was not seen: {most} at once at most"
        found.append(Finding("not-seen", Severity.WARNING, said))
    elif more is not None and more.failed is None and told.one_ran:
        said = f"{more.sent:,} requests run together, and {first.sent:,} were said to be the most"
        found.append(Finding("one-more-ran", Severity.ERROR, said))
    elif more is not None and more.failed is None and not told.one_waits:
        found.append(Finding("not-seen", Severity.WARNING, "that one request more waits was not seen"))
    return found
