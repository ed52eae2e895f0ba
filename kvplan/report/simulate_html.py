"""A simulation as sections of a report: its figures, three pictures drawn here, what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvplan.engines.folders import title_of
from kvplan.engines.traits import traits_of
from kvplan.report.html.markup import Markup, el
from kvplan.report.html.page import FROM, page, section
from kvplan.report.html.svg import Mark, along, area, curve, frame, up
from kvplan.report.sections import Cell, Entry, Section, Table
from kvplan.report.simulate import NOT_IN_IT, TOO_SHORT, dealt_words, target_words
from kvplan.simulation.outcome import Outcome, means, percentile
from kvplan.simulation.results import Interval, SimulationResult
from kvplan.units import SECOND, human_seconds

BINS = 160
SHARES = tuple(number / 100 for number in (1, *range(5, 100, 5), 97, 99))


def simulation_page(result: SimulationResult, *, where: str) -> str:
    """The whole answer as one page. where: the GPUs of one replica."""
    verdict = "keeps" if result.keeps else "does not keep"
    safely = "" if not result.keeps else (", safely too" if result.safely else ", not safely")
    many = f"{result.replicas} replica(s), {verdict} {target_words(result.target)}{safely}"
    head = f"{result.model} on {where}: {many}"
    parts = [section(one) for one in simulation_sections(result)]
    return page(result.model, el("header", el("h1", head)), el("main", *parts))


def rules_of(result: SimulationResult) -> str:
    """Whose scheduler, and where it stands."""
    unasked = traits_of(result.engine).scheduler_unasked
    known = "experimental: read from the source, not asked of the engine" if unasked else "step by step"
    return f"{title_of(result.engine)} {result.release}'s scheduler, {known} (kvplan/simulation/)"


def simulation_sections(result: SimulationResult) -> Iterator[Section]:
    """A simulation's results, in the order in which they are read."""
    used = result.likely
    yield _figures(result)
    yield Section(
        "KV cache in use",
        picture=_over_time(used, f"Blocks that requests hold, of {used.blocks:,}; the likely run."),
    )
    yield Section("Time to first token", picture=_shares(result, lambda run: run.ttft))
    yield Section("Time per further token", picture=_shares(result, lambda run: run.tpot))
    if result.helps:
        yield _helps(result)
    yield _sources(result)


def _sustained(result: SimulationResult) -> str:
    rates = result.sustainable
    said = f"{result.rate:.3g} requests/s arrive."
    if rates is not None and rates.at_least and not rates.value:
        said = f"{TOO_SHORT}; {said}"
    elif rates is not None:
        who = "Alone, one replica sustains" if dealt_words(result) else "One replica sustains"
        said = (
            f"{who} {rates.value:.3g} ({rates.low:.3g} … {rates.high:.3g}) requests/s;"
            f" {said.removesuffix('.')}{dealt_words(result)}."
        )
    if result.saturated_runs:
        said += f" Saturated in {result.saturated_runs} of {len(result.runs)} runs: the queue only grows."
    return said


def _figures(result: SimulationResult) -> Section:
    rows: list[tuple[str, Interval, Callable[[float], str], str]] = []
    if result.target.asked:
        rows.append(("within the target", result.goodput, _percent, "runs below"))
    if result.wide > 1:
        whose = f"{title_of(result.engine)}'s own cache on the trace"
        rows.append(("hit rate", result.hit_rate, _percent, whose))
        for place, tier in enumerate(result.likely.tiers):
            rows.append((f"of these {tier.name}", result.figure(_tier(place)), _percent, "its connector"))
    rows += [
        (f"{name} p{share}", of(share / 100), human_seconds, "step times below")
        for name, of in (("TTFT", result.ttft), ("TPOT", result.tpot))
        for share in (50, 90, 99)
    ]
    rows.append(("preempted", result.preempted, _percent, "scheduler and step times"))
    rows.append(
        ("answer tokens/s", result.tokens_per_second, lambda value: f"{value:,.0f}", "step times below")
    )
    cells: list[tuple[Entry, ...]] = [
        (name, Cell(say(one.value), one.value), f"{say(one.low)} … {say(one.high)}", source)
        for name, one, say, source in rows
    ]
    caption = "Interval: the least and the most of all runs."
    table = Table(("", "likely", "interval", FROM), "lrrl", tuple(cells), caption=caption)
    return Section("Simulated on the trace", said=(_sustained(result), *result.missed), tables=(table,))


def _tier(place: int) -> Callable[[Outcome], float]:
    return lambda run: run.tiers[place].hits / (run.served_prompt_tokens or 1)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _over_time(run: Outcome, what: str) -> Markup:
    shares = [count / run.blocks for count in means(run.used, BINS)]
    if not shares:
        return el("p", "Nothing was served.")
    through = [(along(place / len(shares)), up(share)) for place, share in enumerate(shares)]
    around = [(along(0), up(0)), *through, (along(1), up(shares[-1])), (along(1), up(0))]
    end = run.end_ns / SECOND
    return frame(
        area(around, "area"),
        heights=[Mark(0, "0 %"), Mark(0.5, "50 %"), Mark(1, "100 %")],
        places=[Mark(0.02, "0 s"), Mark(0.5, human_seconds(end / 2)), Mark(0.96, human_seconds(end))],
        what=what,
    )


def _shares(result: SimulationResult, of: Callable[[Outcome], Sequence[int]]) -> Markup:
    """How large a share of requests is within a time: the likely run's line, all runs' band."""
    curves = [[percentile(of(run), share) / SECOND for share in SHARES] for _, run in result.runs]
    most = max(map(max, curves))
    if not most:
        return el("p", "Nothing was made.")
    there = [(along(share), up(max(values) / most)) for share, values in zip(SHARES, zip(*curves))]
    back = [(along(share), up(min(values) / most)) for share, values in zip(SHARES, zip(*curves))]
    line = [(along(share), up(value / most)) for share, value in zip(SHARES, curves[0])]
    return frame(
        area([*there, *reversed(back)], "band"),
        curve(line, "mark"),
        heights=[Mark(0, "0"), Mark(0.5, human_seconds(most / 2)), Mark(1, human_seconds(most))],
        places=[Mark(share, f"p{round(share * 100)}") for share in (0.1, 0.5, 0.9, 0.99)],
        what="The share of requests within a time: the likely run, and the least and most of all runs.",
    )


def _helps(result: SimulationResult) -> Section:
    before = result.likely
    rows = [("as asked", before.hit_rate, before.goodput, percentile(before.ttft, 0.99) / SECOND)]
    rows += [(one.what, one.hit_rate, one.goodput, one.ttft_p99_seconds) for one in result.helps]
    cells: list[tuple[Entry, ...]] = [
        (what, Cell(_percent(hits), hits), Cell(_percent(good), good), Cell(human_seconds(ttft), ttft))
        for what, hits, good, ttft in rows
    ]
    heads = ("", "hit rate", "in target", "TTFT p99")
    caption = "Each simulated, with the likely pool and speed."
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
