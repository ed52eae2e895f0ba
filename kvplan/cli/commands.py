"""The commands as data: both parsers, help and completion read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from kvplan.cli.options import COMMON, Option
from kvplan.cli.terminal import Answer
from kvplan.named import NamedTuple

Given = Mapping[str, "str | bool | None"]
Runner = Callable[[list[str], Given], Answer]


class Argument(NamedTuple):
    """The positional argument of a command: how it is shown, how many are taken, what completes it."""

    metavar: str
    least: int = 0
    most: int | None = None
    complete: str | None = None


class Command(NamedTuple):
    """One command.

    run: ``module:function`` taking the positional words and the options as given. own: where its options
    stand, beside the common ones, as ``module:NAME``; below: the text below its help, likewise. Both are
    looked up when the command is asked for.
    """

    name: str
    summary: str
    run: str
    argument: Argument | None
    own: str
    below: str

    @property
    def options(self) -> tuple[Option, ...]:
        """Everything that it takes, in the order of its help."""
        return _options(self.own)

    @property
    def epilog(self) -> str:
        text: str = _stands(self.below)
        return text

    def call(self, words: list[str], given: Given) -> Answer:
        """Import the command's module and run it."""
        module, _, function = self.run.partition(":")
        runner: Runner = getattr(import_module(module), function)
        return runner(words, given)


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "size",
            "How much memory requests take, and how many fit on a GPU.",
            "kvplan.cli.size:run",
            Argument("MODEL...|PLAN", least=1, complete="models"),
            "options:COMPARISONS options:OPTIONS options:SET options:PLAN_CHOICE options:VERBOSE",
            "epilogs:SIZE",
        ),
        Command(
            "plan",
            "Choose GPUs, how many, and the engine's settings for a load.",
            "kvplan.cli.plan:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            "plan_options:PLANNED plan_options:SHARED options:SET options:PLAN_CHOICE options:VERBOSE",
            "plan_options:EPILOG",
        ),
        Command(
            "fits",
            "Which models fit on a GPU, and with how long a context.",
            "kvplan.cli.fits:run",
            Argument("[FILTER]", most=1),
            "fits_options:FITTED",
            "fits_options:EPILOG",
        ),
        Command(
            "check",
            "Check plan files, commands and manifests against the engine's rules.",
            "kvplan.cli.check:run",
            Argument("PATH...", least=1),
            "check_options:CHECKED",
            "epilogs:CHECK",
        ),
        Command(
            "compare",
            "Compare the predicted figures with a running server or its log.",
            "kvplan.cli.compare:run",
            Argument("[MODEL|PLAN] [LOG|URL|-]", most=3, complete="models"),
            "options:OBSERVED options:SET options:PLAN_CHOICE options:VERBOSE",
            "epilogs:COMPARE",
        ),
        Command(
            "validate",
            "Allocate the cache on a real GPU, test it, and write a receipt.",
            "kvplan.cli.validate:run",
            Argument("PLAN|MODEL", least=1, most=1, complete="models"),
            "validate_options:VALIDATED",
            "validate_options:VALIDATE",
        ),
        Command(
            "simulate",
            "Replay a request trace through the engine's scheduler.",
            "kvplan.cli.simulate:run",
            Argument("[PLAN|MODEL]", most=1, complete="models"),
            "simulate_options:SIMULATE_OPTIONS",
            "simulate_options:EPILOG",
        ),
        Command(
            "explain",
            "Show how each figure is calculated, and from which sources.",
            "kvplan.cli.explain:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            "options:OPTIONS options:SET options:PLAN_CHOICE options:VERBOSE",
            "epilogs:EXPLAIN",
        ),
        Command(
            "import",
            "Turn a server command, script or manifest into a plan file.",
            "kvplan.cli.importing:run",
            Argument("FILE|-|-- COMMAND...", least=1, most=1),
            "import_options:IMPORTED",
            "import_options:EPILOG",
        ),
        Command(
            "export",
            "Write a plan as a command, manifest, report, alerts or dashboard.",
            "kvplan.cli.export:run",
            Argument("PLAN...", least=1),
            "export_options:EXPORTED",
            "export_options:EPILOG",
        ),
        Command(
            "list models",
            "List the models that kvplan knows by name, or show one in full.",
            "kvplan.cli.listing:models",
            Argument("[NAME...]", complete="models"),
            "cards_options:LISTED",
            "epilogs:MODELS",
        ),
        Command(
            "list gpus",
            "List the GPUs that kvplan knows by name, or show one in full.",
            "kvplan.cli.listing:gpus",
            Argument("[NAME...]", complete="gpus"),
            "",
            "epilogs:GPUS",
        ),
        Command(
            "list receipts",
            "List what validations measured on which GPUs, side by side.",
            "kvplan.cli.listing:receipts",
            Argument("[PATH...]"),
            "",
            "epilogs:RECEIPTS",
        ),
        Command(
            "quality",
            "Measure the error that each KV cache format adds to attention.",
            "kvplan.cli.quality:run",
            Argument("MODEL", least=1, most=1, complete="models"),
            "quality_options:MEASURED",
            "quality_options:EPILOG",
        ),
        Command(
            "cards new",
            "Write a model card from a config.",
            "kvplan.cli.cards:new",
            Argument("CONFIG", least=1, most=1),
            "cards_options:NEW",
            "cards_options:NEW_EPILOG",
        ),
        Command(
            "cards lint",
            "Check cards: format, names, and every expected number.",
            "kvplan.cli.cards:lint",
            Argument("[PATH...]"),
            "",
            "cards_options:LINT",
        ),
        Command(
            "cards update",
            "Install a newer, signed set of cards.",
            "kvplan.cli.cards:update",
            Argument("FILE|URL", least=1, most=1),
            "cards_options:UPDATE",
            "cards_options:UPDATE_EPILOG",
        ),
        Command(
            "cards list",
            "List cards and where each came from: kvplan, or a later set.",
            "kvplan.cli.cards:listed",
            Argument("[FILTER]", most=1),
            "",
            "cards_options:LIST",
        ),
        Command(
            "cards add-evidence",
            "Add what a receipt measured to a model card.",
            "kvplan.cli.cards:add_evidence",
            Argument("CARD RECEIPT", least=2, most=2),
            "",
            "cards_options:ADD_EVIDENCE",
        ),
        Command(
            "mcp",
            "Serve size, plan, check and explain to agents over MCP.",
            "kvplan.cli.mcp:run",
            None,
            "",
            "epilogs:MCP",
        ),
        Command(
            "doctor",
            "Show versions, extras, GPUs and settings, for bug reports.",
            "kvplan.cli.doctor:run",
            None,
            "",
            "epilogs:DOCTOR",
        ),
        Command(
            "schema",
            "Print the JSON Schema of an answer, or of a file that kvplan reads.",
            "kvplan.cli.schema:run",
            Argument("[NAME]", most=1, complete="schemas"),
            "",
            "epilogs:SCHEMA",
        ),
    )
}

