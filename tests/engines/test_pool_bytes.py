"""No engine's blocks are larger than its pool, unless the answer says how much more is allocated."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import kvplan

ASKED: tuple[dict[str, Any], ...] = (
    {"engine": "sglang@0.4.6", "speculative_method": "eagle", "num_speculative_tokens": 3},
    {"engine": "sglang@0.5.6", "speculative_method": "eagle", "num_speculative_tokens": 3},
    {"engine": "sglang"},
    {"engine": "trtllm", "use_kv_cache_manager_v2": True, "tokens": 16},
    {"engine": "trtllm", "tokens": 16},
    {"engine": "vllm"},
    {"engine": "llamacpp", "tokens": 4096},
)
SAID = "more than it counts for the cache"


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: str(asked["engine"]))
def test_blocks_beyond_the_pool_are_said(asked: dict[str, Any]) -> None:
    seen = 0
    for model, memory in product(
        ("deepseek-v3", "qwen3-8b", "gemma-3-12b"), ("1MiB", "64MiB", "1GiB", "9GiB")
    ):
        try:
            result = kvplan.size(model, kv_cache_memory=memory, **asked)
        except kvplan.KvplanError:
            continue
        pool = result.pool
        if pool is None:
            continue
        seen += 1
        more = pool.num_blocks * pool.bytes_per_block - pool.bytes
        assert any(SAID in line for line in result.warnings) == (more * 100 > pool.bytes)
    assert seen, "no pool at all"
