"""The screen of ``kvplan plan``: the answer in a sentence, the options, the memory, the flags, what next.

At most 25 lines beside the rows and what an option asks for; `whole_screen` has why, what more buys and what
moves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.planning.results import PlanResult
from kvplan.plans.plan import QUALITIES, SAFE
from kvplan.report.budget import memory_lines, short_memory
from kvplan.report.layout import Piece, Screen, Section, Span, joined, line, table, within, wrapped
from kvplan.report.notes import more_line, next_line, warning_lines, warning_section
from kvplan.report.plan_parts import (
    cited,
    engine_titles,
    flag_lines,
    front,
    lever_lines,
    plan_sentence,
    pool_lines,
    reason_lines,
    simulated_lines,
    speed_lines,
    ways_out,
)
from kvplan.report.plan_table import beside, options_table, slower
from kvplan.report.words import command, count
from kvplan.results import SizeResult
from kvplan.units import gib

_SHOWN_EFFECTS = 7
MOST_LINES = 25
_MOST_WARNINGS, _MOST_WAYS, _MOST_REASONS = 3, 3, 5


def plan_screen(
    result: PlanResult, *, typed: Sequence[str], sized: SizeResult | None = None, written: str | None = None
) -> Screen:
    """The answer on one screen. typed: the words of the command line after ``kvplan plan``; sized: one pool
    of the best; written: the plan file that was made of it."""
    sections = answer_sections(result, sized=sized)
    sections.append(Section(_next(result, typed, written), close=True))
    asked = [Section(front(result)), Section(lever_lines(result))]
    return joined([Section(within(sections, MOST_LINES)), *asked])


def answer_screen(result: PlanResult) -> Screen:
    """The answer alone, as the library shows it."""
    return within(answer_sections(result), MOST_LINES)


def answer_sections(result: PlanResult, *, sized: SizeResult | None = None) -> list[Section]:
    """The parts of `plan_screen`, but for what comes next and what is asked for by an option."""
    sections = [Section(plan_sentence(result))]
    if result.options:
        sections.append(Section(options_table(result.rows, result.currency) + beside(result)))
        if sized is not None and sized.budget is not None:
            sections.append(Section(short_memory(sized, sized.budget), 5))
        sections.append(Section(flag_lines(result)))
        sections.append(Section(pool_lines(result)))
        sections.append(Section(simulated_lines(result), close=True))
        sections.append(Section(speed_lines(result), 3, close=True))
        sections.append(Section(cited(result), 9, close=True))
        sections.append(Section(ways_out(result, most=_MOST_WAYS), 8))
    else:
        few = reason_lines(result, most=_MOST_REASONS, short=True)
        sections.append(Section(reason_lines(result, most=_MOST_REASONS), 1, (few,)))
        sections.append(Section(ways_out(result, most=_MOST_WAYS), 2))
    sections.append(warning_section(_warnings(result), _MOST_WARNINGS, 10))
    return [*sections, Section(_basis(result), 7, close=bool(_warnings(result)))]


def whole_screen(
    result: PlanResult,
    *,
    typed: Sequence[str],
    look: Sequence[str] = (),
    sized: SizeResult | None = None,
    written: str | None = None,
) -> Screen:
    """Everything. look: the command that says more about the best."""
    sections = [plan_sentence(result)]
    if result.options:
        sections.append(options_table(result.rows, result.currency) + beside(result))
        if sized is not None and sized.budget is not None:
            sections.append(memory_lines(sized, sized.budget))
        sections.append(_serve(result))
    sections += [
        pool_lines(result),
        front(result),
        lever_lines(result),
        ways_out(result),
        _more_gpus(result),
        _formats(result),
        _sensitivity(result),
    ]
    sections.append(reason_lines(result))
    sections.append(warning_lines(_warnings(result)))
    asked = f"{_asked(result)}; model {result.model.source}"
    last = wrapped(asked, indent=1, style="dim", first="rules:  ")
    if look:
        last += wrapped(command(*look), indent=1, style="dim", first="look:   ")
    return joined([*map(Section, sections), Section([*last, *_next(result, typed, written, whole=True)])])


def _warnings(result: PlanResult) -> tuple[str, ...]:
    best = result.options[0] if result.options else None
    own = () if best is None else (text for text in best.warnings if text != slower(best))
    return tuple(dict.fromkeys((*result.warnings, *own)))


def _serve(result: PlanResult) -> Screen:
    best = result.options[0]
    screen = flag_lines(result)
    pool = f"pool {gib(best.kv_pool_bytes)} a GPU"
    pool += (
        f", safely {gib(best.kv_pool_low_bytes) if best.kv_pool_low_bytes else 'nothing: it may not start'}"
    )
    screen += wrapped(f"{pool}; quality {best.quality}", indent=1, style="dim")
    for text in (*best.citations, *best.notes):
        screen += wrapped(text, indent=1, first="- ", style="dim")
    return screen + simulated_lines(result) + speed_lines(result)


def _more_gpus(result: PlanResult) -> Screen:
    numbers = [step for step in result.steps if step.what == "gpus"]
    if len(numbers) < 2:
        return []
    rows: list[list[Piece]] = [
        [count(step.gpus, "GPU"), f"{step.requests:,}", Span(step.label, "dim")] for step in numbers
    ]
    title = line(Span(f"What GPUs of this kind hold, {_pool(result)}", "bold"), indent=1)
    return [title, *table(rows, "rrl", indent=2)]


def _formats(result: PlanResult) -> Screen:
    formats = [step for step in result.steps if step.what == "format"]
    allowed = QUALITIES[: QUALITIES.index(result.quality) + 1]
    kept = [step for step in formats if step.quality in allowed]
    others = [step for step in formats if step.quality not in allowed]
    screen: Screen = []
    if len(formats) > 1:
        rows: list[list[Piece]] = [
            [step.label, f"{step.requests:,}", Span(step.quality, "dim")] for step in kept
        ]
        title = line(Span(f"What formats hold on them, {_pool(result)}", "bold"), indent=1)
        screen += [title, *table(rows, "lrl", indent=2)]
    if others:
        most = max(others, key=lambda step: step.requests)
        text = f"up to {most.requests:,} with --quality {most.quality} ({most.label})"
        screen += wrapped(text, indent=2, style="dim")
    return screen


def _pool(result: PlanResult) -> str:
    """By which figure of the pool these are counted: the one that the plan is made by."""
    return "safely" if result.pool == SAFE else "likely"


def _sensitivity(result: PlanResult) -> Screen:
    if not result.sensitivity:
        return []
    rows: list[list[Piece]] = [["", Span(_pool(result), "dim"), Span("GPUs needed", "dim")]]
    rows += [
        [
            f"{effect.name}: {effect.change}",
            f"{effect.requests:,}",
            "none does" if effect.gpus is None else f"{effect.gpus:,}",
        ]
        for effect in result.sensitivity[:_SHOWN_EFFECTS]
    ]
    return [line(Span("What moves the answer most", "bold"), indent=1), *table(rows, "lrr", indent=2)]


def _next(result: PlanResult, typed: Sequence[str], written: str | None, *, whole: bool = False) -> Screen:
    """Keep it; where it is kept, check it."""
    screen: Screen = []
    if written is not None:
        screen += wrapped(written, indent=1, style="dim", first="wrote:  ")
        screen += next_line(command("kvplan", "check", written))
    elif result.options:
        screen += next_line(command("kvplan", "plan", *typed, "--write", "plan.yaml"))
    pool = ["--pool likely"] if result.pool == SAFE else []
    front = [] if result.pools else ["--pareto"]
    if whole:
        return screen + more_line(
            ", ".join(["--json", "--markdown", "--levers", *front, *pool, "--quality aggressive"])
        )
    return screen + more_line(", ".join(["-v: what moves it, what was rejected; --json", "--levers", *front]))


def _basis(result: PlanResult) -> Screen:
    return wrapped(_asked(result), indent=1, style="dim", first="rules:  ")


def _asked(result: PlanResult) -> str:
    return f"{engine_titles(result)}; objective {result.objective}, quality {result.quality}"
