"""``kvplan size``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvplan.api.helps import with_ways_out
from kvplan.cli.answer import Answer
from kvplan.cli.ask import Question, check_color, question, rules_file
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import OPTIONS, PLAN_CHOICE
from kvplan.cli.typed import typed_words, words_to_plan
from kvplan.engines.budget import divides
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.questions import Compared, ask, compare, ladder, memory_of, verdict
from kvplan.questions.fixes import suggested_fixes
from kvplan.report.layout import Screen
from kvplan.results import SCHEMA_VERSION, SizeResult


def run(words: list[str], given: Given) -> Answer:
    """One answer, a comparison, a grid or a ladder, by how much was asked for."""
    check_color(given)
    if any("," in (text_of(given, name) or "") for name in ("gpu", "tensor_parallel_size")):
        from kvplan.cli.capacity import run as run_table

        return run_table(words, given)
    if ":" in (text_of(given, "tokens") or ""):
        from kvplan.cli.mixed import run as run_mix

        return run_mix(words, given)
    asked = question(words, given, compare_dtypes=is_given(given, "compare_dtypes"))
    json = is_given(given, "json")
    if is_given(given, "ladder"):
        return _ladder(asked, json, is_given(given, "verbose"))
    if is_given(given, "least"):
        from kvplan.cli.least import run as run_least

        return run_least(asked, json=json)
    if len(asked.models) * len(asked.choices) * len(asked.variants) == 1:
        return _one(asked, given, json)
    return _several(asked, given, json)


def _one(asked: Question, given: Given, json: bool) -> Answer:
    model, choice, settings = asked.models[0], asked.choices[0], asked.variants[0]
    result = with_ways_out(model, choice, settings, ask(model, choice, settings))
    found = verdict(model, choice, settings, result)
    code = EXIT_OK if found is None or found.fits else EXIT_NO
    if found is None and _asks(asked):
        code = EXIT_CANNOT_ANSWER
    if json:
        return Answer(data=result.model_dump(), code=code)
    memory = memory_of(settings, result)
    ways = None
    if memory is not None and found is not None and not found.fits:
        ways = suggested_fixes(model, choice, settings, result)
    from kvplan.api.fits import fits_of
    from kvplan.report.size import size_screen, whole_screen

    told: dict[str, Any] = {
        "typed": (asked.names[0], *typed_words(given, PLAN_CHOICE, but=("environment",))),
        "ways": ways,
        "memory": memory,
        "fits": None if result.budget is None else fits_of(model, choice, settings, result),
        "plan": asked.plan,
        "step": _step(asked, given, result),
    }
    if is_given(given, "verbose"):
        return Answer(whole_screen(result, found, rules_file=rules_file(choice), **told), code=code)
    return Answer(size_screen(result, found, **told), code=code)


TOO_LONG = "request-too-long"
"""The refusal that more GPUs do not mend."""


def _step(asked: Question, given: Given, result: SizeResult) -> str:
    """The command that comes next: check a plan, plan for that GPU, or name a GPU; none where the refusal's
    ways out come first."""
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
        return shlex.join(["kvplan", "size", asked.names[0], *words, "--gpu", "h100"])
    if result.budget is None or settings.gpu.slug.startswith("unlisted-"):
        return ""
    carried = words_to_plan(given, but=("gpu",))
    if carried is None:
        return ""
    return shlex.join(["kvplan", "plan", asked.names[0], *carried, "--gpu", settings.gpu.slug])


def _several(asked: Question, given: Given, json: bool) -> Answer:
    asks = _asks(asked)
    rows = compare(asked.models, asked.choices, asked.variants, keep_errors=asked.forgiving)
    rows = [
        row
        if row.result is None
        else row._replace(result=with_ways_out(row.model, row.choice, row.settings, row.result))
        for row in rows
    ]
    code = EXIT_OK if any(_good(row) for row in rows) else EXIT_NO
    if asks and not any(row.max_requests is not None and _good(row) for row in rows):
        unjudged = any(row.max_requests is None and _good(row) for row in rows)
        code = EXIT_CANNOT_ANSWER if unjudged else EXIT_NO
    if json:
        return Answer(
            data={"schema_version": SCHEMA_VERSION, "results": [_dump(row) for row in rows]}, code=code
        )
    from kvplan.report.notes import none_holds

    no = none_holds({row.settings.requests for row in rows}) if code == EXIT_NO else []
    return Answer([*no, *_table(asked, rows, given)], code=code)


def _table(asked: Question, rows: Sequence[Compared], given: Given) -> Screen:
    """What the rows differ in chooses the table: lengths on a GPU, lengths by number of requests, or one line
    an answer."""
    from kvplan.report.compare import comparison_screen
    from kvplan.report.grids import fit_grid_screen, grid_screen

    dtypes = {settings.kv_cache_dtype for settings in asked.variants}
    if not len(asked.models) == len(asked.choices) == len(dtypes) == 1:
        return comparison_screen(rows)
    rules = rules_file(asked.choices[0]) if is_given(given, "verbose") else None
    budget = None if rows[0].result is None else rows[0].result.budget
    if budget is None or len({row.settings.requests for row in rows}) > 1:
        unnamed = all(row.settings.gpu is None for row in rows) and asked.plan is None
        refused = any(row.result is not None and row.result.refusal is not None for row in rows)
        first = rows[0].result
        step = _step(asked, given, first) if unnamed and not refused and first is not None else ""
        return grid_screen(rows, rules_file=rules, step=step)
    from kvplan.api.fits import fits_at

    fitting = fits_at(asked.models[0], asked.choices[0], asked.variants, budget)
    return fit_grid_screen(rows, fitting, rules_file=rules)


def _asks(asked: Question) -> bool:
    """Whether it was asked if requests fit a GPU: a script takes an answer without a pool for yes."""
    return all(settings.gpu is not None for settings in asked.variants)


def _good(row: Compared) -> bool:
    if row.result is None or row.result.refusal is not None:
        return False
    return row.max_requests is None or row.max_requests >= row.settings.requests


def _dump(row: Compared) -> dict[str, Any]:
    if row.result is not None:
        return row.result.model_dump()
    assert row.error is not None
    return {
        "model": {"id": row.model.id, "source": row.model.source},
        "engine": {"name": row.choice.engine.name, "version": row.choice.version},
        "settings": {"kv_cache_dtype": row.settings.kv_cache_dtype},
        "error": row.error.as_dict(),
    }


def _ladder(asked: Question, json: bool, whole: bool) -> Answer:
    base = replace(asked.variants[0], tokens=None, requests=1)
    same = all(replace(settings, tokens=None, requests=1) == base for settings in asked.variants)
    if len(asked.models) * len(asked.choices) > 1 or not same:
        raise KvplanError("bad-usage", "--ladder takes one model, one engine and one KV dtype")
    model, choice = asked.models[0], asked.choices[0]
    memory = memory_of(base, ask(model, choice, base))
    if memory is None:
        raise KvplanError(
            "bad-usage",
            "--ladder needs to know the memory",
            help="add --kv-cache-memory 16GiB, or --gpu h100",
        )
    found = ladder(model, choice, base, asked.lengths, asked.counts)
    code = EXIT_OK if any(rung.max_requests for rung in found.rungs) else EXIT_NO
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "max_model_len": found.max_model_len,
            "rungs": [rung._asdict() for rung in found.rungs],
            "longest": [{"requests": number, "tokens": tokens} for number, tokens in found.longest],
            "result": found.result.model_dump(),
        }
        return Answer(data=data, code=code)
    from kvplan.report.compare import ladder_screen

    rules = rules_file(asked.choices[0]) if whole else None
    return Answer(ladder_screen(found, memory, rules_file=rules), code=code)
