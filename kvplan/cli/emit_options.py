"""The options of ``kvplan emit``, and what ``kvplan plan`` shares of them."""

from __future__ import annotations

from kvplan.cli.import_options import STARTED_ON
from kvplan.cli.options import OUTPUT, PLAN_CHOICE, QUESTION, Option, word

IMAGE = Option("image", ("--image",), "IMAGE", word,
               "Container image, where the engine's own of that version is not wanted or not known.",
               OUTPUT)  # fmt: skip
EMITTED = (
    Option("to", ("--to",), "TARGET", word,
           "vllm, sglang, trtllm, llamacpp, tgi (a command line of the plan's own engine; the default),"
           " docker-compose or kubernetes; prometheus (rules) or grafana (a board), to watch them.",
           QUESTION, complete="targets"),
    *PLAN_CHOICE,
    STARTED_ON,
    IMAGE,
    Option("output", ("--output", "-o"), "FILE", word, "Write to a file, over what it was.", OUTPUT),
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan emit plan.yaml                     the command that starts its engine
  kvplan emit plan.yaml --to docker-compose
  kvplan emit plan.yaml --env prod --to kubernetes -o deploy/serve.yaml
  kvplan emit plan.yaml --to kubernetes | kubectl apply -f -
  kvplan emit plan.yaml --to prometheus -o rules/chat.yaml
  kvplan emit plan.yaml --to grafana -o boards/chat.json

\b
Every value is the plan's; a flag that the engine of that release does not
have is an error, never left out.
"""
