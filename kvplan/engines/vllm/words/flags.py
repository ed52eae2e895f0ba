"""The flags of vLLM's server, with underscores: vllm-project/vllm vllm/engine/arg_utils.py."""

from __future__ import annotations

from kvplan.engines.folders import COMMON, HostTier
from kvplan.units import GIB

NAMES: dict[str, str] = {
    **{name: name for name in COMMON},
    "kv_cache_memory_bytes": "kv_cache_memory",
    "speculative_config": "speculative",
}
"""Flag → setting."""
SHORT: dict[str, str] = {}
"""Other spellings → flag."""
HOST_TIER = HostTier("kv_offloading_size", GIB, each_gpu=False)
"""vllm-project/vllm 0.32 vllm/config/cache.py: GiB, all ranks of one engine together."""
