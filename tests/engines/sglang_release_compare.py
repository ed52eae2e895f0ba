"""A release's answers beside kvplan's, and what differs with a reason."""

from __future__ import annotations

from typing import Any

from kvplan.engines.base import parse_version
from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.sglang_cases import TURNS
from tests.engines.sglang_compare import differences, ours, recorded
from tests.recorded import model_of

REASONS = {
    "moonshotai__Kimi-Linear-48B-A3B-Instruct": ("0.5.17", "its config class had another default length"),
    "Nemotron-3-Ultra": ("0.5.10", "newer than the release, which reads another list of layers"),
    "pixtral-12b": ("0.5.10", "the older transformers reads another element type"),
    "NVFP4": ("0.5.10", "the older release reads mixed ModelOpt checkpoints otherwise, or not at all"),
    "MiMo-V2-Flash": ("0.5.13", "its backend on Blackwell and with e5m2 was another"),
    "MiniCPM-MoE": ("0.5.11", "attention groups were not held against its class"),
    "LFM2.5-VL": ("0.5.10", "transformers' class was used before the own one"),
    "gemma-2-": ("0.5.1", "0.4.10 gives up its window pool in a check at the start that was not asked"),
    "Llama-4-": ("0.5.1", "0.4.10 asserts its backend in a check at the start that was not asked"),
    "SmolLM3": ("0.4.9", "asked with a transformers that has its class; the pinned one has not"),
    "Mistral-Small-3.2": ("0.4.9", "the older transformers reads another element type"),
    "LFM2-1.2B": ("0.5.8", "run through transformers without its states: refused here"),
    "Qwen3-30B-A3B-FP8": ("0.5.6", "its layer refuses when its weights are made, not the runner"),
    "MiniMax-M2": ("0.5.24", "its layer refuses when its weights are made, not the runner"),
    "Laguna-XS.2-FP8": ("0.5.24", "its layer refuses when its weights are made, not the runner"),
    "recurrentgemma": ("0.5.23", "run through transformers without its recurrent state: refused here"),
}
"""A part of a model's name → until which release it may differ, and why."""


PLACES = {
    "tokens": "cache_layout/pools.py, cache_layout/cells.py",
    "window": "cache_layout/pools.py, cache_layout/cells.py",
    "requests": "cache_layout/pools.py, cache_layout/stages.py",
    "page": "start/backends.py, start/arguments.py",
    "context": "start/config_facts.py",
    "chunk": "start/memory_defaults.py",
    "graph": "start/memory_defaults.py, start/arguments.py",
    "dtype": "start/config_facts.py, start/arguments.py",
    "kv": "start/dtypes.py",
    "backend": "start/backends.py",
    "slots": "cache_layout/pools.py, start/arguments.py",
    "only kvplan refuses": "refusals.py, start/models.py, data/later_classes.tsv",
    "only SGLang refuses": "refusals.py, start/models.py, data/later_classes.tsv",
}
"""What differs → where in kvplan/engines/sglang its rule stands; by release in start/versions.py."""


def places(why: str) -> list[str]:
    """The files that a difference of `unexplained` points to."""
    named = [part.split(":")[0].strip() for part in why.split(", ")]
    files = (PLACES[name] for name in named if name in PLACES)
    return [f"kvplan/engines/sglang/{file}" for file in dict.fromkeys((*files, "start/versions.py"))]


def unexplained(release: str, answers: dict[str, Any]) -> tuple[int, int, dict[str, str]]:
    """(equal, different with a reason, case → what differs without one)."""
    equal, explained, wrong = 0, 0, {}
    version = ".".join(release.split(".")[:3])
    for name, answer in answers.items():
        label, _, turn = name.rpartition("|")
        gpu, memory, args = TURNS[int(turn)]
        why = _differences(
            model_of(label), {"gpu": gpu, "args": args, "rest_memory": memory}, answer, version
        )
        if not why:
            equal += 1
        elif any(
            part in name and parse_version(version) < parse_version(until)
            for part, (until, _) in REASONS.items()
        ):
            explained += 1
        else:
            wrong[name] = why
    return equal, explained, wrong


def _differences(model: Model, case: dict[str, Any], answer: dict[str, Any], version: str) -> str:
    try:
        mine = ours(model, case, version)
    except KvplanError as error:
        mine = {"refused": error.message}
    other = recorded(answer)
    if other.get("graph") is None:  # until 0.5.2 the graphs are chosen after the pools
        other.pop("graph", None)
    return ", ".join(f"{name}: {mine.get(name)} for {other.get(name)}" for name in differences(mine, other))
