"""The options of ``kvplan report``."""

from __future__ import annotations

from kvplan.cli.import_options import STARTED_ON
from kvplan.cli.options import OUTPUT, QUESTION, Option, switch, word

REPORTED = (
    Option("html", ("--html",), "FILE", word, "Write one page that needs no network.", OUTPUT),
    Option("markdown", ("--markdown",), "", switch, "Print the report as Markdown.", OUTPUT),
    Option("env", ("--env",), "NAME|all", word, "The overlay of an environment, or each of them.", QUESTION),
    Option("beside", ("--beside",), "GPU,GPU|none", word,
           "Kinds of GPUs on which the same load is planned. Default: the plan's own and the usual ones.",
           QUESTION, many=True, complete="gpus"),
    Option("simulate", ("--simulate",), "", switch, "Also simulate plans that have a trace.", QUESTION),
    STARTED_ON,
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan report plan.yaml --html report.html
  kvplan report plans/ --env all --html report.html
  kvplan report plan.yaml --beside h100,h200,b200 --markdown
  kvplan report plan.yaml --simulate --html report.html
  kvplan report plans/ --json

\b
A page is one file of at most 500 kB: no script, nothing is loaded. Exit codes
are those of kvplan check: 1 where a plan fails, 2 where one cannot be read.
"""
