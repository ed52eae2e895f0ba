"""The commands as data: both parsers, help and completion read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from kvplan.cli import epilogs
from kvplan.cli.answer import Answer
from kvplan.cli.cards_options import LINT, LIST, NEW, NEW_EPILOG, UPDATE, UPDATE_EPILOG
from kvplan.cli.check_options import CHECKED
from kvplan.cli.emit_options import EMITTED
from kvplan.cli.emit_options import EPILOG as EMIT_EPILOG
from kvplan.cli.fits_options import EPILOG as FITS_EPILOG
from kvplan.cli.fits_options import FITTED
from kvplan.cli.import_options import EPILOG as IMPORT_EPILOG
from kvplan.cli.import_options import IMPORTED
from kvplan.cli.options import (
    COMMON,
    COMPARISONS,
    OBSERVED,
    OPTIONS,
    OUTPUT,
    PLAN_CHOICE,
    SET,
    VERBOSE,
    Option,
    switch,
    word,
)
from kvplan.cli.plan_options import EPILOG, PLANNED, SHARED
from kvplan.cli.quality_options import EPILOG as QUALITY_EPILOG
from kvplan.cli.quality_options import MEASURED
from kvplan.cli.report_options import EPILOG as REPORT
from kvplan.cli.report_options import REPORTED
from kvplan.cli.simulate_options import EPILOG as SIMULATE
from kvplan.cli.simulate_options import SIMULATE_OPTIONS
from kvplan.cli.validate_options import ADD_EVIDENCE, RECEIPTS, VALIDATE, VALIDATED

Given = Mapping[str, "str | bool | None"]
Runner = Callable[[list[str], Given], Answer]


class Argument(NamedTuple):
    """The positional argument of a command: how it is shown, how many are taken, what completes it."""

    metavar: str
    least: int = 0
    most: int | None = None
    complete: str | None = None


class Command(NamedTuple):
    """One command. run: ``module:function`` taking the positional words and the options as given."""

    name: str
    summary: str
    run: str
    argument: Argument | None
    options: tuple[Option, ...]
    epilog: str

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
            "How much KV cache (and recurrent state) a model takes, exactly as the engine holds it.",
            "kvplan.cli.size:run",
            Argument("MODEL...|PLAN", least=1, complete="models"),
            (*COMPARISONS, *OPTIONS, SET, *PLAN_CHOICE, VERBOSE, *COMMON),
            epilogs.SIZE,
        ),
        Command(
            "explain",
            "Why: every term that a layer stores, its factors, and the config keys that they came from.",
            "kvplan.cli.explain:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            (*OPTIONS, SET, *PLAN_CHOICE, VERBOSE, *COMMON),
            epilogs.EXPLAIN,
        ),
        Command(
            "compare",
            "What the rules predict beside what a running engine, or its log, says.",
            "kvplan.cli.compare:run",
            Argument("[MODEL|PLAN] [LOG|URL|-]", most=3, complete="models"),
            (*OBSERVED, SET, *PLAN_CHOICE, VERBOSE, *COMMON),
            epilogs.COMPARE,
        ),
        Command(
            "plan",
            "Which GPUs, how many, and with which flags: every candidate judged by the engine's own rules.",
            "kvplan.cli.plan:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            (*PLANNED, *SHARED, SET, *PLAN_CHOICE, VERBOSE, *COMMON),
            EPILOG,
        ),
        Command(
            "simulate",
            "How a deployment serves a trace: its engine's scheduler, step by step, with intervals.",
            "kvplan.cli.simulate:run",
            Argument("[PLAN|MODEL]", most=1, complete="models"),
            (*SIMULATE_OPTIONS, *COMMON),
            SIMULATE,
        ),
        Command(
            "fits",
            "Which models fit a GPU, in which build, with how long a context and how many requests.",
            "kvplan.cli.fits:run",
            Argument("[FILTER]", most=1),
            (*FITTED, *COMMON),
            FITS_EPILOG,
        ),
        Command(
            "quality",
            "What KV formats cost: measured error of keys, values and attention, beside the bytes they save.",
            "kvplan.cli.quality:run",
            Argument("MODEL", least=1, most=1, complete="models"),
            (*MEASURED, *COMMON),
            QUALITY_EPILOG,
        ),
        Command(
            "check",
            "Check plan files against what their engines would do.",
            "kvplan.cli.check:run",
            Argument("PATH...", least=1),
            (*CHECKED, *COMMON),
            epilogs.CHECK,
        ),
        Command(
            "report",
            "Plan files as one page to pass on: answer, memory, GPUs side by side, findings, with sources.",
            "kvplan.cli.report:run",
            Argument("PATH...", least=1),
            (*REPORTED, *COMMON),
            REPORT,
        ),
        Command(
            "import",
            "What starts a server (a command, a script, a manifest) as a plan file.",
            "kvplan.cli.importing:run",
            Argument("FILE|-|-- COMMAND...", least=1, most=1),
            (*IMPORTED, *COMMON),
            IMPORT_EPILOG,
        ),
        Command(
            "emit",
            "A plan file as a command line, a manifest, alerts or a board.",
            "kvplan.cli.emit:run",
            Argument("PLAN", least=1, most=1),
            (*EMITTED, *COMMON),
            EMIT_EPILOG,
        ),
        Command(
            "validate",
            "Allocate the cache as the engine would, fill it, read it back, and keep a receipt.",
            "kvplan.cli.validate:run",
            Argument("PLAN|MODEL", least=1, most=1, complete="models"),
            (*VALIDATED, *COMMON),
            VALIDATE,
        ),
        Command(
            "receipts",
            "What validations proved, on which GPUs, side by side.",
            "kvplan.cli.receipts:run",
            Argument("[PATH...]"),
            COMMON,
            RECEIPTS,
        ),
        Command(
            "models",
            "The models that kvplan knows by name: all, those that match, or one in full.",
            "kvplan.cli.catalog:models",
            Argument("[FILTER]", most=1, complete="models"),
            (
                Option(
                    "family",
                    ("--family",),
                    "FAMILY",
                    word,
                    "Only models with such layers.",
                    OUTPUT,
                    complete="families",
                ),
                *COMMON,
            ),
            epilogs.MODELS,
        ),
        Command(
            "gpus",
            "The GPUs that kvplan knows by name: all, those that match, or one in full.",
            "kvplan.cli.catalog:gpus",
            Argument("[FILTER]", most=1, complete="gpus"),
            COMMON,
            epilogs.GPUS,
        ),
        Command(
            "cards new",
            "Write a model card from a config.",
            "kvplan.cli.cards:new",
            Argument("CONFIG", least=1, most=1),
            (*NEW, *COMMON),
            NEW_EPILOG,
        ),
        Command(
            "cards lint",
            "Check cards: form, names, and every golden number, computed anew.",
            "kvplan.cli.cards:lint",
            Argument("[PATH...]"),
            COMMON,
            LINT,
        ),
        Command(
            "cards update",
            "Take a released set of newer cards: signed, checked card by card, put in place in one step.",
            "kvplan.cli.cards:update",
            Argument("FILE|URL", least=1, most=1),
            (*UPDATE, *COMMON),
            UPDATE_EPILOG,
        ),
        Command(
            "cards list",
            "The cards and where each came from: with kvplan, or with a set that was taken later.",
            "kvplan.cli.cards:listed",
            Argument("[FILTER]", most=1),
            COMMON,
            LIST,
        ),
        Command(
            "cards add-evidence",
            "Add what a receipt measured to a model card.",
            "kvplan.cli.receipts:add_evidence",
            Argument("CARD RECEIPT", least=2, most=2),
            COMMON,
            ADD_EVIDENCE,
        ),
        Command(
            "mcp",
            "Answer agents over the Model Context Protocol: tools size, plan, check and explain.",
            "kvplan.cli.mcp:run",
            None,
            COMMON,
            epilogs.MCP,
        ),
        Command(
            "doctor",
            "Versions, extras, GPUs and settings of this installation, for bug reports.",
            "kvplan.cli.doctor:run",
            None,
            COMMON,
            epilogs.DOCTOR,
        ),
        Command(
            "schema",
            "The JSON Schema of the answers, and of the files that kvplan reads.",
            "kvplan.cli.schema:run",
            Argument("[NAME]", most=1, complete="schemas"),
            COMMON,
            epilogs.SCHEMA,
        ),
    )
}

GROUPS = {"cards": "Write model cards from configs, and check them."}
TOP_LEVEL = tuple(
    "size explain compare plan simulate fits quality check report import emit validate receipts models gpus"
    " cards mcp doctor schema".split()
)


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


__all__ = ["COMMANDS", "GROUPS", "TOP_LEVEL", "Argument", "Command", "Given", "is_given", "switch", "text_of"]
