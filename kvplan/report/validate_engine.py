"""The screen of ``kvplan validate --with``: what the installed engine measured beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.engines.folders import title_of
from kvplan.plans.findings import Severity
from kvplan.plans.receipt import CONFIRMED, HOLDS, REHEARSAL, REPORTED, STOPPED, Figure, Receipt
from kvplan.proof.validate.session import Outcome
from kvplan.report.layout import BLANK, Screen, Span, line, table, wrapped
from kvplan.report.validate import one_blank
from kvplan.report.words import command, count

MOST_ROWS = 9
_ALIGN = "lrrrl"
_FIRST = tuple(
    f"engine_{name}"
    for name in (
        "pool_bytes", "blocks_in_its_pool", "num_blocks", "requests", "requests_at_full_length",
        "extra_request_refused", "kv_bytes", "cache_bytes", "weights_bytes",
    )
)  # fmt: skip
_UNITS = {"bytes": "B", "blocks": "", "requests": "", "count": "", "tokens": ""}


def engine_screen(
    outcome: Outcome, receipt: Receipt, *, typed: str, path: str | None, whole: bool = False
) -> Screen:
    """The verdict, what it stands on, what differs, and what to do with the receipt."""
    style = "bad" if receipt.verdict not in HOLDS else "warn" if receipt.kind == REHEARSAL else "good"
    screen: Screen = [*wrapped(_verdict(outcome, receipt), style=style), BLANK]
    figures = sorted(outcome.figures, key=_place)
    if whole:
        screen += _whole(figures)
    elif figures:
        screen += [*_table(figures[:MOST_ROWS]), BLANK]
    left = 0 if whole else max(0, len(figures) - MOST_ROWS)
    if left:
        screen.append(line(f"and {count(left, 'more figure')}: -v", indent=1))
    run = receipt.engine_run
    ran = f"engine {run['version']}, {run['device']}"
    if not run.get("attached"):
        ran = f"engine {run['version']}, torch {run['torch']}, Python {run['python']}, {run['device']}"
    screen += wrapped(ran, style="dim", indent=1, hang=2)
    screen += _findings(outcome, whole=whole)
    return one_blank(screen + _next(outcome, receipt, typed, path))


def _place(figure: Figure) -> tuple[bool, bool, int]:
    """Sort key: differences first, then deciding figures, of those a plan's subject first."""
    last = len(_FIRST)
    at = _FIRST.index(figure.name) if figure.name in _FIRST else last
    return figure.agrees, figure.evidence == REPORTED, at


def _whole(figures: Sequence[Figure]) -> Screen:
    """Every figure: those that decide, those that are reported, and the intervals of estimates."""
    screen: Screen = []
    for reported in (False, True):
        part = [one for one in figures if (one.evidence == REPORTED) == reported]
        if part:
            screen += [line(Span("decides nothing: reported", "dim"), indent=1)] if reported else []
            screen += [*_table(part), BLANK]
    estimates = [one for one in figures if None not in (one.low, one.high, one.measured)]
    if estimates:
        heads = [Span(word, "dim") for word in ("estimates", "measured", "at least", "at most")]
        rows = [
            [Span(_title(one)), *(Span(f"{end:,}") for end in (one.measured, one.low, one.high))]
            for one in estimates
        ]
        screen += [*table([heads, *rows], "lrrr", gap="  "), BLANK]
    return screen


def _title(figure: Figure) -> str:
    title = figure.name.removeprefix("engine_").removesuffix("_bytes").replace("_", " ")
    return title + ("" if figure.rank is None else f", rank {figure.rank}")


