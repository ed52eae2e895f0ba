"""The parts of an engine's folder, loaded when they are first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

FOLDERS = ("vllm", "sglang", "trtllm", "llamacpp", "transformers", "tgi")
"""Engines with a folder of their own: budget, flags, command, log, tensors … Each divides a GPU's memory."""
TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "tgi": "TGI",
    "generic": "textbook (generic)",
}


def title_of(engine: str) -> str:
    """The engine's name in a sentence."""
    return TITLES.get(engine, engine)


@cache
def part_of(engine: str, name: str) -> Any:
    """The module ``name`` (budget, log, tensors …) of an engine's folder; None where it has none."""
    if engine not in FOLDERS:
        return None
    full = f"kvplan.engines.{engine}.{name}"
    try:
        return import_module(full)
    except ModuleNotFoundError as error:
        if error.name == full:
            return None
        raise


def having(name: str) -> dict[str, Any]:
    """The engines whose folder has the part, and it."""
    found = {engine: part_of(engine, name) for engine in FOLDERS}
    return {engine: part for engine, part in found.items() if part is not None}
