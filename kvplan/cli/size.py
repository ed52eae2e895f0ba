"""``kvplan size``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli.answer import Answer
from kvplan.cli.app import single, with_options
from kvplan.cli.ask import Question, check_color, question, rules_file
from kvplan.cli.common import COMPLETE, OUTPUT, Color, Debug, Json, complete_models
from kvplan.cli.options import OPTIONS
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.questions import Compared, ask, compare, ladder, verdict
from kvplan.results import SCHEMA_VERSION

EXAMPLES = """\
\b
Examples:
  kvplan size llama-3.1-8b                      one request of full length
  kvplan size llama-3.1-8b -t 4k,32k -n 1,8,32  a grid
  kvplan size qwen3-32b --kv-cache-memory 60GiB --ladder
  kvplan size qwen3-32b --gpu h200 --tp 2 --kv-cache-dtype fp8
  kvplan size deepseek-v3 --compare-dtypes
  kvplan size gpt-oss-20b gemma-3-27b qwen3-32b --tokens 128k
  kvplan size ./config.json --engine all
  kvplan size hf:Qwen/Qwen3-8B --json
  cat config.json | kvplan size - --tokens 4096

\b
MODEL is the name of a card (kvplan models), a config.json, a directory that
has one, a card or GGUF file, hf:ORG/NAME, or - for a config on stdin.
Every option can also come from KVPLAN_<LONG_NAME> (KVPLAN_ENGINE=vllm@0.32) or
from ~/.config/kvplan/config.yaml (engine: vllm@0.32); flags count first.
"""


@with_options(OPTIONS, COMPLETE)
def size(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", autocompletion=complete_models, show_default=False)],
    compare_dtypes: Annotated[
        bool, typer.Option("--compare-dtypes", help="One line for each KV dtype.", rich_help_panel="The question")
    ] = False,
    ladder_: Annotated[
        bool,
        typer.Option(
            "--ladder",
            help="With --kv-cache-memory: how many requests fit at each length, and how long they may be.",
            rich_help_panel="The question",
        ),
    ] = False,
    json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
    **given: Any,
) -> Answer:
    """How much KV cache (and recurrent state) a model takes, exactly as the engine holds it."""
    del debug  # read by the runner, which writes errors
    check_color(color)
    asked = question(models, given, compare_dtypes=compare_dtypes)
    if ladder_:
        return _ladder(asked, json)
    if len(asked.models) * len(asked.choices) * len(asked.variants) == 1:
        return _one(asked, json)
    return _several(asked, json)


def _one(asked: Question, json: bool) -> Answer:
    model, choice, settings = asked.models[0], asked.choices[0], asked.variants[0]
    result = ask(model, choice, settings)
    found = verdict(model, choice, settings, result)
    code = EXIT_OK if found is None or found.fits else EXIT_NO
    if json:
        return Answer(data=result.model_dump(), code=code)
    from kvplan.report.size import size_screen

    screen = size_screen(result, found, rules_file=rules_file(choice), memory=settings.kv_cache_memory)
    return Answer(screen, code=code)


def _several(asked: Question, json: bool) -> Answer:
    rows = compare(asked.models, asked.choices, asked.variants, keep_errors=asked.forgiving)
    code = EXIT_OK if any(_good(row) for row in rows) else EXIT_NO
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, "results": [_dump(row) for row in rows]}, code=code)
    from kvplan.report.compare import comparison_screen, grid_screen

    dtypes = {settings.kv_cache_dtype for settings in asked.variants}
    if len(asked.models) == len(asked.choices) == len(dtypes) == 1:
        return Answer(grid_screen(rows, rules_file=rules_file(asked.choices[0])), code=code)
    return Answer(comparison_screen(rows), code=code)


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


def _ladder(asked: Question, json: bool) -> Answer:
    from dataclasses import replace

    base = replace(asked.variants[0], tokens=None, requests=1)
    if len(asked.models) * len(asked.choices) > 1 or any(
        replace(settings, tokens=None, requests=1) != base for settings in asked.variants
    ):
        raise KvplanError("bad-usage", "--ladder takes one model, one engine and one KV dtype")
    memory = base.kv_cache_memory
    if memory is None:
        raise KvplanError("bad-usage", "--ladder needs to know the memory", help="add --kv-cache-memory 16GiB")
    found = ladder(asked.models[0], asked.choices[0], base, asked.lengths, asked.counts)
    code = EXIT_OK if any(rung.max_requests for rung in found.rungs) else EXIT_NO
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "max_model_len": found.max_model_len,
            "rungs": [{name: getattr(rung, name) for name in rung.__slots__} for rung in found.rungs],
            "longest": [{"requests": number, "tokens": tokens} for number, tokens in found.longest],
            "result": found.result.model_dump(),
        }
        return Answer(data=data, code=code)
    from kvplan.report.compare import ladder_screen

    return Answer(ladder_screen(found, memory, rules_file=rules_file(asked.choices[0])), code=code)


def commands() -> dict[str, Any]:
    return {"size": single(size, "size", EXAMPLES)}


__all__ = ["OUTPUT", "commands", "size"]
