"""``kvplan schema``."""

from __future__ import annotations

from importlib import import_module

from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given
from kvplan.cli.terminal import Answer
from kvplan.errors import KvplanError, did_you_mean

FILES = {
    "card": ("kvplan.files.cards.find", "card_json_schema"),
    "gpu": ("kvplan.files.gpus.schema", "gpu_spec_schema"),
    "plan": ("kvplan.files.plans.schema", "plan_schema"),
    "fleet": ("kvplan.files.plans.fleet", "fleet_schema"),
    "prices": ("kvplan.files.plans.prices", "prices_schema"),
    "receipt": ("kvplan.files.plans.receipts", "receipt_schema"),
}
"""Files that kvplan reads: name of the schema → module and function that make it."""


def names() -> tuple[str, ...]:
    """Of all schemas: answers, then files."""
    from kvplan.report.schema import ANSWERS

    return (*ANSWERS, *FILES)


def schema_named(name: str) -> dict[str, object]:
    """Raises KeyError."""
    if name in FILES:
        module, function = FILES[name]
        made: dict[str, object] = getattr(import_module(module), function)()
        return made
    from kvplan.report.schema import answer_schema

    return answer_schema(name)


def run(words: list[str], given: Given) -> Answer:
    """The schema of the given name; of ``size --json`` without one."""
    check_color(given)
    name = words[0] if words else "size"
    if name not in names():
        near = did_you_mean(name, names())
        raise KvplanError(
            "unknown-schema",
            f"there is no schema {name!r}",
            help=f"did you mean {near}?" if near else ", ".join(names()),
        )
    return Answer(data=schema_named(name))
