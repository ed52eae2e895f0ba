"""The screen of ``kvplan simulate``: the answer in a sentence, figures with intervals, what would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.record import replace
from kvplan.report.layout import (
    BLANK,
    Piece,
    Screen,
    Span,
    columns,
    in_columns,
    line,
    shorten,
    table,
    table_width,
    wrapped,
)
from kvplan.report.words import NOTHING_SAID, count
from kvplan.simulation.outcome import Outcome, Target
from kvplan.simulation.results import HourNeeds, Interval, SimulationResult
from kvplan.simulation.shown import Run, Simulation
from kvplan.units import SECOND, human_bytes, human_seconds

_BARS = "▁▂▃▄▅▆▇█"
NAME = 34
_ANY_WIDTH = 10_000
_KEY = 12
"""Columns of a sweep's key, where its whole name finds no room, and of a value."""
TOO_SHORT = "The trace is too short to say what rate one replica sustains"
NOT_IN_IT = "pauses of the host"


def simulation_screen(result: SimulationResult, *, where: str, rules: str) -> Screen:
    """The whole answer. where: ``2 × h100-sxm-80gb``, the GPUs of one replica; rules: where they stand."""
    screen = [*_answer(result, where), BLANK, *_figures(result)]
    if result.hours:
        screen += [BLANK, *_hours(result.hours)]
    if result.helps:
        screen += [BLANK, *_helps(result)]
    screen.append(BLANK)
    for note in result.notes:
        screen += wrapped(note, indent=1, style="dim", first="note:   ")
    screen += wrapped(_trace(result), indent=1, style="dim", first="trace:  ")
    screen += wrapped(f"{result.step_time}; not in it: {NOT_IN_IT}", indent=1, style="dim", first="step:   ")
    screen += wrapped(rules, style="dim", indent=1, first="rules:  ")
    return screen


def run_line(run: Run) -> Screen:
    """One run in a line."""
    times = f"TTFT p99 {human_seconds(run.ttft_p99_seconds)}, TPOT p99 {human_seconds(run.tpot_p99_seconds)}"
    said = f"{_share(run.goodput)} in target, hit rate {_share(run.hit_rate)}, {times}"
    return [line(Span(f"{run.pool} pool, {run.speed} steps: {said}"))]


def answer_screen(answer: Simulation) -> Screen:
    """The answer without where it was asked: sentence and figures."""
    result = answer.outcome
    return [*_answer(result, ""), BLANK, *_figures(result)]


def _answer(result: SimulationResult, where: str) -> Screen:
    head = f"{shorten(result.model, NAME)}{f' on {where} a replica' if where else ''}: "
    lines = wrapped(head + verdict_words(result), style="" if serves(result) else "bad")
    for text in result.missed:
        lines += wrapped(f"No: {text}.", style="bad")
    for words in rate_words(result):
        lines += wrapped(words)
    if result.likely.refused:
        lines += wrapped(
            f"{result.likely.refused:,} of {count(result.likely.requests, 'request')} are refused (see the"
            " note): they miss every target, and are in no other figure.",
            style="warn",
        )
    if result.saturated_runs:
        lines += wrapped(saturated_words(result), style="warn")
    return lines


def rate_words(result: SimulationResult) -> list[str]:
    """The rate that one replica sustains and the one that arrives; nothing where nobody looked."""
    rates = result.sustainable
    if rates is None:
        return []
    arrive = f"{_rate(result.rate)} arrive"
    if rates.at_least and not rates.value:
        return [f"{TOO_SHORT}; {arrive}."]
    dealt = dealt_words(result)
    who = "Alone, one replica sustains" if dealt else "One replica sustains"
    who = "They sustain" if result.split is not None else who
    least = "at least " if rates.at_least else ""
    between = f"({_rate(rates.low)} … {_rate(rates.high)})"
    return [f"{who} {least}{_rate(rates.value)} requests/s {between}; {dealt or arrive}."]


