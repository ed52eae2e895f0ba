"""The options of ``kvplan fits``."""

from __future__ import annotations

from kvplan.cli.options import OUTPUT, QUESTION, Option, whole_number, word
from kvplan.units import parse_bytes, parse_tokens

FITTED = (
    Option("gpu", ("--gpu", "-g"), "GPU", word,
           "The GPUs: rtx-4090, 24GiB, 2xrtx-3090; without it, this machine's.", QUESTION, complete="gpus"),
    Option("engine", ("--engine", "-e"), "ENGINE", word,
           "Default: vllm in data centres and workstations, llamacpp (GGUF builds from q8_0 on) elsewhere.",
           QUESTION,
           complete="engines"),
    Option("tokens", ("--tokens", "-t"), "LENGTH", parse_tokens, "Tokens of one request; default 8k.",
           QUESTION),
    Option("requests", ("--requests", "-n"), "NUMBER", whole_number, "How many at once, safely; default 1.",
           QUESTION),
    Option("quantization", ("--quantization", "-q"), "FORMAT", word,
           "Builds to try, the best first, by commas: q8_0,q4_k_m.", QUESTION),
    Option("host_memory", ("--host-memory",), "SIZE", parse_bytes,
           "What llama.cpp may leave in host memory of models that the GPUs do not hold: 64GiB.", QUESTION),
    Option("top", ("--top",), "NUMBER", whole_number, "How many rows are shown; default 20.", OUTPUT),
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan fits                               what runs on this machine
  kvplan fits rtx-4090                      with llama.cpp, the best build
  kvplan fits --gpu rtx-4090 -e vllm        as they are stored, or checkpoints
  kvplan fits qwen --gpu rtx-4090 -e llamacpp -t 32k
  kvplan fits --gpu rtx-4090 -e llamacpp --host-memory 64GiB
  kvplan fits --gpu 8xh100 -n 64 -t 16k --json

\b
A model is listed where it holds the requests in the safe pool: by its points
on a leaderboard, what may answer slower than 10 tokens/s after the others.
Exit code 1: none does.
"""
