"""A simulation as one page without network: its figures, three pictures drawn here, what would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from kvplan.report.simulate import NOT_IN_IT, seconds_words, target_words
from kvplan.simulation.outcome import Outcome, means, percentile
from kvplan.simulation.results import Interval, SimulationResult
from kvplan.units import SECOND

WIDE, HIGH, LEFT, BELOW = 640, 220, 64, 28
"""A picture's size, and the room of its scales, in its own units."""
BINS = 160
SHARES = tuple(number / 100 for number in (1, *range(5, 100, 5), 97, 99))
_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--paper:#fff;--line:#c9d0d9;
--mark:#0b5fa5;--band:#0b5fa533}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecf1;--soft:#a3adba;--paper:#12161c;
--line:#3a434f;--mark:#6db4f2;--band:#6db4f240}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:44rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}
caption,figcaption{color:var(--soft);font-size:.85rem;text-align:left}
table{border-collapse:collapse;width:100%}
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}
figure{margin:0}svg{width:100%;height:auto}svg text{fill:var(--soft);font-size:11px}
.axis{stroke:var(--line)}.mark{stroke:var(--mark);fill:none;stroke-width:2}
.area{fill:var(--band);stroke:var(--mark)}.band{fill:var(--band);stroke:none}
"""


def simulation_page(result: SimulationResult, *, where: str, rules: str) -> str:
    """The whole answer as HTML. where: the GPUs of one replica; rules: where the scheduler's stand."""
    verdict = "keeps" if result.keeps else "does not keep"
    safely = "" if not result.keeps else (", safely too" if result.safely else ", not safely")
    many = f"{result.replicas} replica(s), {verdict} {target_words(result.target)}{safely}"
    head = f"{result.model} on {where}: {many}"
    used = result.likely
    parts = [
        f"<h1>{escape(head)}</h1>",
        _sustained(result),
        _figures(result),
        "<h2>KV cache in use</h2>",
        _over_time(used, f"Blocks that requests hold, of {used.blocks:,}; the likely run."),
        "<h2>Time to first token</h2>",
        _shares(result, lambda run: run.ttft),
        "<h2>Time per further token</h2>",
        _shares(result, lambda run: run.tpot),
        _helps(result),
        _sources(result, rules),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width"><title>{escape(result.model)}</title><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _sustained(result: SimulationResult) -> str:
    rates = result.sustainable
    said = f"{result.rate:.3g} requests/s arrive."
    if rates is not None:
        said = (
            f"One replica sustains {rates.value:.3g} ({rates.low:.3g} … {rates.high:.3g}) requests/s; {said}"
        )
    if result.saturated_runs:
        said += f" Saturated in {result.saturated_runs} of {len(result.runs)} runs: the queue only grows."
    return f"<p>{escape(said)}</p>"


def _figures(result: SimulationResult) -> str:
    rows: list[tuple[str, Interval, Callable[[float], str], str]] = []
    if result.target.asked:
        rows.append(("within the target", result.goodput, _percent, "runs below"))
    if result.wide > 1:
        rows.append(("hit rate", result.hit_rate, _percent, "vLLM's block manager on the trace"))
        for place, tier in enumerate(result.likely.tiers):
            rows.append((f"of these {tier.name}", result.figure(_tier(place)), _percent, "its connector"))
    rows += [
        (f"{name} p{share}", of(share / 100), seconds_words, "step times below")
        for name, of in (("TTFT", result.ttft), ("TPOT", result.tpot))
        for share in (50, 90, 99)
    ]
    rows.append(("preempted", result.preempted, _percent, "scheduler and step times"))
    rows.append(
        ("answer tokens/s", result.tokens_per_second, lambda value: f"{value:,.0f}", "step times below")
    )
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td>{say(one.value)}</td><td>{say(one.low)} … {say(one.high)}</td>"
        f"<td>{escape(source)}</td></tr>"
        for name, one, say, source in rows
    )
    return (
        "<table><caption>Interval: the least and the most of all runs.</caption><tr><th></th><th>likely</th>"
        f"<th>interval</th><th>from</th></tr>{cells}</table>"
    )


def _tier(place: int) -> Callable[[Outcome], float]:
    return lambda run: run.tiers[place].hits / (run.served_prompt_tokens or 1)


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _x(share: float) -> float:
    return round(LEFT + share * (WIDE - LEFT - 8), 1)


def _y(share: float) -> float:
    return round((HIGH - BELOW) * (1 - share) + 4, 1)