def saturated_words(result: SimulationResult) -> str:
    """In how many runs the queue only grew."""
    many = f"{result.saturated_runs} of {count(len(result.runs), 'run')}"
    return f"Saturated in {many}: the queue only grows, so times grow with the trace."


def dealt_words(result: SimulationResult) -> str:
    """``each of 9 gets 0.556 of the 5.00 that arrive, in turn and so more evenly``, where each of several
    replicas keeps up with more than one alone under the same arrivals; else nothing."""
    rates, needed = result.sustainable, result.needed
    many = result.replicas if needed is None else needed.likely or 0
    if rates is None or result.split is not None or many < 2 or not serves(result):
        return ""
    each = result.rate / many
    if each <= rates.value:
        return ""
    how = "in turn" if result.router == "round-robin" else f"by {result.router}"
    some = f"{_rate(each)} of the {_rate(result.rate)} that arrive"
    return f"each of {many:,} gets {some}, {how} and so more evenly"


def serves(result: SimulationResult) -> bool:
    """Whether so many replicas as were asked for, or any that were tried, keep the target."""
    return result.keeps if result.needed is None else result.needed.likely is not None


def verdict_words(result: SimulationResult) -> str:
    """``2 replicas keep 99 % of requests within TTFT 1 s; safely too.``, ``No: 1 replica keeps 7.8 % …``."""
    target, many = result.target, replicas_words(result)
    if result.needed is not None:
        return _needed(result)
    verb = "keeps" if result.replicas == 1 else "keep"
    if result.keeps:
        return f"{many} {verb} {target_words(target)}; {'safely too' if result.safely else 'not safely'}."
    if not target.asked:
        return f"No: {many} would not {verb.removesuffix('s')} up with the trace: the queue only grows."
    kept = target_words(replace(target, goodput=result.likely.goodput))
    return f"No: {many} {verb} {kept}; the target is {_share(target.goodput)}."


def replicas_words(result: SimulationResult) -> str:
    """``1 replica``, ``2 prefill and 3 decode replicas``."""
    if result.split is not None:
        return f"{result.split.prefill} prefill and {result.split.decode} decode replicas"
    return count(result.replicas, "replica")


def _none(tried: int) -> str:
    """``none of 1 to 64 replicas keeps``."""
    return f"none of 1 to {tried:,} replicas keeps" if tried else "not even one request at a time keeps"


def _needed(result: SimulationResult) -> str:
    needed = result.needed
    assert needed is not None
    if needed.likely is None:
        return f"No: {_none(needed.tried)} {target_words(result.target)}."
    verb = "keeps" if needed.likely == 1 else "keep"
    safe = f"safely {needed.safe:,}" if needed.safe is not None else f"safely {_none(needed.tried)} it"
    return f"{count(needed.likely, 'replica')} {verb} {target_words(result.target)}; {safe}."


def target_words(target: Target) -> str:
    """``99 % of requests within TTFT 2 s and TPOT 50 ms``; without a target ``up``."""
    said = [
        f"{name} {human_seconds(value / SECOND)}"
        for name, value in (("TTFT", target.ttft_ns), ("TPOT", target.tpot_ns))
        if value is not None
    ]
    if not said:
        return "up with the trace"
    return f"{_share(target.goodput)} of requests within {' and '.join(said)}"


def _share(value: float) -> str:
    return f"{value * 100:.1f}".removesuffix(".0") + " %"


