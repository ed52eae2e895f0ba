"""The flags of TensorRT-LLM's server: NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/llm_args.py."""

from __future__ import annotations

from kvplan.engines.folders import PLAIN

NAMES: dict[str, str] = {
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "max_seq_len": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_num_batched_tokens",
    "tokens_per_block": "block_size",
    "enable_block_reuse": "enable_prefix_caching",
    "speculative_config": "speculative",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    **{name: name for name in PLAIN},
}
"""Flag → setting."""
SHORT: dict[str, str] = {
    "tp_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "max_model_len": "max_seq_len",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_num_tokens",
    "block_size": "tokens_per_block",
    "gpu_memory_utilization": "free_gpu_memory_fraction",
}
"""Other spellings → flag."""
