"""``kvplan explain``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli.answer import Answer
from kvplan.cli.app import single, with_options
from kvplan.cli.ask import check_color, question, rules_file
from kvplan.cli.common import COMPLETE, Color, Debug, Json, complete_models
from kvplan.cli.options import OPTIONS
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.questions import ask

EXAMPLES = """\
\b
Examples:
  kvplan explain llama-3.1-8b
  kvplan explain deepseek-v3 --tokens 32k --tp 8
  kvplan explain ./config.json --engine transformers --json
"""


@with_options(OPTIONS, COMPLETE)
def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_models, show_default=False)],
    json: Json = False,
    color: Color = "auto",
    debug: Debug = False,
    **given: Any,
) -> Answer:
    """Why: every term that a layer stores, its factors, and the config keys that they came from."""
    del debug  # read by the runner, which writes errors
    check_color(color)
    asked = question([model], given)
    if len(asked.choices) * len(asked.variants) > 1:
        raise KvplanError("bad-usage", "explain answers one question: one engine, length, number and dtype")
    loaded, choice = asked.models[0], asked.choices[0]
    result = ask(loaded, choice, asked.variants[0])
    code = EXIT_OK if result.ok else EXIT_NO
    from kvplan.report.explain import explain_dump, explain_screen

    if json:
        return Answer(data=explain_dump(loaded, result), code=code)
    return Answer(explain_screen(loaded, result, rules_file=rules_file(choice)), code=code)


def commands() -> dict[str, Any]:
    return {"explain": single(explain, "explain", EXAMPLES)}
