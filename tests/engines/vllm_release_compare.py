"""A release's answers beside kvplan's: equal, refused by both, refused by one, or not asked.

A class that stops on today's transformers or wants a file beside the config has not been asked: what its
planner would have said is not known.
"""

from __future__ import annotations

import re
from typing import Any

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.settings import Settings
from tests.engines.vllm_cases import Case
from tests.engines.vllm_compare import figures, gpu_of, without_flashinfer

CRASHES = (
    "AttributeError", "KeyError", "TypeError", "ImportError", "ModuleNotFoundError", "OSError",
    "RuntimeError", "AmbiguousGlobalPerLayerAttributeError", "the process ended",
)  # fmt: skip
NOT_READ = (
    "Transformers does not recognize",
    "ImportError",
    "required dependencies not available",
    "No valid MLA prefill backend",
    "NoPE-only",
    "HF processor",
    "does not support chunked",
    "failed to be inspected",
    "Cannot copy out of meta tensor",
    "raises unimplemented by default",
    "does not have `num_attention_heads` attribute",
)
PLACES = {
    "groups": "kvplan/engines/vllm/grouping.py, states.py",
    "block_size": "kvplan/engines/vllm/layers.py, backends.py",
    "bytes_per_block": "kvplan/engines/vllm/plan.py, grouping.py",
    "num_blocks": "kvplan/engines/vllm/plan.py",
    "kv_tokens": "kvplan/engines/vllm/plan.py",
    "max_concurrency": "kvplan/engines/vllm/plan.py, specs.py",
    "max_model_len": "kvplan/engines/vllm/defaults.py, kvplan/architectures/config/engine_facts.py",
    "max_num_seqs": "kvplan/engines/vllm/defaults.py",
    "max_num_batched_tokens": "kvplan/engines/vllm/defaults.py",
    "refused": "kvplan/engines/vllm/refusals.py, kvplan/engines/data/classes.tsv",
}
"""Figure → where its rule stands; what changes with a release stands in kvplan/engines/vllm/versions.py."""

LATER = re.compile(r"has no class for \S+: 0\.\d+ is the first")
"""kvplan's word where a release answered through transformers, newer ones than those of its time."""


def not_asked(answer: dict[str, Any]) -> bool:
    """Whether the release's own code stopped before its planner was reached."""
    said = answer.get("refused", "")
    return said.startswith(CRASHES) or said == "AssertionError: " or any(words in said for words in NOT_READ)


def minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def older(release: str) -> bool:
    """Before 0.20, when the platform did not set the block size of models with states."""
    return tuple(map(int, release.split(".")[:2])) < (0, 20)


def verdict(
    case: Case, answer: dict[str, Any], release: str, settings: Settings | None = None
) -> tuple[str, dict[str, Any]]:
    """(equal | refused | not asked | not known | differs, what differs: field → (kvplan's, the other's))."""
    if not_asked(answer):
        return "not asked", {}
    if settings is None:
        settings = Settings(gpu=gpu_of(case.gpu), kv_cache_memory=case.memory, **case.options)
    try:
        result = ENGINES["vllm"].size(kvplan.load_model(case.config), settings, minor(release))
    except KvplanError as error:
        if error.code == "unknown-rule":
            return "not known", {}
        return "differs", {"refused": (error.message, answer.get("refused", "answered"))}
    said = result.refusal.message if result.refusal is not None else None
    if without_flashinfer(answer.get("refused", ""), result):
        return "refused", {}
    if "refused" not in answer and said is not None and LATER.search(said):
        return "not asked", {}
    if "refused" in answer or said is not None:
        agreed = "refused" in answer and said is not None
        return ("refused", {}) if agreed else ("differs", {"refused": (said, answer.get("refused"))})
    ours = figures(result)
    wrong = {name: (ours[name], value) for name, value in answer.items() if ours[name] != value}
    if older(release) and ours["block_size"] in {group[1] for group in answer["groups"]}:
        # The engine takes that of the groups once they are made (v1/engine/core.py), later than it was asked.
        wrong.pop("block_size", None)
    return ("differs", wrong) if wrong else ("equal", {})
