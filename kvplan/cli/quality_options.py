"""The options of ``kvplan quality``."""

from __future__ import annotations

from kvplan.cli.options import QUESTION, VERBOSE, Option, switch, whole_number, word
from kvplan.units import parse_tokens

_INPUTS = "What is stored"

MEASURED = (
    Option("formats", ("--formats",), "FORMATS", word,
           "KV formats by commas, or beginnings of their names (turboquant); all. Default: the usual ones.",
           QUESTION, complete="kv_dtypes"),
    Option("tokens", ("--tokens", "-t"), "LENGTH", parse_tokens,
           "Of the request whose bytes are shown; default 8k.", QUESTION),
    Option("activations", ("--activations",), "FOLDER", word,
           "A checkpoint's folder: measure its own K, V and queries (transformers). Default: random numbers.",
           _INPUTS),
    Option("text", ("--text",), "FILE", word, "What that model reads; default: Python's reference manual.",
           _INPUTS),
    Option("sample", ("--sample",), "TOKENS", parse_tokens, "Tokens that are stored; default 1k.", _INPUTS),
    Option("calibrated", ("--calibrated",), "", switch,
           "Formats with one scale for a tensor take it from the numbers; without, it is 1.", _INPUTS),
    Option("seed", ("--seed",), "NUMBER", whole_number, "Of the random numbers; default 0.", _INPUTS),
    Option("device", ("--device",), "DEVICE", word, "cpu (default), cuda or cuda:1.", _INPUTS),
    VERBOSE,
)  # fmt: skip
EPILOG = """\
\b
Examples:
  kvplan quality qwen3-32b                       random numbers in its shapes
  kvplan quality qwen3-32b --formats int8,fp8,int4,nvfp4,turboquant
  kvplan quality deepseek-v3 --formats fp8_ds_mla,nvfp4_ds_mla
  kvplan quality qwen3-0.6b --activations ./Qwen3-0.6B -v
  kvplan quality llama-3.1-8b --formats all --json

\b
Errors are of the numbers that attention reads, not of a model's answers: they
order formats, and show layers that suffer. A benchmark decides.
"""
