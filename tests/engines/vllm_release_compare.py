"""A release's answers beside kvplan's: equal, refused by both, refused by one, or not asked.

A class that stops on today's transformers or wants a file beside the config has not been asked: what its
planner would have said is not known.
"""

from __future__ import annotations

import re
from typing import Any

import kvplan
from kvplan.api import make_settings
from kvplan.engines import ENGINES
from kvplan.engines.budget import choose, with_longest
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from kvplan.settings import LONGEST, Settings
from tests.engines.vllm_cases import Case
from tests.engines.vllm_compare import figures, gpu_of, installed, without_flashinfer

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
    "Unknown quantization method: bitsandbytes",
    "a model must have at least one layer",
    "not exist,please check config",
    "The number of image tokens (0) must be the same",
)
PLACES = {
    "groups": "kvplan/engines/vllm/cache_layout/grouping.py, side_by_side.py, states.py",
    "block_size": "kvplan/engines/vllm/cache_layout/layers.py, backends.py",
    "bytes_per_block": "kvplan/engines/vllm/cache_layout/plan.py, grouping.py",
    "num_blocks": "kvplan/engines/vllm/cache_layout/plan.py",
    "kv_tokens": "kvplan/engines/vllm/cache_layout/plan.py",
    "max_concurrency": "kvplan/engines/vllm/cache_layout/plan.py, specs.py",
    "max_model_len": "kvplan/engines/vllm/start/defaults.py, kvplan/architectures/config/engine_facts.py",
    "max_num_seqs": "kvplan/engines/vllm/start/defaults.py",
    "max_num_batched_tokens": "kvplan/engines/vllm/start/defaults.py",
    "refused": "kvplan/engines/vllm/refusals/checks.py, kvplan/engines/data/classes.tsv",
}
"""Figure → where its rule stands; what changes with a release: kvplan/engines/vllm/versions.py."""

STOPS_LATER = re.compile(
    r"prefill context parallelism does not run|backend for prefill context parallelism"
    r"|divides a request's tokens among ranks \(decode"
    r"|DiffKV backends take only|layers make fewer than \d+ stages"
    r"|with the hybrid KV cache manager|has no KV connector"
    r"|takes turboquant_\S+ with latents|keeps a cache in nvfp4\S* on NVIDIA GPUs of"
)
"""kvplan's words for what the worker refuses, or no kernel runs, once the planner has answered: in
v1/worker/gpu/pcp_manager.py, v1/worker/cp_utils.py, kv_connector/factory.py (create_connector), and
FlashInfer's metadata builder."""
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


def answered(case: Case, settings: Settings, version: str) -> SizeResult:
    """kvplan's answer; a length that is to be found is found by what the commands ask."""
    model = kvplan.load_model(case.config)
    if settings.max_model_len == LONGEST:
        settings = with_longest(model, choose(f"vllm@{version}"), settings)
    return ENGINES["vllm"].size(model, settings, version)


def verdict(
    case: Case, answer: dict[str, Any], release: str, settings: Settings | None = None
) -> tuple[str, dict[str, Any]]:
    """(equal | refused | not asked | not known | differs, what differs: field → (kvplan's, the other's))."""
    if not_asked(answer):
        return "not asked", {}
    if settings is None:
        given = {"kv_cache_memory": case.memory, **installed(case.gpu), **case.options}
        settings = make_settings(gpu=gpu_of(case.gpu), **given)
    try:
        result = answered(case, settings, minor(release))
    except KvplanError as error:
        if error.code == "unknown-rule":
            return "not known", {}
        if "refused" in answer:
            return "refused", {}
        return "differs", {"refused": (error.message, answer.get("refused", "answered"))}
    said = result.refusal.message if result.refusal is not None else None
    if without_flashinfer(answer.get("refused", ""), result):
        return "refused", {}
    if "refused" not in answer and said is not None and LATER.search(said):
        return "not asked", {}
    if "refused" not in answer and said is not None and STOPS_LATER.search(said):
        return "stops later", {}
    if "refused" in answer or said is not None:
        agreed = "refused" in answer and said is not None
        return ("refused", {}) if agreed else ("differs", {"refused": (said, answer.get("refused"))})
    ours = figures(result)
    wrong = {name: (ours[name], value) for name, value in answer.items() if ours[name] != value}
    if older(release) and ours["block_size"] in {group[1] for group in answer["groups"]}:
        # The engine takes that of the groups once they are made (v1/engine/core.py), later than it was asked.
        wrong.pop("block_size", None)
    return ("differs", wrong) if wrong else ("equal", {})