def _frame(
    body: str, marks: Sequence[tuple[float, str]], ends: Sequence[tuple[float, str]], what: str
) -> str:
    """A picture with scales. marks: heights with their words; ends: places along it with theirs."""
    lines = "".join(
        f'<line class="axis" x1="{LEFT}" x2="{WIDE - 8}" y1="{_y(at)}" y2="{_y(at)}"/>'
        f'<text x="{LEFT - 6}" y="{_y(at) + 4}" text-anchor="end">{escape(word)}</text>'
        for at, word in marks
    )
    words = "".join(
        f'<text x="{_x(at)}" y="{HIGH - 6}" text-anchor="middle">{escape(word)}</text>' for at, word in ends
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(what)}">'
        f"{lines}{body}{words}</svg><figcaption>{escape(what)}</figcaption></figure>"
    )


def _over_time(run: Outcome, what: str) -> str:
    shares = [count / run.blocks for count in means(run.used, BINS)]
    if not shares:
        return "<p>Nothing was served.</p>"
    points = [f"{_x(place / len(shares))},{_y(share)}" for place, share in enumerate(shares)]
    path = f"{_x(0)},{_y(0)} {' '.join(points)} {_x(1)},{_y(shares[-1])} {_x(1)},{_y(0)}"
    end = run.end_ns / SECOND
    return _frame(
        f'<polygon class="area" points="{path}"/>', [(0, "0 %"), (0.5, "50 %"), (1, "100 %")],
        [(0.02, "0 s"), (0.5, seconds_words(end / 2)), (0.96, seconds_words(end))], what,
    )  # fmt: skip


def _shares(result: SimulationResult, of: Callable[[Outcome], Sequence[int]]) -> str:
    """How large a share of requests is within a time: the likely run's line, all runs' band."""
    curves = [[percentile(of(run), share) / SECOND for share in SHARES] for _, run in result.runs]
    most = max(map(max, curves))
    if not most:
        return "<p>Nothing was made.</p>"
    low = [min(one[place] for one in curves) / most for place in range(len(SHARES))]
    high = [max(one[place] for one in curves) / most for place in range(len(SHARES))]
    there = [f"{_x(share)},{_y(value)}" for share, value in zip(SHARES, high)]
    back = [f"{_x(share)},{_y(value)}" for share, value in zip(SHARES, low)]
    line = " ".join(f"{_x(share)},{_y(value / most)}" for share, value in zip(SHARES, curves[0]))
    return _frame(
        f'<polygon class="band" points="{" ".join([*there, *reversed(back)])}"/>'
        f'<polyline class="mark" points="{line}"/>',
        [(0, "0"), (0.5, seconds_words(most / 2)), (1, seconds_words(most))],
        [(share, f"p{round(share * 100)}") for share in (0.1, 0.5, 0.9, 0.99)],
        "The share of requests within a time: the likely run, and between the least and most of all runs.",
    )


def _helps(result: SimulationResult) -> str:
    if not result.helps:
        return ""
    before = result.likely
    rows = [("as asked", before.hit_rate, before.goodput, percentile(before.ttft, 0.99) / SECOND)]
    rows += [(one.what, one.hit_rate, one.goodput, one.ttft_p99_seconds) for one in result.helps]
    cells = "".join(
        f"<tr><td>{escape(what)}</td><td>{_percent(hits)}</td><td>{_percent(good)}</td>"
        f"<td>{seconds_words(ttft)}</td></tr>"
        for what, hits, good, ttft in rows
    )
    return (
        "<h2>What would help</h2><table><caption>Each simulated, with the likely pool and speed.</caption>"
        f"<tr><th></th><th>hit rate</th><th>in target</th><th>TTFT p99</th></tr>{cells}</table>"
    )


def _sources(result: SimulationResult, rules: str) -> str:
    runs = ", ".join(" / ".join(case) for case, _ in result.runs)
    pools = ", ".join(f"{name} {blocks:,}" for name, blocks in result.pool_blocks)
    lines = [
        f"Requests: {result.trace} ({result.form}), {result.likely.requests:,} in"
        f" {seconds_words(result.seconds)}.",
        f"Blocks of one scheduler: {pools}; the pool of kvplan size for {result.engine} {result.version}.",
        f"Scheduler: {rules}.",
        f"Step times: {result.step_time}; not in it: {NOT_IN_IT}.",
        f"Router: {result.router}. Runs: {runs} (pool / speed).",
        *result.notes,
    ]
    return (
        "<h2>Where this comes from</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in lines) + "</ul>"
    )
