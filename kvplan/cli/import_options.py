"""The options of ``kvplan import``."""

from __future__ import annotations

from kvplan.cli.options import OUTPUT, QUESTION, Option, switch, word

STARTED_ON = Option(
    "gpu", ("--gpu", "-g"), "GPU", word,
    "The kind of GPU that a command or a manifest runs on, before what it says itself.", QUESTION,
    complete="gpus",
)  # fmt: skip
STARTED_WITH = Option(
    "model", ("--model", "-m"), "MODEL", word,
    "The model of a server that names none, or only a folder.", QUESTION, complete="models",
)  # fmt: skip
VARIABLES = Option(
    "variables", ("--set",), "NAME=VALUE", word,
    "The value of a variable that the file leaves open: --set MODEL=Qwen/Qwen3-8B. Again for each.", QUESTION,
    repeats=True, between="\n",
)  # fmt: skip
RENDERED = (
    Option("helm", ("--helm",), "", switch, "Run helm template on a chart's folder, and read its output.",
           QUESTION),
    Option("values", ("--values",), "FILE", word, "With --helm: a file of values. Again for each.", QUESTION,
           repeats=True, between="\n"),
    Option("kustomize", ("--kustomize",), "", switch,
           "Run kustomize build on a kustomization's folder, and read its output.", QUESTION),
)  # fmt: skip
"""Programs that are run where they are asked for."""
IMPORTED = (
    STARTED_ON,
    STARTED_WITH,
    VARIABLES,
    *RENDERED,
    Option("engine", ("--engine", "-e"), "ENGINE", word,
           "Engine and release, before what an image's tag says: vllm@0.32.", QUESTION, complete="engines"),
    Option("write", ("--write",), "FILE", word, "Write the plans to a file that does not exist yet.", OUTPUT),
    Option("overwrite", ("--overwrite",), "", switch, "Write over the file.", OUTPUT),
    Option("verbose", ("--verbose", "-v"), "", switch,
           "Each line of the file behind what became of it, in place of the plans.", OUTPUT),
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan import --gpu h100 -- vllm serve Qwen/Qwen3-32B -tp 2
  kvplan import deployment.yaml             a Kubernetes object
  kvplan import compose.yaml --gpu l40s --write plan.yaml
  kvplan import start.sh --gpu 4090
  kvplan import values.yaml -v              what became of each line
  helm template chart | kvplan import - --gpu h200
  kvplan size --gpu h100 -- vllm serve Qwen/Qwen3-32B -tp 2
  kvplan check deployment.yaml

\b
Read are command lines of vllm serve, sglang.launch_server, trtllm-serve,
llama-server, transformers serve and text-generation-launcher (in a shell,
docker run or a script), their --config files,
Compose files, Kubernetes objects by their kinds, values of charts, steps of
pipelines, Python, BentoML, llama-swap (docs/plans.md has the list). What has
no rule is named in the plan.
size, explain, check, plan, compare, validate and export take the same as a
plan.
"""