def _verdict(outcome: Outcome, receipt: Receipt) -> str:
    run = receipt.engine_run
    who = f"{title_of(run['name'])} {run['version']}"
    what = outcome.target.plan.name + ("" if run["layers"] is None else f" ({run['layers']} layers)")
    where = "in host memory (a rehearsal)" if receipt.kind == REHEARSAL else f"on {outcome.hardware.name}"
    if receipt.verdict == STOPPED:
        return f"Stopped in the stage `{outcome.stopped_at}`: nothing is proved of {what}."
    if outcome.refuted_by_memory:
        return f"Refuted by {who} {where}: memory ran out in the stage `{outcome.stopped_at}` of {what}."
    if receipt.verdict not in HOLDS:
        wrong = sum(not figure.agrees for figure in outcome.figures)
        reasons = [count(wrong, "figure differs", "figures differ")] if wrong else []
        errors = sum(one.severity is Severity.ERROR for one in outcome.findings)
        reasons += [count(errors, "finding")] if errors else []
        return f"Refuted by {who} {where}: {' and '.join(reasons)} for {what}."
    proof = "Confirmed" if receipt.verdict == CONFIRMED else "Nothing differs"
    return f"{proof} by {who} {where}: {_held(outcome)} for {what}."


def _held(outcome: Outcome) -> str:
    """Blocks and requests, as far as they were reached."""
    found = {figure.name: figure.measured for figure in outcome.figures}
    words = [
        count(value, word)
        for name, word in (("engine_num_blocks", "block"), ("engine_requests", "request"))
        if (value := found.get(name)) is not None
    ]
    if "engine_kv_bytes" in found:
        return "weights and the tensors of the cache"
    tokens = outcome.target.result.request.tokens
    ran = found.get("served_running_peak")
    served = "" if ran is None else f", {ran:,} at once on its server,"
    return " and ".join(words) + (f" of {tokens:,} tokens{served}" if len(words) == 2 else "") or "figures"


def _table(figures: Sequence[Figure]) -> Screen:
    heads = [Span(word, "dim") for word in ("", "predicted", "measured", "difference", "")]
    return table([heads, *(_row(figure) for figure in figures)], _ALIGN, gap="  ")


def _row(figure: Figure) -> list[Span]:
    style = "" if figure.agrees else "bad"
    title, difference = _title(figure), ""
    if figure.predicted is not None and figure.measured is not None:
        off = figure.measured - figure.predicted
        difference = f"{off:+,}" if off else "0"
    return [
        Span(title + ("" if figure.agrees else " !"), style),
        Span("-" if figure.predicted is None else f"{figure.predicted:,}"),
        Span("-" if figure.measured is None else f"{figure.measured:,}", style),
        Span(difference, style),
        Span(_UNITS.get(figure.unit, ""), "dim"),
    ]


def _findings(outcome: Outcome, *, whole: bool) -> Screen:
    screen: Screen = []
    ranked = sorted(outcome.findings, key=lambda one: one.severity is not Severity.ERROR)
    for finding in ranked if whole else ranked[:2]:
        style = {Severity.ERROR: "bad", Severity.WARNING: "warn"}.get(finding.severity, "dim")
        screen += wrapped(f"{finding.severity.value}: {finding.message}", style=style, indent=1, hang=4)
        for one in finding.detail if whole else finding.detail[:3]:
            screen += wrapped(one, indent=2, hang=6)
    for note in outcome.notes if whole else ():
        screen += wrapped(note, style="dim", indent=1, hang=4)
    return [BLANK, *screen, BLANK] if screen else [BLANK]


def _next(outcome: Outcome, receipt: Receipt, typed: str, path: str | None) -> Screen:
    screen: Screen = []
    if receipt.kind == REHEARSAL:
        screen += wrapped(
            "A rehearsal proves the engine's layout and admission, never what a GPU holds."
            + (" This plan asks for a proof on its GPU (exit 3)." if outcome.target.asks_proof else ""),
            indent=1,
            hang=2,
        )
    if path is not None:
        screen.append(line(f"receipt: {path}", indent=1))
        if outcome.target.asks_proof and receipt.kind != REHEARSAL:
            screen.append(line(f"check it: {command('kvplan', 'check', typed)}", indent=1))
    else:
        screen.append(line("no receipt was written: --output FILE keeps one", indent=1))
    return screen
