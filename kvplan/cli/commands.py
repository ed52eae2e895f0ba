"""The commands as data: both parsers, help and completion read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from kvplan.cli.answer import Answer
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


_SIZE = """\
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
  kvplan size plan.yaml --tokens 8k,32k         a plan as it is deployed
  cat config.json | kvplan size - --tokens 4096

\b
MODEL is the name of a card (kvplan models), a config.json, a directory that
has one, a card or GGUF file, hf:ORG/NAME, or - for a config on stdin. A plan
file is sized as it stands, at other lengths and numbers where they are given.

\b
Every option can also come from KVPLAN_<LONG_NAME> (KVPLAN_ENGINE=vllm@0.32)
or from ~/.config/kvplan/config.yaml (engine: vllm@0.32); flags count first.
"""
_EXPLAIN = """\
\b
Examples:
  kvplan explain llama-3.1-8b
  kvplan explain deepseek-v3 --tokens 32k --tp 8
  kvplan explain ./config.json --engine transformers --json
  kvplan explain plan.yaml
"""
_COMPARE = """\
\b
Examples:
  kvplan compare --log server.log           model and settings from the log
  kvplan compare llama-3.1-8b --log server.log --tolerance 1%
  docker logs vllm 2>&1 | kvplan compare -  the log on standard input
  kvplan compare plan.yaml --log server.log  model and settings from the plan
  kvplan compare ./config.json --url http://localhost:8000
  kvplan compare --url http://localhost:8000 --watch 5

\b
Settings that the log or server names are used; options given here count
before them. Exit code 1: a figure is off by more than --tolerance.
"""
_CHECK = """\
\b
Examples:
  kvplan check plans/                       every plan of a folder
  kvplan check plans/ --env all             each environment of each plan
  kvplan check plan.yaml --format json
  kvplan check plans/ --baseline origin/main --changed-only
  kvplan check plans/ --format junit --output report.xml
  kvplan check - < plan.yaml

\b
Exit code 1: a plan fails, or its engine would refuse to start; 2: a plan
cannot be read, or asks for what kvplan does not know.
"""
_MCP = """\
\b
Examples:
  kvplan mcp                        on standard input and output (extra mcp)
  claude mcp add kvplan -- kvplan mcp

\b
The same for a client that is configured by a file:
  {"mcpServers": {"kvplan": {"command": "kvplan", "args": ["mcp"]}}}
"""
_DOCTOR = """\
\b
Examples:
  kvplan doctor                     for a bug report
  kvplan doctor --json
"""
_MODELS = """\
\b
Examples:
  kvplan models                     all of them
  kvplan models qwen                whose name has `qwen`
  kvplan models --family mla        that keep latents
  kvplan models llama-3.1-8b        one: its layers and its source
"""
_GPUS = """\
\b
Examples:
  kvplan gpus                       all of them
  kvplan gpus amd                   whose name, maker or design has `amd`
  kvplan gpus h100                  one: every figure with its source
"""
_NEW = """\
\b
Examples:
  kvplan cards new ./config.json --output model_cards/my-model.yaml
  kvplan cards new hf:Qwen/Qwen3-8B
  kvplan cards new ./config.json --count --output my-model.yaml
  cat config.json | kvplan cards new -
"""
_LINT = """\
\b
Examples:
  kvplan cards lint                 every card that came with kvplan
  kvplan cards lint my-model.yaml
"""
_UPDATE = """\
\b
Examples:
  kvplan cards update kvplan-cards.bin --key release.pem
  kvplan cards update https://example.org/kvplan-cards.bin --sha256 4f1c…
"""
_LIST = """\
\b
Examples:
  kvplan cards list                 every card, and where it came from
  kvplan cards list qwen
"""
_SCHEMA = """\
\b
Examples:
  kvplan schema                     what `kvplan size --json` prints
  kvplan schema compare             what `kvplan compare --json` prints
  kvplan schema simulate            what `kvplan simulate --json` prints
  kvplan schema card                a model card
  kvplan schema gpu                 a GPU file
  kvplan schema plan                a plan file
  kvplan schema fleet               a fleet file
  kvplan schema receipt             a receipt of a validation
