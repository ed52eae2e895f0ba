"""The flags of ``transformers serve``: huggingface/transformers 5.24.0 src/transformers/cli/serve.py, and of
ContinuousBatchingConfig, which it hands on."""

from __future__ import annotations

from kvplan.engines.folders import PLAIN

NAMES: dict[str, str] = {
    **{name: name for name in PLAIN},
    "cache_implementation": "cache_implementation",
    "cb_block_size": "block_size",
    "cb_num_blocks": "num_gpu_blocks_override",
    "cb_max_batch_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
}
"""Flag → setting."""
SHORT: dict[str, str] = {
    "block_size": "cb_block_size",
    "page_size": "cb_block_size",
    "num_blocks": "cb_num_blocks",
    "max_batch_tokens": "cb_max_batch_tokens",
    "max_num_batched_tokens": "cb_max_batch_tokens",
    "max_requests_per_batch": "max_num_seqs",
    "cb_max_memory_percent": "max_memory_percent",
    "cb_use_cuda_graph": "use_cuda_graph",
}
"""Other spellings → flag."""