def _rate(value: float) -> str:
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _figures(result: SimulationResult) -> Screen:
    rows: list[Sequence[Piece]] = [("", Span("likely", "dim"), Span("interval", "dim"))]
    if result.target.asked:
        rows.append(_kept(result.goodput))
    if result.wide > 1:
        hits = f"of tokens, {result.most_hits * 100:.1f} at most"
        rows.append(_percent("hit rate", result.hit_rate, hits))
    rows += [_tier(result, place) for place in range(len(result.likely.tiers))]
    for name, of in (("TTFT", result.ttft), ("TPOT", result.tpot)):
        rows += [_times(f"{name} p{share}", of(share / 100)) for share in (50, 99)]
    if result.split is not None:
        rows.append(
            _times("transfer", result.figure(lambda run: run.transfer_ns / SECOND / (run.transfers or 1)))
        )
    rows.append(_percent("preempted", result.preempted, "of requests"))
    speed = result.tokens_per_second
    rows.append((
        "answer tokens/s", f"{speed.value:,.0f}", f"{speed.low:,.0f} … {speed.high:,.0f}", ""
    ))  # fmt: skip
    screen = table(rows, "lrrl", spare=(3,))
    used, blocks, peak = result.kv_in_use(), result.likely.blocks, result.likely.peak
    mean = sum(used) / len(used) if used else 0.0
    bars = "".join(_BARS[min(7, int(value * 8))] for value in used)
    screen += wrapped(
        f"{mean * 100:.0f} %  {bars}  at most {peak / blocks * 100:.0f} % of {blocks:,} blocks",
        indent=1, first="KV in use   ",
    )  # fmt: skip
    return screen


def _tier(result: SimulationResult, place: int) -> Sequence[Piece]:
    """Hits of a tier outside the GPU, and the bytes moved."""

    def share(run: Outcome) -> float:
        return run.tiers[place].hits / (run.served_prompt_tokens or 1)

    tier = result.likely.tiers[place]
    moved = f"{human_bytes(tier.loaded_bytes)} loaded, {human_bytes(tier.stored_bytes)} stored"
    return _percent(f"  of these {tier.name}", result.figure(share), moved)


def _kept(figure: Interval) -> Sequence[Piece]:
    """The share of requests within the target; of an interval that says nothing what it means."""
    row = _percent("within the target", figure, "of requests")
    if figure.high - figure.low <= NOTHING_SAID:
        return row
    return row[0], row[1], "not safely", Span(f"of requests; {figure.low * 100:.1f} % at worst", "dim")


def _percent(name: str, figure: Interval, of: str) -> Sequence[Piece]:
    return (
        name, f"{figure.value * 100:.1f} %", f"{figure.low * 100:.1f} … {figure.high * 100:.1f}",
        Span(of, "dim"),
    )  # fmt: skip


def _times(name: str, figure: Interval) -> Sequence[Piece]:
    return (
        name,
        human_seconds(figure.value),
        f"{human_seconds(figure.low)} … {human_seconds(figure.high)}",
        "",
    )


def _hours(hours: Sequence[HourNeeds]) -> Screen:
    """The replicas of every hour, and what they come to beside as many all the time."""
    rows: list[Sequence[Piece]] = [
        [Span(name, "dim") for name in ("hour", "requests", "replicas", "safely")],
        *([f"{one.hour}", f"{one.requests:,}", *map(_many, (one.likely, one.safe))] for one in hours),
    ]
    screen = table(rows, "rrrr", gap="  ")
    for words in hours_words(hours):
        screen += wrapped(words, indent=1)
    return screen


def hours_words(hours: Sequence[HourNeeds]) -> list[str]:
    """Replica-hours by the hour, and with as many all the time; how an hour was served."""
    said = []
    known = [one.likely for one in hours if one.likely is not None]
    if len(known) == len(hours):
        most, whole = max(known), sum(known)
        fewer = f"{min(known):,} to {most:,} replicas by the hour: {whole:,} replica-hours, and"
        said.append(f"{fewer} {most * len(known):,} with {most:,} all the time.")
    return [*said, "Each hour begins with an empty cache and queue."]


def _many(replicas: int | None) -> str:
    return "none" if replicas is None else f"{replicas:,}"


def _helps(result: SimulationResult) -> Screen:
    rows: list[Sequence[Piece]] = [
        (
            Span("change, simulated", "dim"),
            *(Span(name, "dim") for name in ("hit rate", "in target", "TTFT p99")),
        )
    ]
    before = result.likely
    rows.append(("none", *_three(before.hit_rate, before.goodput, result.ttft(0.99).value)))
    rows += [(one.what, *_three(one.hit_rate, one.goodput, one.ttft_p99_seconds)) for one in result.helps]
    return table(rows, "lrrr")


