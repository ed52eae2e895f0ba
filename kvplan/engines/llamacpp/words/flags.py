"""The flags of llama.cpp's server, with underscores: ggml-org/llama.cpp common/arg.cpp."""

from __future__ import annotations

NAMES: dict[str, str] = {"quantization": "quantization", "speculative_config": "speculative"}
"""Flag → setting. The build of a model that is named and no file: no flag of the server, but which file; a
draft, which takes several flags."""
SHORT: dict[str, str] = {
    "c": "ctx_size",
    "np": "parallel",
    "ctk": "cache_type_k",
    "ctv": "cache_type_v",
    "ub": "ubatch_size",
    "fa": "flash_attn",
    "ngl": "n_gpu_layers",
    "max_model_len": "ctx_size",
    "max_num_seqs": "parallel",
    "kv_cache_dtype": "cache_type_k",
    "kv_dtype": "cache_type_k",
}
"""Other spellings → flag."""