"""

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "size",
            "How much KV cache (and recurrent state) a model takes, exactly as the engine holds it.",
            "kvplan.cli.size:run",
            Argument("MODEL...|PLAN", least=1, complete="models"),
            (*COMPARISONS, *OPTIONS, *PLAN_CHOICE, VERBOSE, *COMMON),
            _SIZE,
        ),
        Command(
            "explain",
            "Why: every term that a layer stores, its factors, and the config keys that they came from.",
            "kvplan.cli.explain:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            (*OPTIONS, *PLAN_CHOICE, VERBOSE, *COMMON),
            _EXPLAIN,
        ),
        Command(
            "compare",
            "What the rules predict beside what a running engine, or its log, says.",
            "kvplan.cli.compare:run",
            Argument("[MODEL|PLAN] [-]", most=3, complete="models"),
            (*OBSERVED, *PLAN_CHOICE, VERBOSE, *COMMON),
            _COMPARE,
        ),
        Command(
            "plan",
            "Which GPUs, how many, and with which flags: every candidate judged by the engine's own rules.",
            "kvplan.cli.plan:run",
            Argument("MODEL|PLAN", least=1, most=1, complete="models"),
            (*PLANNED, *SHARED, *PLAN_CHOICE, VERBOSE, *COMMON),
            EPILOG,
        ),
        Command(
            "simulate",
            "How a deployment serves a trace: vLLM's own scheduler, step by step, with intervals.",
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
            _CHECK,
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
            _MODELS,
        ),
        Command(
            "gpus",
            "The GPUs that kvplan knows by name: all, those that match, or one in full.",
            "kvplan.cli.catalog:gpus",
            Argument("[FILTER]", most=1, complete="gpus"),
            COMMON,
            _GPUS,
        ),
        Command(
            "cards new",
            "Write a model card from a config.",
            "kvplan.cli.cards:new",
            Argument("CONFIG", least=1, most=1),
            (
                Option(
                    "output",
                    ("--output", "-o"),
                    "FILE",
                    word,
                    "Write to a file that does not exist yet.",
                    OUTPUT,
                ),
                Option(
                    "count",
                    ("--count",),
                    "",
                    switch,
                    "Count the tensors by building the model's class without memory (extras hf and gpu).",
                    OUTPUT,
                ),
                *COMMON,
            ),
            _NEW,
        ),
        Command(
            "cards lint",
            "Check cards: form, names, and every golden number, computed anew.",
            "kvplan.cli.cards:lint",
            Argument("[PATH...]"),
            COMMON,
            _LINT,
        ),
        Command(
            "cards update",
            "Take a released set of newer cards: signed, checked card by card, put in place in one step.",
            "kvplan.cli.cards:update",
            Argument("FILE|URL", least=1, most=1),
            (
                Option(
                    "key",
                    ("--key",),
                    "FILE",
                    word,
                    "The public key of whoever made it (needs the extra update).",
                    OUTPUT,
                ),
                Option(
                    "sha256",
                    ("--sha256",),
                    "DIGEST",
                    word,
                    "The published digest of its data, instead of a signature.",
                    OUTPUT,
                ),
                *COMMON,
            ),
            _UPDATE,
        ),
        Command(
            "cards list",
            "The cards and where each came from: with kvplan, or with a set that was taken later.",
            "kvplan.cli.cards:listed",
            Argument("[FILTER]", most=1),
            COMMON,
            _LIST,
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
            _MCP,
        ),
        Command(
            "doctor",
            "Versions, extras, GPUs and settings of this installation, for bug reports.",
            "kvplan.cli.doctor:run",
            None,
            COMMON,
            _DOCTOR,
        ),
        Command(
            "schema",
            "The JSON Schema of the answers, and of the files that kvplan reads.",
            "kvplan.cli.schema:run",
            Argument("[NAME]", most=1, complete="schemas"),
            COMMON,
            _SCHEMA,
        ),
    )
}

GROUPS = {"cards": "Write model cards from configs, and check them."}
TOP_LEVEL = tuple(
    "size explain compare plan simulate fits quality check report import emit validate receipts models gpus"
    " cards mcp doctor schema".split()
)


def is_given(given: Given, name: str) -> bool:
    """Whether a switch was set."""
    return given.get(name) is True


def text_of(given: Given, name: str) -> str | None:
    """An option's text, or None where it was not given."""
    value = given.get(name)
    return value if isinstance(value, str) else None


__all__ = ["COMMANDS", "GROUPS", "TOP_LEVEL", "Argument", "Command", "Given", "is_given", "switch", "text_of"]