def _three(hits: float, good: float, ttft: float) -> tuple[str, str, str]:
    return f"{hits * 100:.1f} %", f"{good * 100:.1f} %", human_seconds(ttft)


def _trace(result: SimulationResult) -> str:
    if result.concurrency:
        return (
            f"{shorten(result.trace, NAME)} ({result.form}), {count(result.likely.requests, 'request')},"
            f" {result.concurrency:,} always under way: {_rate(result.rate)} a second"
        )
    known = f", ids of {result.wide}" if result.wide > 1 else ", no identities: nothing is shared"
    return (
        f"{shorten(result.trace, NAME)} ({result.form}), {count(result.likely.requests, 'request')} in"
        f" {human_seconds(result.seconds)}{known}"
    )


def sweep_screen(rows: Sequence[tuple[dict[str, str], dict[str, object]]], *, target: bool) -> Screen:
    """One line a change: likely figures, those that say something; then why runs have none. target: whether
    one is asked for."""
    keys = list(rows[0][0]) if rows else []
    figures = _swept_figures([found for _, found in rows if "error" not in found], target=target)
    body: list[Sequence[Piece]] = []
    for change, found in rows:
        shown = [Span("-", "dim")] if "error" in found else [of(found) for of in figures.values()]
        body.append([*(shorten(value, _KEY) for value in change.values()), *shown])
    align = "l" * len(keys) + "r" * len(figures)

    def shown_as(names: Sequence[str]) -> Screen:
        head = [Span(name, "dim") for name in (*names, *figures)]
        return table([head, *body], align, gap="  ", spare=("hit rate",))

    with in_columns(_ANY_WIDTH):
        screen = shown_as(keys)
    if table_width(screen) > columns():
        screen = shown_as([shorten(key, _KEY) for key in keys])
    return screen + _failed(rows)


def _swept_figures(
    done: Sequence[dict[str, object]], *, target: bool
) -> dict[str, Callable[[dict[str, object]], str]]:
    """The columns that say something of any run, and how each is written."""
    figures: dict[str, Callable[[dict[str, object]], str]] = {}
    if any("replicas_needed" in found for found in done):
        figures["needed"] = lambda found: str(found["replicas_needed"] or "none")
        figures["safely"] = lambda found: str(found["replicas_safely"] or "none")
    figures["hit rate"] = lambda found: f"{_of(found, 'hit_rate') * 100:.1f} %"
    if target:
        figures["in target"] = lambda found: f"{_of(found, 'goodput') * 100:.1f} %"
    figures["TTFT p99"] = lambda found: human_seconds(_of(found, "ttft_p99"))
    figures["TPOT p99"] = lambda found: human_seconds(_of(found, "tpot_p99"))
    if any(found["refused"] for found in done):
        figures["refused"] = lambda found: f"{found['refused']:,}"
    if not target and any(found["saturated"] for found in done):
        figures["saturated"] = lambda found: f"{found['saturated']} of {found['runs']}"
    return figures


def _failed(rows: Sequence[tuple[dict[str, str], dict[str, object]]]) -> Screen:
    """Why runs have no answer, each reason once."""
    why: dict[str, list[str]] = {}
    for change, found in rows:
        if "error" in found:
            said = " ".join(f"{key}={value}" for key, value in change.items())
            why.setdefault(str(found["error"]), []).append(said)
    screen: Screen = [BLANK] if why else []
    for text, changes in why.items():
        which = "every run" if 1 < len(changes) == len(rows) else ", ".join(changes)
        screen += wrapped(f"No: {which}: {text}", style="bad")
    return screen


def _of(found: dict[str, object], name: str) -> float:
    value = found[name]
    return float(value) if isinstance(value, (int, float)) else 0.0
