"""The pictures of a simulation: load, queue and cache over time, replicas by the hour, latency by share."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from kvplan.report.html.markup import Markup, Part, el, markup
from kvplan.report.html.svg import (
    Frame,
    Mark,
    area,
    curve,
    even_steps,
    legend,
    rect,
    stroke,
    time_marks,
)
from kvplan.report.simulate import dealt_words
from kvplan.simulation.outcome import Outcome, percentile
from kvplan.simulation.over_time import STRETCHES, means
from kvplan.simulation.results import HourNeeds, Rates, SimulationResult
from kvplan.units import SECOND, human_seconds

SHARES = tuple(number / 100 for number in (1, *range(5, 100, 5), 97, 99))
_FEW = 10
"""Requests that a stretch of time has at least, where there are as many: fewer make a rate jump."""
_LEAST_QUEUE = 4.0
"""Requests that the scale of a queue reaches at least: below one it would look like many."""
_FAR = 4
"""A line so many times above the rest is said and not drawn: the rest would be flat."""


def capacity_of(result: SimulationResult) -> Rates | None:
    """Requests a second that all replicas sustain, each as one alone does; None where nobody looked."""
    rates = result.sustainable
    if rates is None or not rates.value:
        return None
    many = 1 if result.split is not None else result.replicas
    return Rates(rates.value * many, rates.low * many, rates.high * many, rates.at_least)


def load_chart(result: SimulationResult) -> Markup:
    """Requests a second that come and that are answered, against what the replicas sustain."""
    run = result.likely
    stretches = next((one for one in (96, 48, 24) if run.taken >= _FEW * one), 12)
    seconds, load = run.end_ns / SECOND / stretches, run.load.by(stretches)
    came, done = ([many / seconds for many in counts] for counts in (load.arrived, load.answered))
    most, can = max((*came, *done)), capacity_of(result)
    near = can is not None and can.value <= _FAR * most
    steps = even_steps(max(most, can.value) if can is not None and near else most)
    frame = Frame([Mark(one / steps[-1], f"{one:,.4g}/s" if one else "0") for one in steps], _times(result))
    through = frame.through([one / steps[-1] for one in came], _until(result))
    drawn: list[Part] = [area(frame.beneath(through), "area")]
    drawn.append(curve(frame.through([one / steps[-1] for one in done], _until(result)), "other"))
    rows: list[tuple[str, Part]] = [("area", "arriving"), ("other", "answered")]
    words = f"Requests a second: {max(came):.3g} arriving at most, {max(done):.3g} answered at most"
    if can is not None:
        least = "at least " if can.at_least else ""
        words += f"; {least}{can.value:.3g} sustained"
        if near:
            drawn.append(frame.across(can.value / steps[-1], "limit"))
        # Several replicas may keep up with more than each alone would: then this is no limit of theirs.
        name = "replicas × one alone" if dealt_words(result) else "capacity"
        name += " within the target" if result.target.asked else ""
        above = "" if near else ", above the picture"
        between = "" if can.low == can.high else f" ({can.low:.3g} … {can.high:.3g})"
        rows.append(("limit", f"{name}{above}: {least}{can.value:.3g}/s{between}"))
    caption = _titled("Load", _capacity_words(result))
    return frame.drawn(*drawn, what=f"{words}.", caption=caption, marks=legend(*rows))


def _capacity_words(result: SimulationResult) -> str:
    said = "requests a second of the likely run"
    if capacity_of(result) is None:
        return f"{said}."
    if dealt_words(result):
        return f"{said}; together the replicas keep up with more than each alone would."
    each = "what they sustain" if result.split is not None else "replicas × what one sustains alone"
    return f"{said}; capacity: {each}."


def queue_chart(result: SimulationResult) -> Markup:
    """Requests that wait to be admitted: the likely run's line, all runs' band."""
    waits = [_on_axis(run, result) for _, run in result.runs]
    most = max(map(max, waits))
    steps = even_steps(max(most, _LEAST_QUEUE))
    frame = Frame([Mark(one / steps[-1], f"{one:,.4g}") for one in steps], _times(result))
    shares = [[one / steps[-1] for one in series] for series in waits]
    there, back = (frame.through([of(each) for each in zip(*shares)]) for of in (max, min))
    line = frame.through([one / steps[-1] for one in result.likely.load.waiting], _until(result))
    at_most = max(run.load.most_waiting for _, run in result.runs)
    words = (
        f"Requests not yet admitted: at most {result.likely.load.most_waiting:,} at once in the likely run"
    )
    words += f", {at_most:,} in any."
    caption = _titled("Queue", f"{words[0].lower()}{words[1:]}")
    drawn = area([*there, *reversed(back)], "band"), curve(line, "mark")
    return frame.drawn(*drawn, what=words, caption=caption, marks=_band_legend(result))


def _on_axis(run: Outcome, result: SimulationResult) -> list[float]:
    """The run's queue in equal stretches of the longest run's time."""
    series, whole = run.load.waiting, _whole(result)
    places = (whole * (2 * place + 1) // (2 * STRETCHES) for place in range(STRETCHES))
    return [series[at * STRETCHES // run.end_ns] if at < run.end_ns and series else 0.0 for at in places]


def cache_chart(result: SimulationResult) -> Markup:
    """The share of the pools' blocks that requests hold."""
    run = result.likely
    frame = Frame([Mark(0, "0 %"), Mark(0.5, "50 %"), Mark(1, "100 %")], _times(result))
    through = frame.through([count / run.blocks for count in means(run.used, STRETCHES)], _until(result))
    words = f"Blocks that requests hold: at most {run.peak / run.blocks * 100:.0f} % of {run.blocks:,}."
    caption = _titled("KV cache in use", f"{words[0].lower()}{words[1:-1]}; the likely run.")
    return frame.drawn(area(frame.beneath(through), "area") if through else None, what=words, caption=caption)


