"""``kvplan size``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvplan.api.suggestions import with_suggestions, with_ways
from kvplan.cli.ask import Typed, check_color, rules_file, typed
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import (
    COMPARISONS,
    OPTIONS,
    PLAN_CHOICE,
    SHOW_FORMATS,
    SHOW_LEAST,
    SHOW_LENGTHS,
    values_of,
)
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import typed_words, words_to_plan
from kvplan.deployment.answer import Answer as Found
from kvplan.deployment.answer import answer
from kvplan.engines.budget import divides
from kvplan.engines.traits import traits_of
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.later import later
from kvplan.record import replace
from kvplan.report.layout import Screen
from kvplan.results import SCHEMA_VERSION

if TYPE_CHECKING:
    from kvplan.deployment import rows as several
else:
    several = later("kvplan.deployment", "rows")


def run(words: list[str], given: Given) -> Answer:
    """One answer, or several side by side: rows, a table of machines, a mix, or what ``--show`` names."""
    check_color(given)
    if any("," in (text_of(given, name) or "") for name in ("gpu", "tensor_parallel_size")):
        from kvplan.cli.capacity import run as run_table

        return run_table(words, given)
    if ":" in (text_of(given, "tokens") or ""):
        from kvplan.cli.mixed import run as run_mix

        return run_mix(words, given)
    show = text_of(given, "show")
    if show is not None:
        show = values_of(COMPARISONS[0], show, f"--show {show}")
    asked = typed(words, given, compare_dtypes=show == SHOW_FORMATS)
    if show == SHOW_LENGTHS:
        return _ladder(asked, given)
    if show == SHOW_LEAST:
        return _least(asked, given)
    return _one(asked, given) if len(asked) == 1 else _several(asked, given)


def code_of(found: Found, *, asks: bool) -> int:
    """The exit code of an answer. asks: whether it was asked if requests fit a GPU; a script takes an answer
    without a pool for yes."""
    if found.holds is None:
        return EXIT_CANNOT_ANSWER if asks else EXIT_OK
    return EXIT_OK if found.holds else EXIT_NO


def _one(asked: Typed, given: Given) -> Answer:
    found = with_ways(with_suggestions(answer(asked.first)))
    code = code_of(found, asks=_asks(asked))
    if is_given(given, "json"):
        from kvplan.plans.serve import left_out

        said = () if asked.plan is None else left_out(asked.plan)
        result = found.result if not said else found.result.with_warnings(said)
        return Answer(data=result.model_dump(), code=code)
    from kvplan.report.size import Shown, size_screen, whole_screen

    shown = Shown(found, length_asked=asked.variants[0].tokens is not None)
    told: dict[str, Any] = {
        "typed": (asked.names[0], *typed_words(given, PLAN_CHOICE, but=("environment",))),
        "plan": asked.plan,
        "step": _step(asked, given, found),
    }
    if is_given(given, "verbose"):
        return Answer(whole_screen(shown, rules_file=rules_file(asked.choices[0]), **told), code=code)
    return Answer(size_screen(shown, **told), code=code)


TOO_LONG = "request-too-long"
"""The refusal that more GPUs do not mend."""


def _step(asked: Typed, given: Given, found: Found) -> str:
    """The command that comes next: check a plan, plan for that GPU, or name a GPU; none where the suggestions
    of a refusal come first."""
    result = found.result
    if result.refusal is not None and (result.budget is None or result.refusal.code == TOO_LONG):
        return ""
    if asked.plan is not None:
        if text_of(given, "engine") is not None:
            return ""  # check takes the release that the image says
        overlay = () if asked.plan.environment is None else ("--env", asked.plan.environment)
        gpu = text_of(given, "gpu")  # of what starts a server: a plan file says its own
        return shlex.join(["kvplan", "check", asked.names[0], *overlay, *(("--gpu", gpu) if gpu else ())])
    settings, engine = asked.variants[0], asked.choices[0].engine.name
    if settings.kv_cache_memory is not None or not divides(engine, settings):
        return ""
    if settings.gpu is None:
        words = typed_words(given, OPTIONS)
        return shlex.join(["kvplan", "size", asked.names[0], *words, "--gpu", traits_of(engine).named_gpu])
    if result.budget is None or settings.gpu.slug.startswith("unlisted-"):
        return ""
    carried = words_to_plan(given, but=("gpu",))
    if carried is None:
        return ""
    return shlex.join(["kvplan", "plan", asked.names[0], *carried, "--gpu", settings.gpu.slug])


def _several(asked: Typed, given: Given) -> Answer:
    rows = several.side_by_side(asked.questions(), keep_errors=asked.forgiving)
    rows = [row if row.found is None else row._replace(found=with_suggestions(row.found)) for row in rows]
    code = _code(asked, rows)
    if is_given(given, "json"):
        return Answer(
            data={"schema_version": SCHEMA_VERSION, "results": [_dump(row) for row in rows]}, code=code
        )
    from kvplan.report.notes import none_holds

    wanted = {row.question.settings.requests for row in rows}
    no = none_holds(wanted) if code == EXIT_NO else []
    return Answer([*no, *_table(asked, rows, given)], code=code)


def _code(asked: Typed, rows: Sequence[several.Row]) -> int:
    """Answered yes where one holds the requests, or one is sized where nobody asked whether it holds them."""
    held = [row.found.holds for row in rows if row.found is not None]
    sized = sum(row.result is not None and row.result.refusal is None for row in rows)
    counted = sum(one is not None for one in held)
    if any(held) or (sized and not counted and not _asks(asked)):
        return EXIT_OK
    return EXIT_CANNOT_ANSWER if _asks(asked) and counted < sized else EXIT_NO


def _table(asked: Typed, rows: Sequence[several.Row], given: Given) -> Screen:
    """Choose the table by what differs between rows: lengths on a GPU, lengths by number of requests, or one
    line an answer."""
    from kvplan.report.compare import comparison_screen
    from kvplan.report.grids import fit_grid_screen, grid_screen

    dtypes = {settings.kv_cache_dtype for settings in asked.variants}
    if not len(asked.models) == len(asked.choices) == len(dtypes) == 1:
        return comparison_screen(rows)
    rules = rules_file(asked.choices[0]) if is_given(given, "verbose") else None
    first = rows[0].found
    budget = None if first is None else first.result.budget
    if budget is None or len({row.question.settings.requests for row in rows}) > 1:
        unnamed = all(row.question.settings.gpu is None for row in rows) and asked.plan is None
        refused = any(row.result is not None and row.result.refusal is not None for row in rows)
        step = _step(asked, given, first) if unnamed and not refused and first is not None else ""
        return grid_screen(rows, rules_file=rules, step=step)
    return fit_grid_screen(rows, rules_file=rules)


def _asks(asked: Typed) -> bool:
    """Whether it was asked if requests fit a GPU."""
    return all(settings.gpu is not None for settings in asked.variants)


def _dump(row: several.Row) -> dict[str, object]:
    if row.result is not None:
        return row.result.model_dump()
    assert row.error is not None
    question = row.question
    return {
        "model": {"id": question.model.id, "source": question.model.source},
        "engine": {"name": question.choice.engine.name, "version": question.choice.version},
        "settings": {"kv_cache_dtype": question.settings.kv_cache_dtype},
        "error": row.error.as_dict(),
    }


def _alone(asked: Typed, what: str) -> None:
    """Raises KvplanError(bad-usage) where a view takes one deployment and several were typed."""
    base = replace(asked.variants[0], tokens=None, requests=1)
    same = all(replace(settings, tokens=None, requests=1) == base for settings in asked.variants)
    if len(asked.models) * len(asked.choices) > 1 or not same:
        raise KvplanError("bad-usage", f"--show {what} takes one model, one engine and one KV dtype")


def _ladder(asked: Typed, given: Given) -> Answer:
    from kvplan.deployment.lengths import ladder

    _alone(asked, SHOW_LENGTHS)
    question = replace(asked.first, lengths=())
    settings = question.settings
    if settings.kv_cache_memory is None and settings.gpu is None:
        raise KvplanError(
            "bad-usage",
            f"--show {SHOW_LENGTHS} needs to know the memory",
            help="add --kv-cache-memory 16GiB, or --gpu h100",
        )
    found = ladder(question, asked.lengths, asked.counts)
    found = found._replace(found=with_suggestions(found.found))
    code = EXIT_OK if any(rung.likely for rung in found.rungs) else EXIT_NO
    if is_given(given, "json"):
        data = {
            "schema_version": SCHEMA_VERSION,
            "max_model_len": found.max_model_len,
            "rungs": [rung._asdict() for rung in found.rungs],
            "longest": [{"requests": number, "tokens": tokens} for number, tokens in found.longest],
            "result": found.found.result.model_dump(),
        }
        return Answer(data=data, code=code)
    from kvplan.report.compare import ladder_screen

    rules = rules_file(asked.choices[0]) if is_given(given, "verbose") else None
    return Answer(ladder_screen(found, rules_file=rules), code=code)


def _least(asked: Typed, given: Given) -> Answer:
    """Exit code 1: there is less memory than the requests need."""
    from kvplan.deployment.least import least
    from kvplan.deployment.resolve import resolve

    if len(asked) > 1:
        raise KvplanError("bad-usage", f"--show {SHOW_LEAST} takes one model, engine, length and number")
    deployment = resolve(asked.first)
    found = least(deployment)
    enough = found.memory is not None and (found.room is None or found.memory <= found.room)
    code = EXIT_OK if enough else EXIT_NO
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, **found.data()}, code=code)
    from kvplan.report.least import least_screen

    return Answer(least_screen(found, deployment), code=code)
