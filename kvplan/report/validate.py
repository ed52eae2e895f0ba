"""The screens of ``kvplan validate``: what was predicted beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvplan.engines.folders import title_of
from kvplan.plans.findings import Severity
from kvplan.plans.receipt import (
    CONFIRMED,
    CONSISTENT,
    HOLDS,
    REHEARSAL,
    REPORTED,
    STOPPED,
    Figure,
    Receipt,
)
from kvplan.proof.validate.dry import DryRun
from kvplan.proof.validate.session import Outcome
from kvplan.proof.validate.target import Target
from kvplan.report.layout import BLANK, Screen, Span, line, table, wrapped
from kvplan.report.words import Unit, command, count, size_words

_TITLES = {
    "runtime_total_bytes": "memory, as the runtime says",
    "context_bytes": "context",
    "driver_reserved_bytes": "reserved by the driver",
    "rounding_reserved_bytes": "allocator's rounding",
    "weights_bytes": "weights",
    "weights_reserved_bytes": "weights, segments",
    "loaded_bytes": "loaded beside them",
    "kv_pool_bytes": "pool, budget's line",
    "pool_bytes": "pool, tensors",
    "pool_allocated_bytes": "pool, allocated",
    "pool_reserved_bytes": "pool, segments",
    "pool_fragmentation_bytes": "pool, rests of segments",
    "device_runtime_bytes": "device, by the runtime",
    "device_nvml_bytes": "device, by NVML",
    "cache_bytes": "cache in use",
    "num_blocks": "blocks",
    "token_slots": "slots of tokens",
    "token_slots_used": "slots of tokens in use",
    "requests": "requests",
    "extra_request_refused": "one more is refused",
    "others_undisturbed": "the others undisturbed",
    "blocks_all_freed": "all blocks freed",
    "blocks_copied_on_write": "blocks copied on write",
    "requests_refilled": "requests that came later",
    "shared_prefix_tokens": "tokens of shared prefixes",
    "contiguous_requests": "requests without paging",
    "states_written": "states written",
    "states_wrong": "states read back wrong",
    "states_read_back": "states read back",
    "states_missing": "states without a block",
    "reserved_blocks_untouched": "reserved blocks untouched",
    "bytes_written": "bytes written",
    "tensors_wrong": "tensors of another shape",
    "table_errors": "errors of the block tables",
    "attention_out_of_tolerance": "attention out of tolerance",
    "engine_kernels_wrong": "layer kinds found elsewhere",
    "engine_kernels_read": "layer kinds read in place",
    "ranks_alike": "ranks alike",
    "limit_pool_bytes": "largest pool",
    "limit_requests": "requests in it",
    "out_of_memory_margin_bytes": "room above the plan's",
    "host_peak_bytes": "host memory, peak",
}
"""Figures of the screen in their order; all of them stand in the receipt."""
_ALIGN = "lrrrl"
_MEANINGS = {
    CONFIRMED: "figures measured against an independent prediction",
    CONSISTENT: "self-consistent (kvplan's own arithmetic on both sides)",
    REPORTED: "reported",
}
MOST_ROWS, MOST_FINDINGS, MOST_LINES = 6, 1, 3
"""Of a screen that is not asked for whole."""
_DRY_ALIGN = "lrrrr"


def outcome_screen(
    outcome: Outcome, receipt: Receipt, *, typed: str, path: str | None, whole: bool = False
) -> Screen:
    """The verdict, what it stands on, findings, and what to do with the receipt. Without ``whole`` at most
    25 lines: figures of the first class and those that differ, the others as a count."""
    screen: Screen = [*wrapped(_verdict(outcome, receipt), style=_style(receipt)), BLANK]
    if not whole:
        worst = sorted(_worst(outcome.figures), key=lambda one: one.agrees)  # those that differ come first
        shown = [one for one in worst if one.evidence == CONFIRMED or not one.agrees][:MOST_ROWS]
        screen += [*_table(shown), BLANK] if shown else []
    for name, what in _MEANINGS.items():
        own = [one for one in outcome.figures if one.evidence == name]
        wrong = len({one.name for one in own if not one.agrees})
        tail = f", {count(wrong, 'differs', 'differ')}" if wrong else ""
        screen.append(line(f"{what}: {len({one.name for one in own})}{tail}", indent=1))
        if whole and _worst(own):
            screen += [*_table(_worst(own), indent=2), BLANK]
    screen += _findings(outcome, whole=whole)
    screen += _next(outcome.target, receipt, typed, path, whole=whole)
    return one_blank(screen)


def one_blank(screen: Screen) -> Screen:
    """Never two blank lines, where parts of a screen are missing between them."""
    return [row for at, row in enumerate(screen) if row or not at or screen[at - 1]]


def _table(figures: Sequence[Figure], *, indent: int = 1) -> Screen:
    heads = [Span(word, "dim") for word in ("", "predicted", "measured", "difference", "")]
    rows = [heads, *(_row(figure) for figure in figures)]
    screen = table(rows, _ALIGN, gap="  ", indent=indent)
    if len(screen) <= len(rows):
        return screen
    # Where there is no room the difference goes: it is in the two figures before it.
    narrow = [[*row[:3], *row[4:]] for row in rows]
    return table(narrow, _ALIGN[:3] + _ALIGN[4:], gap="  ", indent=indent)


def _findings(outcome: Outcome, *, whole: bool) -> Screen:
    """Errors first; of what is long the beginning."""
    order = (Severity.ERROR, Severity.WARNING)
    ranked = sorted(
        outcome.findings, key=lambda one: order.index(one.severity) if one.severity in order else 2
    )
    screen: Screen = []
    for finding in ranked if whole else ranked[:MOST_FINDINGS]:
        style = {Severity.ERROR: "bad", Severity.WARNING: "warn"}.get(finding.severity, "dim")
        text = wrapped(f"{finding.severity.value}: {finding.message}", style=style, indent=1, hang=4)
        text += [row for one in finding.detail for row in wrapped(one, indent=2, hang=6)]
        screen += text if whole else text[:MOST_LINES]
    if whole:
        for note in outcome.notes:
            screen += wrapped(note, style="dim", indent=1, hang=4)
    return [BLANK, *screen, BLANK] if screen else [BLANK]


def _verdict(outcome: Outcome, receipt: Receipt) -> str:
    target, where = outcome.target, outcome.hardware.name
    what = f"{target.plan.name} ({title_of(receipt.engine)} {receipt.engine_version})"
    rehearsed = receipt.kind == REHEARSAL
    if receipt.verdict == STOPPED:
        how = {
            "time": "by --time-limit",
            "memory": "where memory ran out",
            "signal": "by a signal",
            "fault": "by a fault",
        }[outcome.stopped_by or "time"]
        return f"Stopped in the stage `{outcome.stopped_at}` {how}: nothing is proved of {what}."
    if outcome.refuted_by_memory:
        return f"Refuted on {where}: memory ran out in the stage `{outcome.stopped_at}` of {what}."
    wrong = sum(not figure.agrees for figure in outcome.figures)
    head = f"{'Rehearsal' if rehearsed else 'Validation'} on {'host memory' if rehearsed else where}"
    if receipt.verdict not in HOLDS:
        reasons = [count(wrong, "figure differs", "figures differ")] if wrong else []
        errors = sum(one.severity is Severity.ERROR for one in outcome.findings)
        reasons += [count(errors, "finding")] if errors else []
        return f"{head}: refuted, {' and '.join(reasons)} for {what}."
    requests = next((one.measured for one in outcome.figures if one.name == "requests"), None) or 0
    tokens = target.result.request.tokens
    proof = "the memory is there" if receipt.verdict == CONFIRMED else "layout and arithmetic hold"
    return (
        f"{head}: {proof} for {what}; {count(requests, 'request')} of {tokens:,} tokens in"
        f" {size_words(target.pool_bytes)}, every byte read back."
    )


def _style(receipt: Receipt) -> str:
    if receipt.verdict in HOLDS:
        return "warn" if receipt.kind == REHEARSAL or receipt.verdict == CONSISTENT else "good"
    return "warn" if receipt.verdict == STOPPED else "bad"


def _worst(figures: Iterable[Figure]) -> list[Figure]:
    """Of each figure on the screen the rank that is furthest off."""
    found: dict[str, Figure] = {}
    for figure in figures:
        if figure.name in _TITLES:
            kept = found.get(figure.name)
            if kept is None or _off(figure) > _off(kept):
                found[figure.name] = figure
    return [found[name] for name in _TITLES if name in found]


def _off(figure: Figure) -> int:
    if figure.predicted is None or figure.measured is None:
        return -1
    return abs(figure.measured - figure.predicted)


def _row(figure: Figure) -> list[Span]:
    difference = ""
    if figure.predicted is not None and figure.measured is not None:
        off = figure.measured - figure.predicted
        difference = f"{off:+,}" if off else "0"
    style = "" if figure.agrees else "bad"
    unit = "B" if figure.unit == "bytes" else ""
    title = _TITLES[figure.name] + ("" if figure.agrees else " !")
    return [
        Span(title, style),
        Span(_number(figure.predicted)),
        Span(_number(figure.measured), style),
        Span(difference, style),
        Span(unit, "dim"),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _next(target: Target, receipt: Receipt, typed: str, path: str | None, *, whole: bool) -> Screen:
    screen: Screen = [] if whole else [line("every figure and note: -v", indent=1)]
    if receipt.kind == REHEARSAL:
        screen += wrapped(
            "A rehearsal proves layout and arithmetic, never the capacity of a GPU."
            + (" This plan asks for a proof on its GPU (exit 3)." if target.asks_proof else ""),
            indent=1,
            hang=2,
        )
    if path is not None:
        screen.append(line(f"receipt: {path}", indent=1))
        if target.asks_proof and receipt.kind != REHEARSAL:
            screen.append(line(f"check it: {command('kvplan', 'check', typed)}", indent=1))
    elif receipt.verdict != STOPPED:
        screen.append(line("no receipt was written: --output FILE keeps one", indent=1))
    return screen


def dry_screen(planned: DryRun, *, typed: Sequence[str]) -> Screen:
    """The planned allocation, rank by rank. typed: the command's words without --dry-run."""
    target, request = planned.target, planned.target.result.request
    where = "on the GPU" if planned.on_gpu else "in host memory (a rehearsal)"
    screen: Screen = wrapped(
        f"Would allocate {size_words(max(one.pool_bytes for one in planned.ranks))} of cache for"
        f" {target.plan.name} {where}: {count(min(one.requests for one in planned.ranks), 'request')} of"
        f" {request.tokens:,} tokens."
    )
    unit = Unit(amount for one in planned.ranks for amount in (one.weights_bytes, one.pool_bytes))
    heads = ("rank", f"weights {unit.name}", "pool", "segments", "blocks")
    rows = [[Span(word, "dim") for word in heads]]
    for number, one in enumerate(planned.ranks):
        amounts = (one.weights_bytes, one.pool_bytes, one.pool_reserved_bytes)
        cells = (str(number), *map(unit.show, amounts), "+".join(f"{blocks:,}" for blocks in one.num_blocks))
        rows.append([Span(cell) for cell in cells])
    screen += [BLANK, *table(rows, _DRY_ALIGN), BLANK]
    screen += [*_tensors(planned), BLANK]
    for note in planned.notes:
        screen += wrapped(note, style="dim", indent=1, hang=4)
    many = len(planned.ranks)
    runner = ["torchrun", "--nproc-per-node", str(many), "-m", "kvplan.proof"]
    words = [*(runner if many > 1 else ["kvplan", "validate"]), *typed]
    screen += wrapped(command(*words), indent=1, first="run it: ", hang=4)
    return screen


def _tensors(planned: DryRun) -> Screen:
    """The pool's tensors of the first rank: equal shapes once, with their number."""
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for allocation in planned.layouts[0].allocations:
        alike.setdefault((allocation.dtype, allocation.shape), []).append(allocation.bytes)
    rows = [
        [
            Span(f"{len(sizes):,} ×"),
            Span(f"{dtype} [{', '.join(f'{size:,}' for size in shape)}]"),
            Span(f"{sum(sizes):,} B"),
        ]
        for (dtype, shape), sizes in alike.items()
    ]
    shown = rows[:8]
    more = [line(f"and {count(len(rows) - 8, 'more shape')}", indent=2)] if len(rows) > 8 else []
    return [line(Span("tensors of the pool, rank 0", "dim"), indent=1), *table(shown, "rlr"), *more]