def hours_chart(hours: Sequence[HourNeeds]) -> Markup:
    """A bar of likely replicas for every hour, a line across at the safe ones; an hour that none of those
    tried keeps reaches the top."""
    most = max((many for one in hours for many in (one.likely, one.safe) if many is not None), default=0)
    steps = sorted({ceil(one) for one in even_steps(max(most, 1))})
    every = ceil(len(hours) / 8)
    places = [Mark((place + 0.5) / len(hours), f"{one.hour}") for place, one in enumerate(hours)][::every]
    frame = Frame([Mark(one / steps[-1], f"{one:,}") for one in steps], places)
    drawn: list[Part] = []
    for place, one in enumerate(hours):
        left, right = frame.x((place + 0.12) / len(hours)), frame.x((place + 0.88) / len(hours))
        top = frame.y(1.0 if one.likely is None else one.likely / steps[-1])
        kind = "rest" if one.likely is None else "bar"
        said = f"hour {one.hour}: {_many(one.likely)}, safely {_many(one.safe)}"
        drawn.append(rect(left, top, right - left, frame.y(0) - top, kind, said=said))
        if one.safe is not None:
            level = frame.y(one.safe / steps[-1])
            drawn.append(stroke(left, level, right, level, "safe"))
    words = "Replicas that each hour needs: " + ", ".join(_many(one.likely) for one in hours) + "."
    rows: list[tuple[str, Part]] = [("area", "likely"), ("safe", "safe")]
    if any(one.likely is None for one in hours):
        rows.append(("rest", "none of those tried"))
    caption = _titled("Replicas", "by the hour of the trace.")
    return frame.drawn(*drawn, what=words, caption=caption, marks=legend(*rows))


def _many(replicas: int | None) -> str:
    return "none" if replicas is None else f"{replicas:,}"


def latency_chart(result: SimulationResult, name: str, what: str) -> Markup:
    """How long a share of requests takes at most: the likely run's line, all runs' band, the target.

    name: ``ttft`` or ``tpot``.
    """
    runs = [run.ttft if name == "ttft" else run.tpot for _, run in result.runs]
    curves = [[percentile(times, share) / SECOND for share in SHARES] for times in runs]
    most = max(map(max, curves))
    if not most:
        return el("p", f"{what}: no request had one.")
    target_ns = result.target.ttft_ns if name == "ttft" else result.target.tpot_ns
    target = None if target_ns is None else target_ns / SECOND
    near = target is not None and target <= _FAR * most
    steps = even_steps(max(most, target) if target is not None and near else most)
    places = [Mark(share, f"p{round(share * 100)}") for share in (0.1, 0.5, 0.9, 0.99)]
    frame = Frame([Mark(one / steps[-1], human_seconds(one) if one else "0") for one in steps], places)

    def line(of: Sequence[float]) -> list[tuple[float, float]]:
        return [(frame.x(share), frame.y(value / steps[-1])) for share, value in zip(SHARES, of)]

    there, back = (line([of(values) for values in zip(*curves)]) for of in (max, min))
    drawn: list[Part] = [area([*there, *reversed(back)], "band"), curve(line(curves[0]), "mark")]
    words = f"{what}: half of all requests within {human_seconds(percentile(runs[0], 0.5) / SECOND)},"
    words += f" 99 % within {human_seconds(percentile(runs[0], 0.99) / SECOND)}; the likely run."
    extra: list[tuple[str, Part]] = []
    if target is not None:
        if near:
            drawn.append(frame.across(target / steps[-1], "limit"))
        above = "" if near else ", above the picture"
        extra.append(("limit", f"target{above}: {human_seconds(target)}"))
    caption = _titled(what, "the most that a share of requests takes.")
    return frame.drawn(*drawn, what=words, caption=caption, marks=_band_legend(result, *extra))


def _band_legend(result: SimulationResult, *more: tuple[str, Part]) -> Markup:
    band: list[tuple[str, Part]] = [("band", "all runs")] if len(result.runs) > 1 else []
    return legend(("mark", "likely run"), *band, *more)


def _titled(title: str, words: str) -> Markup:
    return markup(el("b", f"{title}: "), words)


def _whole(result: SimulationResult) -> int:
    """The end of the longest run: where the scale of time ends."""
    return max(1, *(run.end_ns for _, run in result.runs))


def _until(result: SimulationResult) -> float:
    """The share of that scale after which the likely run has ended."""
    return result.likely.end_ns / _whole(result)


def _times(result: SimulationResult) -> list[Mark]:
    return time_marks(_whole(result) / SECOND)
