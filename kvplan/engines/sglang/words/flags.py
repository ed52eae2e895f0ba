"""The flags of SGLang's server, with underscores: sgl-project/sglang python/sglang/srt/server_args.py."""

from __future__ import annotations

from kvplan.engines.folders import PLAIN, HostTier
from kvplan.units import GB

NAMES: dict[str, str] = {
    **dict.fromkeys(("tp_size", "tensor_parallel_size"), "tensor_parallel_size"),
    **dict.fromkeys(("pp_size", "pipeline_parallel_size"), "pipeline_parallel_size"),
    **dict.fromkeys(("dp_size", "data_parallel_size"), "data_parallel_size"),
    "dcp_size": "decode_context_parallel_size",
    "context_length": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "page_size": "block_size",
    "attention_backend": "attention_backend",
    "disable_cuda_graph": "enforce_eager",
    "mamba_ssm_dtype": "mamba_ssm_cache_dtype",
    "speculative_config": "speculative",
    **{name: name for name in PLAIN},
}
"""Flag → setting."""
SHORT: dict[str, str] = {
    "tp": "tp_size",
    "pp": "pp_size",
    "dp": "dp_size",
    "kv_dtype": "kv_cache_dtype",
    "max_model_len": "context_length",
    "max_num_seqs": "max_running_requests",
    "block_size": "page_size",
    "enforce_eager": "disable_cuda_graph",
    "gpu_memory_utilization": "mem_fraction_static",
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "nsa_prefill_backend": "dsa_prefill_backend",
    "nsa_decode_backend": "dsa_decode_backend",
}
"""Other spellings → flag; the last three are those of older releases."""
KEPT = "enable_hierarchical_cache hicache_size hicache_write_policy".split()
HOST_TIER = HostTier("hicache_size", GB, each_gpu=True, needs=(("enable_hierarchical_cache", True),))
"""sgl-project/sglang 0.5.23 mem_cache/pool_host/base.py: 10^9 bytes, one rank."""
