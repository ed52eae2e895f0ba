"""The screen of ``kvplan size``: the answer in a sentence, one table, the memory, what to type next.

At most 20 lines; `whole_screen` has all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvplan.api.fits import Fits
from kvplan.plans.serve import left_out, remarks
from kvplan.questions import Verdict
from kvplan.questions.fixes import SuggestedFixes
from kvplan.report.budget import fit_table, fits_lines, limits, memory_lines, short_memory
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
from kvplan.report.size_sentence import size_sentence
from kvplan.report.size_tables import (
    devices,
    figures,
    host_line,
    host_table,
    layers,
    plain_memory,
    pool_lines,
)
from kvplan.report.words import command, count, gpus_of_request, of_bytes, size_words
from kvplan.results import SizeResult

if TYPE_CHECKING:
    from kvplan.plans.plan import Plan

MOST_LINES = 20
_MOST_WARNINGS, _MOST_RUNGS, _MOST_KINDS = 3, 4, 6


def size_screen(
    result: SizeResult,
    verdict: Verdict | None,
    *,
    typed: Sequence[str],
    memory: int | None = None,
    ways: SuggestedFixes | None = None,
    fits: Fits | None = None,
    plan: Plan | None = None,
    step: str = "",
) -> Screen:
    """The answer on one screen.

    verdict: None where no memory was given and the engine starts. typed: the model as the user wrote it.
    memory: bytes per GPU. ways: what would make it fit, where it does not. fits: what a GPU's pool holds.
    plan: whose pool this is, where a plan was sized. step: the command that comes next.
    """
    sections = answer_sections(result, verdict, memory=memory, ways=ways, fits=fits, plan=plan)
    sections.append(Section(_next(typed, plan, step, whole=False, ladder=memory is not None), close=True))
    return within(sections, MOST_LINES)


def answer_screen(result: SizeResult) -> Screen:
    """The answer alone, as the library shows it."""
    asked = getattr(result, "asked", None)
    if asked is None:
        refused = None if result.ok else Verdict(False, 0, False)
        return within(answer_sections(result, refused), MOST_LINES)
    sections = answer_sections(
        result,
        asked.verdict(result),
        memory=asked.memory(result),
        ways=asked.ways(result),
        fits=asked.fits(result),
    )
    return within(sections, MOST_LINES)


def answer_sections(
    result: SizeResult,
    verdict: Verdict | None,
    *,
    memory: int | None = None,
    ways: SuggestedFixes | None = None,
    fits: Fits | None = None,
    plan: Plan | None = None,
) -> list[Section]:
    """The parts of `size_screen`, but for what comes next."""
    head = size_sentence(result, verdict, memory=memory, ways=ways, fits=fits)
    if plan is not None:
        head += wrapped(_of_plan(plan), style="dim")
    sections = [Section(head)]
    if fits is not None and fits.rungs:
        asked = result.request.tokens
        fewer = tuple(fit_table(fits, asked, number) for number in range(_MOST_RUNGS - 1, 1, -1))
        sections.append(Section(fit_table(fits, asked, _MOST_RUNGS), 2, fewer, shrinks=7))
    elif result.sized:
        sections.append(Section(figures(result), 2, (wrapped(_one_request(result), indent=1),)))
        sections.append(Section(_kinds(result), 3))
    if fits is not None:
        sections.append(Section(limits(fits), 4, close=True))
    if result.devices:
        sections.append(Section(devices(result), 3))
    if result.budget is not None:
        sections.append(Section(short_memory(result, result.budget), 1))
    if any(one.low_bytes for one in result.host) and not result.devices:
        sections.append(Section([host_line(result)], close=True))
    counted = fits is not None and bool(fits.rungs)
    sections.append(Section(_basis(result, counted=counted)))
    # What no figure has comes before what is said of figures.
    first = left_out(plan)
    notes = remarks(plan)[len(first) :] if plan is not None else ()
    warnings = (*first, *but_unverified(result.warnings), *notes)
    # Where nothing was counted a warning says why, and what would do.
    most = _MOST_WARNINGS if counted else len(warnings)
    return [*sections, warning_section(warnings, most, 6, close=True)]


def whole_screen(
    result: SizeResult,
    verdict: Verdict | None,
    *,
    typed: Sequence[str],
    rules_file: str,
    memory: int | None = None,
    ways: SuggestedFixes | None = None,
    fits: Fits | None = None,
    plan: Plan | None = None,
    step: str = "",
) -> Screen:
    """Everything: also layers, blocks, the log's words, every setting and source."""
    sections = [Section(size_sentence(result, verdict, memory=memory, ways=ways, fits=fits))]
    sections.append(Section(figures(result) if result.sized else []))
    if result.per_gpu.kv_bytes_per_request or result.total.kv_bytes_per_request or result.devices:
        sections.append(Section(layers(result)))
    sections.append(Section(devices(result) if result.devices else []))
    sections.append(Section(host_table(result) if result.host else []))
    if result.budget is not None:
        sections.append(Section(memory_lines(result, result.budget)))
    sections.append(Section([] if fits is None else fits_lines(result, fits)))
    if result.pool is not None:
        sections.append(Section(pool_lines(result, result.pool)))
    elif memory is not None and verdict is not None and verdict.engine_starts:
        sections.append(Section(plain_memory(result, verdict, memory)))
    sections.append(Section(warning_lines(result.warnings)))
    last = source_lines(result, rules_file)
    if plan is not None:
        last += wrapped(_of_plan(plan), indent=1, style="dim", first="plan:   ")
        for note in remarks(plan):
            last += wrapped(note, indent=1, first="note:   ")
    return joined(
        [*sections, Section([*last, *_next(typed, plan, step, whole=True, ladder=memory is not None)])]
    )


