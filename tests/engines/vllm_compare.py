"""kvplan's answer to a case in the form in which vLLM's is recorded."""

from __future__ import annotations

from typing import Any

import kvplan
from kvplan.gpu import Gpu
from kvplan.results import SizeResult
from tests.engines.vllm_cases import Case
from tests.engines.vllm_stage import CARDS

ENGINE = "vllm@0.32"
FROM_SETTINGS = ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
GROUP_FIELDS = ("layers", "block_size", "page_bytes", "blocks_per_request")
FROM_POOL = ("num_blocks", "bytes_per_block", "kv_tokens", "max_concurrency")


def gpu_of(name: str, memory_bytes: int | None = None) -> Gpu:
    """The card of the stage set as kvplan knows GPUs."""
    card = CARDS[name]
    return Gpu(
        slug=name,
        name=card.name,
        vendor="amd" if card.target else "nvidia",
        arch="",
        memory_marketing="80 GB",
        memory_total_bytes=memory_bytes or card.memory_bytes,
        memory_nvml_bytes=None,
        bandwidth_bytes_per_second=None,
        compute_capability=None if card.target else card.capability,
        device_target=card.target or None,
    )


def installed(name: str) -> dict[str, str]:
    """What a stage lacks that every image has, as kvplan's option."""
    card = CARDS[name]
    return {} if card.target or "flashinfer" in card.packages else {"flashinfer": "absent"}


def ours(case: Case) -> SizeResult:
    given = {"kv_cache_memory": case.memory, **installed(case.gpu), **case.options}
    return kvplan.size(case.config, engine=ENGINE, gpu=gpu_of(case.gpu), **given)


def figures(result: SizeResult) -> dict[str, Any]:
    """The figures that vLLM's answer has too; an encoder alone has one block of nothing."""
    pool = result.pool
    shown: dict[str, Any] = {name: result.settings[name] for name in FROM_SETTINGS}
    if pool is None:
        assert result.refusal is None, result.refusal
        return {**dict.fromkeys(FROM_POOL, 0), "num_blocks": 1, **shown, "groups": []}
    found: dict[str, Any] = {name: getattr(pool, name) for name in FROM_POOL} | shown
    found["groups"] = [[getattr(group, name) for name in GROUP_FIELDS] for group in pool.groups]
    return found


def without_flashinfer(refused: str, result: SizeResult) -> bool:
    """A refusal of a stage that has no FlashInfer, which every image has and which serves the case."""
    served = "FLASHINFER" in str(result.settings.get("attention_backend", ""))
    alone = ("not supported by the Triton attention backend", "No valid attention backend found for cuda")
    return served and any(words in refused for words in alone)


def check(case: Case, answer: dict[str, Any]) -> None:
    """Equal figures; where vLLM refuses, a refusal with the length that vLLM names."""
    result = ours(case)
    if "refused" not in answer:
        assert figures(result) == answer
        return
    if without_flashinfer(answer["refused"], result):
        return
    assert result.refusal is not None, answer["refused"]
    assert result.pool is None
    _, found, rest = answer["refused"].partition("estimated maximum model length is ")
    if found:
        assert result.refusal.largest_max_model_len == int(rest.split(".")[0])
