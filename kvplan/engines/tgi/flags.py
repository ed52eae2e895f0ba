"""The flags of TGI's launcher: huggingface/text-generation-inference 3.3 launcher/src/main.rs."""

from __future__ import annotations

NAMES: dict[str, str] = {
    "num_shard": "tensor_parallel_size",
    "max_total_tokens": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "max_batch_prefill_tokens": "max_num_batched_tokens",
    "dtype": "dtype",
    "quantize": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
}
"""Flag → setting."""
SHORT: dict[str, str] = {
    "quantization": "quantize",
    "tensor_parallel_size": "num_shard",
    "max_model_len": "max_total_tokens",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_batch_prefill_tokens",
}
"""Other spellings → flag."""