def _one_request(result: SizeResult) -> str:
    """``one request takes 0.37 GiB a GPU (2.94 GiB over 8), 48,128 B a token``: exact, as terms are."""
    gpu, gpus = result.per_gpu, gpus_of_request(result)
    amount = size_words(gpu.kv_bytes_per_request)
    if gpus > 1:
        amount += f" a GPU ({size_words(result.total.kv_bytes_per_request)} over {gpus})"
    fixed = f" + {size_words(gpu.fixed_bytes_per_request)}" if gpu.fixed_bytes_per_request else ""
    return f"one request takes {amount}, {of_bytes(gpu.bytes_per_token)} a token{fixed}"


def _kinds(result: SizeResult) -> Screen:
    """Where the bytes of several kinds of layers lie; one kind says nothing more."""
    return layers(result) if 1 < len(result.layers) <= _MOST_KINDS and result.sized else []


def _basis(result: SizeResult, *, counted: bool) -> Screen:
    """Whose rules; beside a table of requests also what one takes."""
    if counted and result.sized:
        card = unverified_words(result.warnings).removeprefix(", ")
        words = f"{rules_words(result)}: {_one_request(result)}{f'; card {card}' if card else ''}"
        return wrapped(words, indent=1, style="dim")
    return basis_line(result, marks=True)


def _next(typed: Sequence[str], plan: Plan | None, step: str, *, whole: bool, ladder: bool) -> Screen:
    """What to type next, and what else there is."""
    overlay = () if plan is None or plan.environment is None else ("--env", plan.environment)
    why = f"; why: {command('kvplan', 'explain', *typed, *overlay)}" if STDIN not in typed else ""
    more = [] if whole else ["-v"]
    more += ["--json", *(["--ladder"] if ladder else [])]
    more += ["--engine all", "--compare-dtypes"] if whole and plan is None else []
    return [*(next_line(step) if step else []), *more_line(f"{', '.join(more)}{why}")]


def _of_plan(plan: Plan) -> str:
    """``chat (prod), 4 GPUs: 2 replicas; this is one pool of 2``: what of the plan was sized."""
    from kvplan.plans.question import pools_of

    where = f" ({plan.environment})" if plan.environment is not None else ""
    head = f"{plan.name}{where}, {count(plan.gpus, 'GPU')}"
    if (pools := pools_of(plan)) != 1:
        head += f": {count(plan.replicas, 'replica')}; this is one pool of {pools:,}"
    return f"{head}; counted with the safe pool, as it requires" if plan.require.pool == "safe" else head