GROUPS = {
    "list": "List known models and GPUs, and validation receipts.",
    "cards": "Write, check and update model cards.",
}
MAIN = ("size", "plan", "fits", "check", "compare", "validate")
MORE = ("simulate", "explain", "import", "export", "list", "quality")
HIDDEN = ("cards", "schema", "doctor", "mcp")
"""For maintainers and agents: they work, and ``kvplan -h`` leaves them out."""
TOP_LEVEL = (*MAIN, *MORE, *HIDDEN)


def _stands(place: str) -> Any:
    """The object at ``module:NAME`` among the modules of the command line."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"kvplan.cli.{module}"), name)


@cache
def _options(places: str) -> tuple[Option, ...]:
    found: list[Option] = []
    for value in map(_stands, places.split()):
        found += (value,) if isinstance(value, Option) else value
    return (*found, *COMMON)


def command_of(arguments: list[str]) -> Command | None:
    """The command that a command line begins with."""
    return COMMANDS.get(" ".join(arguments[:2])) or COMMANDS.get(" ".join(arguments[:1]))


def is_given(given: Given, name: str) -> bool:
    """Whether a switch was set."""
    return given.get(name) is True


def text_of(given: Given, name: str) -> str | None:
    """An option's text, or None where it was not given."""
    value = given.get(name)
    return value if isinstance(value, str) else None


def words_given(given: Given, name: str) -> list[str]:
    """The values of an option that may be given again, each as typed."""
    text = text_of(given, name)
    return [] if text is None else text.split("\n")


__all__ = [
    "COMMANDS", "GROUPS", "TOP_LEVEL", "Argument", "Command", "Given", "is_given", "text_of", "words_given",
]  # fmt: skip
