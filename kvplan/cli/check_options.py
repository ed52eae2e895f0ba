"""The options of ``kvplan check``."""

from __future__ import annotations

from kvplan.cli.import_options import RENDERED, STARTED_ON, STARTED_WITH, VARIABLES
from kvplan.cli.options import OUTPUT, QUESTION, Option, switch, word

CHECKED = (
    STARTED_ON,
    STARTED_WITH,
    VARIABLES,
    *RENDERED,
    Option("require", ("--require",), "KEY=VALUE", word,
           "What must hold, before what plans say under require: requests=60,tokens=8k.", QUESTION),
    Option("env", ("--env",), "NAME|all", word, "The overlay of an environment, or each of them.", QUESTION),
    Option("baseline", ("--baseline",), "REF|PATH", word,
           "The plans as they were (git revision, folder, file, lock): what a change costs.", QUESTION),
    Option("changed_only", ("--changed-only",), "", switch,
           "Only plans that differ from the baseline, or whose base, trace, receipt or model file does.",
           QUESTION),
    Option("fleet", ("--fleet",), "FILE", word,
           "A fleet file: whether all plans together find their GPUs there, and what they cost.", QUESTION),
    Option("write_lock", ("--write-lock",), "FILE", word,
           "Keep the figures with digests of what they follow from; as --baseline it says what moved them.",
           OUTPUT),
    Option("quiet", ("--quiet", "-q"), "", switch, "Only what fails, and one line.", OUTPUT),
    Option("format", ("--format", "-f"), "FORMAT", word,
           "text, json, github, junit, sarif or markdown.", OUTPUT, complete="formats"),
    Option("output", ("--output", "-o"), "FILE", word, "Write the report to a file; the text stays here.",
           OUTPUT),
    Option("exit_zero", ("--exit-zero",), "", switch, "Exit with 0 although plans fail.", OUTPUT),
)  # fmt: skip
