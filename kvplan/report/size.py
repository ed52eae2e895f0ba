"""The screen of ``kvplan size``: the answer in a sentence, one table, the memory, what to type next.

At most 22 lines; `whole_screen` has all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvplan.deployment.answer import Answer
from kvplan.deployment.gains import gains
from kvplan.deployment.lengths import Longest, Rung, longest_of, rungs, usual_lengths
from kvplan.later import later
from kvplan.plans.serve import left_out, remarks
from kvplan.report.budget import memory_lines, rung_table, short_memory
from kvplan.report.layout import Screen, Section, joined, within, wrapped
from kvplan.report.notes import (
    STDIN,
    basis_line,
    but_unverified,
    more_line,
    next_line,
    rules_words,
    source_lines,
    unverified_words,
    warning_lines,
    warning_section,
)
from kvplan.report.size_sentence import gain_lines, limit_flag, own_length_line, size_sentence
from kvplan.report.size_tables import (
    devices,
    figures,
    host_line,
    host_table,
    layers,
    one_request,
    plain_memory,
    pool_lines,
    ways_table,
)
from kvplan.report.words import command, count
from kvplan.results import NO_POOL, SizeResult

if TYPE_CHECKING:
    from kvplan.deployment import fixes as suggestions
    from kvplan.plans.plan import Plan
else:
    suggestions = later("kvplan.deployment", "fixes")

MOST_LINES = 22
_MOST_WARNINGS, _MOST_RUNGS, _MOST_KINDS = 3, 4, 6


class Shown:
    """An answer with what its screen asks for beside it."""

    def __init__(self, found: Answer, *, length_asked: bool = True) -> None:
        """length_asked: whether somebody named a length; where nobody did, the usual ones are shown."""
        self.found, self.result = found, found.result
        self.fixes: tuple[suggestions.Fix, ...] = (
            () if found.holds is not False else suggestions.suggested_fixes(found)
        )
        self.longest: Longest | None = longest_of(found)
        self.gains = gains(found) if found.holds else ()
        self.rungs: tuple[Rung, ...] = ()
        counted = found.likely is not None and found.result.refusal is None
        if not length_asked and counted and found.result.budget is not None:
            self.rungs = rungs(found, usual_lengths(found))


def size_screen(shown: Shown, *, typed: Sequence[str], plan: Plan | None = None, step: str = "") -> Screen:
    """The answer on one screen.

    typed: the model as the user wrote it. plan: where a plan was sized. step: the command that comes next.
    """
    sections = answer_sections(shown, plan=plan)
    sections.append(Section(_next(typed, plan, step, whole=False), close=True))
    return within(sections, MOST_LINES)


def answer_screen(result: SizeResult) -> Screen:
    """The answer alone, as the library shows it."""
    return within(answer_sections(Shown(result.asked)), MOST_LINES)


def answer_sections(shown: Shown, *, plan: Plan | None = None) -> list[Section]:
    """The parts of `size_screen`, but for what comes next."""
    found, result = shown.found, shown.result
    head = size_sentence(found, shown.fixes)
    if plan is not None:
        head += wrapped(_of_plan(plan), style="dim")
    sections = [Section(head)]
    counted = found.verdict is not None and result.refusal is None and result.budget is not None
    if result.ways:
        sections.append(Section(ways_table(result), 2, (ways_table(result, short=True),)))
    elif shown.rungs:
        sections.append(
            Section(rung_table(shown.rungs, result.request.tokens, _MOST_RUNGS, limit_flag(result)))
        )
    elif result.sized and not counted:
        sections.append(Section(figures(result), 3, (wrapped(one_request(result), indent=1),)))
        several = 1 < len(result.layers) <= _MOST_KINDS  # one kind says nothing more
        sections.append(Section(layers(result) if several else [], 5))
    if result.devices:
        sections.append(Section(devices(result), 3))
    if result.budget is not None:
        sections.append(Section(short_memory(result, result.budget), 1))
    if any(one.low_bytes for one in result.host) and not result.devices:
        sections.append(Section([host_line(result)], close=True))
    sections += _beside(shown)
    sections.append(Section(_basis(result, counted=counted)))
    # What no figure has comes before what is said of figures, and why nothing was counted before all.
    first = left_out(plan)
    notes = remarks(plan)[len(first) :] if plan is not None else ()
    own = but_unverified(result.warnings)
    why = () if counted else tuple(text for text in own if text.startswith(NO_POOL))
    said = (*why, *_idle(found), *first)
    warnings = tuple(dict.fromkeys((*said, *own, *notes)))
    most = _MOST_WARNINGS if counted else len(warnings)
    return [*sections, warning_section(warnings, most, 6, close=True, least=len(said))]


def _beside(shown: Shown) -> list[Section]:
    """The model's own length, and what one change would hold; ways have both."""
    if shown.result.ways:
        return []
    return [Section(own_length_line(shown.found, shown.longest), 4), Section(gain_lines(shown.gains), 7)]


