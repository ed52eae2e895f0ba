"""``--serve``: figures of the engine's own server, by its log and by requests of the plan's shape."""

from __future__ import annotations

import tempfile
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
from kvplan.proof.validate.installed.load import MOST, Served, Shape, drive
from kvplan.proof.validate.installed.question import Start, asked_settings, environment, write_model
from kvplan.proof.validate.installed.run import EngineOptions, EngineOutcome
from kvplan.proof.validate.installed.serving import NAME, Server, write_tokenizer
from kvplan.proof.validate.stages.base import EXACT
from kvplan.proof.validate.target import Target
from kvplan.record import replace

STAGE = "serve"
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
    with tempfile.TemporaryDirectory(prefix="kvplan-serve-") as place:
        folder, log = Path(place) / "model", Path(place) / "server.log"
        folder.mkdir()
        write_model(target.model, folder)
        write_tokenizer(folder)
        if on_stage is not None:
            on_stage(STAGE)
        start = start_of(target, folder)
        command = [options.interpreter, *found.server, *start.words, "--served-model-name", NAME]
        environ = environment(options.device, options.gpu, start.variables)
        server = Server(command, log, environment=environ, stop=stop)
        with server:
            shape = sent(found.own or target)
            told = drive(server.url, NAME, shape, stop=stop)
        on_gpu = options.device != CPU
        pool = asked_settings(target, on_gpu=on_gpu).kv_cache_memory
        given = {} if pool is None else {"kv_cache_memory": pool}
        gpu = target.settings.gpu if on_gpu else None
        exactly = TOLERANCE if pool is None else Fraction(0)
        compared = compare(
            target.model, read_log(log), given, gpu=gpu, with_budget=pool is None, tolerance=exactly
        )
    figures = [*log_figures(compared), *load_figures(told, server.stopped)]
    findings = [*log_findings(compared), *load_findings(told)]
    outcome = found.outcome
    outcome = replace(outcome, figures=(*outcome.figures, *figures), findings=(*outcome.findings, *findings))
    return replace(found, outcome=outcome)


def sent(own: Target) -> Shape:
    """How many requests are sent at once, and how long they are: as many as the plan says run together."""
    request, pool = own.result.request, own.result.pool
    if request.encoder_tokens:
        raise CannotRunHere("no-load", "requests with an encoder's input are not sent: leave out --serve")
    answer = max(1, request.answer_tokens)
    count = pool.max_running if pool is not None else own.settings.requests
    return Shape(min(MOST, max(1, count)), max(1, request.tokens - answer), answer)


def _figure(
    name: str, predicted: int | None, measured: int | None, unit: str = "count", *, decides: bool = True
) -> Figure:
    return Figure(
        f"served_{name}", unit, predicted, measured, EXACT if decides else None, STAGE, None, independent=True
    )


def log_figures(compared: Comparison) -> list[Figure]:
    """Figures of the server's log against the rules, by the comparison's own verdict: exactly where the pool
    is given, within its tolerance where the engine divides the memory."""
    rows = [row for row in compared.rows if row.predicted is not None]
    wrong = sum(not row.agrees for row in rows) if compared.verdict is Verdict.DIFFERS else 0
    decides = compared.verdict is not Verdict.CANNOT_COMPARE
    found = [
        _figure("log_lines", None, len(rows), decides=False),
        _figure("log_lines_that_differ", 0, wrong, decides=decides),
    ]
    return found + [
        _figure(row.name, int(row.predicted), int(row.reported), row.unit, decides=False)
        for row in rows
        if row.unit in _UNITS and row.predicted is not None
    ]


def log_findings(compared: Comparison) -> list[Finding]:
    if compared.verdict in (Verdict.AGREES, Verdict.INSIDE):
        return []
    off = [
        f"{row.label}: {row.printed} printed, {row.predicted} predicted"
        for row in compared.rows
        if row.predicted is not None and not row.agrees
    ]
    severity = Severity.ERROR if compared.verdict is Verdict.DIFFERS else Severity.WARNING
    return [Finding("log-differs", severity, f"the server's log: {compared.reason}", detail=tuple(off))]


def load_figures(told: Served, stopped: bool | None) -> list[Figure]:
    """Requests, preemptions and peaks of the load; the server's end."""
    usage = told.usage_peak
    return [
        _figure("requests", told.sent, told.answered, "requests"),
        _figure("answers_of_another_length", 0, told.wrong),
        _figure("preemptions", 0, told.preemptions, "requests", decides=told.preemptions is not None),
        _figure("running_peak", None, told.running_peak, "requests", decides=False),
        _figure("waiting_peak", None, told.waiting_peak, "requests", decides=False),
        _figure("usage_peak_ppm", None, None if usage is None else int(usage * 10**6), decides=False),
        _figure("stopped_when_asked", 1, int(bool(stopped)), decides=False),
    ]


def load_findings(told: Served) -> list[Finding]:
    if told.failed is None:
        return []
    return [Finding("request-failed", Severity.ERROR, f"a request was not answered: {told.failed}")]
