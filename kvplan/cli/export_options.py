"""The options of ``kvplan export``."""

from __future__ import annotations

from kvplan.cli.import_options import STARTED_ON
from kvplan.cli.options import OUTPUT, PLAN_CHOICE, QUESTION, Option, switch, word

REPORT = "Reports (html, markdown)"
START = "Commands, manifests, monitoring"

ONLY_REPORTS = (
    Option("compare_gpus", ("--compare-gpus",), "GPU,GPU|none", word,
           "Plan the same load on these GPUs as well. Default: the plan's own and common ones.",
           REPORT, many=True, complete="gpus"),
    Option("simulate", ("--simulate",), "", switch, "Also simulate plans that have a trace.", REPORT),
)  # fmt: skip
ONLY_STARTS = (
    PLAN_CHOICE[1],
    Option("image", ("--image",), "IMAGE", word,
           "Container image, in place of the engine's own of that version.", START),
)  # fmt: skip
EXPORTED = (
    Option("to", ("--to",), "TARGET", word,
           "command (default), compose, kubernetes, dynamo, html, markdown, prometheus, grafana or keda.",
           QUESTION, complete="targets"),
    Option("environment", ("--env",), "NAME|all", word,
           "Apply an environment's overlay; all: one report of every environment.", QUESTION),
    STARTED_ON,
    *ONLY_REPORTS,
    *ONLY_STARTS,
    Option("output", ("--output", "-o"), "FILE", word, "Write to a file, replacing it if it exists.", OUTPUT),
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan export plan.yaml                   the command that starts its engine
  kvplan export plan.yaml --to compose
  kvplan export plan.yaml --env prod --to kubernetes | kubectl apply -f -
  kvplan export plan.yaml --to dynamo | kubectl apply -f -
  kvplan export plan.yaml --to prometheus -o rules/chat.yaml
  kvplan export plan.yaml --to grafana -o boards/chat.json
  kvplan export plan.yaml --to keda | kubectl apply -f -
  kvplan export plans/ --env all --to html -o report.html
  kvplan export plan.yaml --to markdown --compare-gpus h100,h200

\b
A report takes several plans and exits as kvplan check does: 1 where a plan
fails, 2 where one cannot be read. Its page is one file of at most 500 kB,
without scripts or network. A flag that the engine's release does not have is
an error, never left out.
"""