def _idle(found: Answer) -> tuple[str, ...]:
    """GPUs that were named and do nothing."""
    deployment = found.deployment
    if not deployment.idle_gpus:
        return ()
    each = deployment.gpus_per_replica
    return (f"{count(deployment.idle_gpus, 'GPU')} of {deployment.gpus} idle: a replica takes {each}",)


def whole_screen(
    shown: Shown, *, typed: Sequence[str], rules_file: str, plan: Plan | None = None, step: str = ""
) -> Screen:
    """Everything: also layers, blocks, the log's words, every setting and source."""
    found, result = shown.found, shown.result
    sections = [Section(size_sentence(found, shown.fixes))]
    sections.append(Section(figures(result) if result.sized else []))
    if result.per_gpu.kv_bytes_per_request or result.total.kv_bytes_per_request or result.devices:
        sections.append(Section(layers(result)))
    sections.append(Section(devices(result) if result.devices else []))
    sections.append(Section(host_table(result) if result.host else []))
    if result.budget is not None:
        sections.append(Section(memory_lines(result, result.budget)))
    lengths = shown.rungs or (() if result.budget is None else _rungs(found))
    sections.append(Section(_table(lengths, result) if lengths else []))
    sections += [Section(ways_table(result))] if result.ways else _beside(shown)
    if result.pool is not None:
        sections.append(Section(pool_lines(result, result.pool)))
    elif found.likely is not None and found.likely.refusal is None and result.budget is None:
        sections.append(Section(plain_memory(result, found.likely)))
    sections.append(Section(warning_lines((*_idle(found), *result.warnings))))
    last = source_lines(result, rules_file)
    if plan is not None:
        last += wrapped(_of_plan(plan), indent=1, style="dim", first="plan:   ")
        for note in remarks(plan):
            last += wrapped(note, indent=1, first="note:   ")
    return joined([*sections, Section([*last, *_next(typed, plan, step, whole=True)])])


def _table(lengths: Sequence[Rung], result: SizeResult) -> Screen:
    return rung_table(lengths, result.request.tokens, len(lengths), limit_flag(result))


def _rungs(found: Answer) -> Sequence[Rung]:
    return rungs(found, usual_lengths(found)) if found.result.refusal is None and found.likely else ()


def _basis(result: SizeResult, *, counted: bool) -> Screen:
    """Whose rules; where requests are counted also what one takes."""
    if counted and result.sized:
        card = unverified_words(result.warnings).removeprefix(", ")
        words = f"{rules_words(result)}: {one_request(result)}{f'; card {card}' if card else ''}"
        return wrapped(words, indent=1, style="dim")
    return basis_line(result, marks=True)


def _next(typed: Sequence[str], plan: Plan | None, step: str, *, whole: bool) -> Screen:
    """The command to type next, and further ones."""
    overlay = () if plan is None or plan.environment is None else ("--env", plan.environment)
    why = f"; why: {command('kvplan', 'explain', *typed, *overlay)}" if STDIN not in typed else ""
    more = ["--engine all"] if whole and plan is None else [] if whole else ["-v"]
    more += ["--show", "--json"]
    return [*(next_line(step) if step else []), *more_line(f"{', '.join(more)}{why}")]


def _of_plan(plan: Plan) -> str:
    """``chat (prod): 2 replicas on 4 GPUs``: which plan was sized, and by which pool."""
    where = f" ({plan.environment})" if plan.environment is not None else ""
    head = f"{plan.name}{where}: {count(plan.replicas, 'replica')} on {count(plan.gpus, 'GPU')}"
    return f"{head}; counted with the safe pool, as it requires" if plan.require.pool == "safe" else head
