"""A simulation as a page, and as sections of a report: pictures, figures, what would help, sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvplan.engines.folders import title_of
from kvplan.engines.traits import traits_of
from kvplan.report.html.markup import el, markup
from kvplan.report.html.page import FROM, head, page, section
from kvplan.report.html.svg import side_by_side
from kvplan.report.sections import Cell, Entry, Section, Table
from kvplan.report.simulate import (
    NOT_IN_IT,
    hours_words,
    rate_words,
    saturated_words,
    serves,
    verdict_words,
)
from kvplan.report.simulate_charts import cache_chart, hours_chart, latency_chart, load_chart, queue_chart
from kvplan.simulation.outcome import Outcome, percentile
from kvplan.simulation.results import HourNeeds, Interval, SimulationResult
from kvplan.units import SECOND, human_seconds


def simulation_page(result: SimulationResult, *, where: str) -> str:
    """The whole answer as one page, the figure that fails as its headline. where: the GPUs of one replica."""
    said = headline_of(result)
    about = f"{result.model} · {title_of(result.engine)} {result.version} · {where} a replica"
    more = (el("p", f"No: {words}.", class_="state") for words in result.missed[1:])
    top = head(about, said, *more, good=serves(result) and not result.missed)
    parts = [section(one) for one in simulation_sections(result)]
    return page(f"{result.model}: {said}", top, el("main", *parts))


def headline_of(result: SimulationResult) -> str:
    """The figure that fails, else the target that is kept."""
    return f"No: {result.missed[0]}." if result.missed else verdict_words(result)


def rules_of(result: SimulationResult) -> str:
    """Whose scheduler, and where it stands."""
    unasked = traits_of(result.engine).scheduler_unasked
    known = "experimental: read from the source, not asked of the engine" if unasked else "step by step"
    return f"{title_of(result.engine)} {result.release}'s scheduler, {known} (kvplan/simulation/)"


def simulation_sections(result: SimulationResult, said: tuple[str, ...] = ()) -> Iterator[Section]:
    """A simulation's results, in the order in which they are read. said: before all of them."""
    pair = side_by_side(queue_chart(result), cache_chart(result))
    said += (*rate_words(result), *((saturated_words(result),) if result.saturated_runs else ()))
    yield Section("Simulated load over time", said=said, picture=markup(load_chart(result), pair))
    if result.hours:
        yield _by_hour(result.hours)
    yield _figures(result)
    latency = (
        latency_chart(result, "ttft", "Time to first token"),
        latency_chart(result, "tpot", "Time per further token"),
    )
    yield Section("Simulated latency", picture=side_by_side(*latency))
    if result.helps:
        yield _helps(result)
    yield _sources(result)


def _by_hour(hours: Sequence[HourNeeds]) -> Section:
    def cell(many: int | None) -> Cell:
        return Cell("none" if many is None else f"{many:,}", many)

    rows = tuple(
        (Cell(f"{one.hour}", one.hour), cell(one.requests), cell(one.likely), cell(one.safe)) for one in hours
    )
    table = Table(("hour", "requests", "replicas", "safely"), "rrrr", rows)
    return Section("Replicas by the hour", tuple(hours_words(hours)), hours_chart(hours), (table,))


def _figures(result: SimulationResult) -> Section:
    rows: list[tuple[str, Interval, Callable[[float], str], str, str]] = []
    target, asked = result.target, result.target.asked
    if asked:
        aim = _aim(_percent(target.goodput), missed=result.goodput.value < target.goodput)
        rows.append(("within the target", result.goodput, _percent, aim, "runs below"))
    if result.wide > 1:
        whose = f"{title_of(result.engine)}'s own cache on the trace"
        rows.append(("hit rate", result.hit_rate, _percent, "", whose))
        for place, tier in enumerate(result.likely.tiers):
            rows.append((f"of these {tier.name}", result.figure(_tier(place)), _percent, "", "its connector"))
    for name, of, most_ns in (("TTFT", result.ttft, target.ttft_ns), ("TPOT", result.tpot, target.tpot_ns)):
        for share in sorted({0.5, 0.9, 0.99, target.goodput} if asked else {0.5, 0.9, 0.99}):
            figure, aim = of(share), ""
            if most_ns is not None and share == target.goodput:
                most = most_ns / SECOND
                aim = _aim(human_seconds(most), missed=figure.value > most)
            rows.append((f"{name} p{share * 100:g}", figure, human_seconds, aim, "step times below"))
    rows.append(("preempted", result.preempted, _percent, "", "scheduler and step times"))
    rows.append(
        ("answer tokens/s", result.tokens_per_second, lambda value: f"{value:,.0f}", "", "step times below")
    )
    cells: list[tuple[Entry, ...]] = [
        (
            name,
            Cell(say(one.value), one.value),
            *([aim] if asked else []),
            f"{say(one.low)} … {say(one.high)}",
            source,
        )
        for name, one, say, aim, source in rows
    ]
    heads = ("", "likely", *(["target"] if asked else []), "interval", FROM)
    table = Table(heads, "lrrrl" if asked else "lrrl", tuple(cells),
                  caption="Interval: the least and the most of all runs.")  # fmt: skip
    return Section("Simulated figures", said=result.missed, tables=(table,))


def _aim(words: str, *, missed: bool) -> str:
    return f"{words}, missed" if missed else words


def _tier(place: int) -> Callable[[Outcome], float]:
    return lambda run: run.tiers[place].hits / (run.served_prompt_tokens or 1)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _helps(result: SimulationResult) -> Section:
    before = result.likely
    rows = [("no change", before.hit_rate, before.goodput, percentile(before.ttft, 0.99) / SECOND)]
    rows += [(one.what, one.hit_rate, one.goodput, one.ttft_p99_seconds) for one in result.helps]
    cells: list[tuple[Entry, ...]] = [
        (what, Cell(_percent(hits), hits), Cell(_percent(good), good), Cell(human_seconds(ttft), ttft))
        for what, hits, good, ttft in rows
    ]
    heads = ("", "hit rate", "in target", "TTFT p99")
    caption = "Each change was simulated, with the likely pool and speed."
    return Section("What would help", tables=(Table(heads, "lrrr", tuple(cells), caption=caption),))


def _sources(result: SimulationResult) -> Section:
    runs = ", ".join(" / ".join(case) for case, _ in result.runs)
    pools = ", ".join(f"{name} {blocks:,}" for name, blocks in result.pool_blocks)
    lines = (
        f"Requests: {result.trace} ({result.form}), {result.likely.requests:,} in"
        f" {human_seconds(result.seconds)}.",
        f"Blocks of one scheduler: {pools}; the pool of kvplan size for {result.engine} {result.version}.",
        f"Scheduler: {rules_of(result)}.",
        f"Step times: {result.step_time}; not in it: {NOT_IN_IT}.",
        f"Router: {result.router}. Runs: {runs} (pool / speed).",
        *result.notes,
    )
    return Section("Where the simulation comes from", listed=lines)
