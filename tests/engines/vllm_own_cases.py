"""Types whose classes give vLLM cache specs of their own, asked with the settings that those specs look at.

Shapes of released models in few layers; what no size depends on is there because a class reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.engines.vllm_cases import GIB, Case, Config, Options

MEMORY = 100 * GIB
_LAYERS = 13
_MOE = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 256}
_ROUTER = {
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "vocab_size": 1024, "dtype": "bfloat16",
}  # fmt: skip


def _inkling(local: bool = True) -> Config:
    text = {
        "model_type": "inkling_text", "hidden_size": 6144, "num_hidden_layers": _LAYERS, "vocab_size": 201024,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 24576,
        "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "d_rel": 16,
        "rel_extent": 1024, "sliding_window_size": 512, "conv_kernel_size": 4, "n_routed_experts": 256,
        "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 3072,
        "max_position_embeddings": 131072, "dtype": "bfloat16", "logits_mup_width_multiplier": 24.0,
        "shared_expert_sink": True, "route_scale": 8.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "layer_types": ["hybrid_sliding" if (i + 1) % 6 else "hybrid" for i in range(_LAYERS)],
    }  # fmt: skip
    if local:
        text["local_layer_ids"] = [index for index in range(_LAYERS) if (index + 1) % 6]
    towers: Config = {"audio_config": {}, "vision_config": {}}
    top = {"architectures": ["InklingForConditionalGeneration"], "model_type": "inkling_mm_model"}
    return {**top, "text_config": text, **towers, "dtype": "bfloat16"}


def _glm_flash(pool: int = 4, indexers: str = "every") -> Config:
    full = [index for index in range(_LAYERS) if index % 4 == 3]
    text = {
        "model_type": "glm5_next_text", "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": _LAYERS, "num_attention_heads": 16, "num_key_value_heads": 16,
        "kv_lora_rank": 512, "q_lora_rank": 512, "qk_nope_head_dim": 256, "qk_rope_head_dim": 0,
        "qk_head_dim": 256, "v_head_dim": 256, "head_dim": 0, "max_position_embeddings": 1048576,
        "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048, "index_kpool": pool,
        "index_kpool_compress": True, "mhc": True, "hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20,
        "mla_use_nope": True, "indexer_rope_interleave": True, "first_k_dense_replace": 1,
        "swiglu_limit": 10.0, **_MOE, **_ROUTER,
        "num_nextn_predict_layers": 1,
        "indexer_types": [
            "shared" if indexers == "some" and index == 7 else "full" for index in range(_LAYERS)
        ],
        "layer_types": [
            "deepseek_sparse_attention" if index in full else "linear_attention" for index in range(_LAYERS)
        ],
        "mlp_layer_types": ["dense", *["sparse"] * (_LAYERS - 1)],
        "linear_attn_config": {
            "num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
            "full_attn_layers": full, "kda_layers": [i for i in range(_LAYERS) if i not in full],
        },
    }  # fmt: skip
    vision = {
        "model_type": "glm5_next_vision", "depth": 2, "hidden_size": 1024, "num_heads": 16, "image_size": 56,
        "in_channels": 3, "intermediate_size": 4096, "out_hidden_size": 1024, "patch_size": 14,
        "projection_intermediate_size": 64, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "hidden_act": "silu", "attention_bias": True, "rms_norm_eps": 1e-5, "swiglu_limit": 10.0,
    }  # fmt: skip
    top = {"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next"}
    return {**top, "text_config": text, "vision_config": vision, "dtype": "bfloat16"}


def _dots() -> Config:
    words = ["full_attention" if i < 2 or i % 4 == 1 else "sliding_attention" for i in range(_LAYERS)]
    return {
        "architectures": ["Dots3NoteForCausalLM"], "model_type": "dots3_note", "hidden_size": 1024,
        "intermediate_size": 2048, "num_hidden_layers": _LAYERS, "num_attention_heads": 32,
        "num_key_value_heads": 32, "kv_lora_rank": 512, "q_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "swa_num_attention_heads": 16, "swa_q_lora_rank": 512,
        "swa_kv_lora_rank": 1024, "swa_qk_nope_head_dim": 192, "swa_qk_rope_head_dim": 64,
        "swa_v_head_dim": 128, "sliding_window_size": 512, "sliding_window": 512, "swa_rope_theta": 50000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 80000000.0},
        "attention_gate_type": "headwise", "swa_attention_gate_type": "headwise",
        "apply_mla_qkv_lora_rescale": False, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 16,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "layer_types": words,
        "shared_experts_intermediate_size": 256, "max_position_embeddings": 524288, **_MOE, **_ROUTER,
    }  # fmt: skip


def _v41() -> Config:
    ratios = [0, 0, *[2] * 7, *[1] * 4]
    text = {
        "model_type": "deepseek_v41_text", "hidden_size": 5120, "num_hidden_layers": _LAYERS,
        "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
        "q_lora_rank": 1280, "o_lora_rank": 1024, "o_groups": 8, "swiglu_limit": 10.0,
        "max_position_embeddings": 1048576, "rope_theta": 10000, "sliding_window": 128,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        "compress_ratios": [*ratios, 0, 0, 0], "compress_rope_theta": 160000, "index_n_heads": 32,
        "kv_source_layer_ids": [2, 5, 9], "index_source_layer_ids": [2, 5, 9, 11], "index_head_dim": 128,
        "index_topk": 512, "candidate_source_layer_id": 9, "candidate_topk_blocks": 2048,
        "candidate_block_size": 8, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
        "engram_layer_ids": [], "engram_num_embeddings": [], "num_nextn_predict_layers": 3, **_MOE,
        **_ROUTER, "scoring_func": "sqrtsoftplus", "vocab_size": 129280, "n_routed_experts": 384,
        "num_experts_per_tok": 6, "moe_intermediate_size": 2304,
    }  # fmt: skip
    quantised = {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
        "scale_fmt": "ue8m0", "expert_dtype": "fp4",
    }  # fmt: skip
    vision = {
        "model_type": "deepseek_v41_vision", "num_hidden_layers": 2, "hidden_size": 1024,
        "num_attention_heads": 16, "intermediate_size": 2816, "patch_size": 14, "rope_theta": 10000,
        "downsample_ratio": 3, "max_image_tokens": 1024, "min_pixels": 295936, "max_wh_ratio": None,
    }  # fmt: skip
    top = {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16"}
    return {**top, "quantization_config": quantised, "text_config": text, "vision_config": vision}


def _qwen4(group: int = 16, **changed: Any) -> Config:
    rope = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.25}
    return {
        "architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp_text",
        "hidden_size": 2048, "num_hidden_layers": 8, "vocab_size": 248320,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu",
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512,
        "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(8)],
        "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [], "rms_norm_eps": 1e-6, "eos_token_id": 5,
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
        "indexer_compress_ratio": group, "max_position_embeddings": 32768, "attention_bias": False,
        "dtype": "bfloat16", "tie_word_embeddings": False, "output_gate_type": "silu",
        "rope_parameters": rope, "partial_rotary_factor": 0.25, "mtp_num_hidden_layers": 1, **changed,
    }  # fmt: skip


_TABLE = {"ngram_vocab_size_base": 1000, "heads_per_ngram": 4, "split_ngram_parts": 1, "ple_embed_dim": 480}
_NGRAMS = {"ple_layer_ids": [2], **_TABLE, "ple_embed_dim": 512}

OWN: dict[str, Config] = {
    "inkling": _inkling(),
    "inkling-unnamed": _inkling(local=False),
    "glm5-next": _glm_flash(),
    "glm5-next-16": _glm_flash(16),
    "glm5-next-shared": _glm_flash(2, "some"),
    "dots3-note": _dots(),
    "deepseek-v41": _v41(),
    "qwen4-exp": _qwen4(),
    "qwen4-exp-8": _qwen4(8, num_key_value_heads=4, head_dim=128, indexer_head_dim=64),
    "qwen4-exp-ngram": _qwen4(4, **_NGRAMS),
    "qwen4-exp-ngram-wide": _qwen4(4, hc_count=32, **_TABLE, ple_layer_ids=[2, 5], ngram_size=4),
}
"""Configs by name, all of one model family each (the words before the last figure)."""
TURNS: tuple[tuple[str, Options], ...] = (
    ("h100", {}),
    ("h100", {"tensor_parallel_size": 4}),
    ("h100", {"tensor_parallel_size": 16}),
    ("h100", {"pipeline_parallel_size": 2, "max_model_len": 8192}),
    ("h100", {"kv_cache_dtype": "fp8"}),
    ("h100", {"block_size": 64, "max_num_batched_tokens": 4096}),
    ("h100", {"enable_prefix_caching": False, "max_num_seqs": 64}),
    ("h100", {"disable_hybrid_kv_cache_manager": True}),
    ("h100", {"dtype": "float16"}),
    ("b200", {}),
    ("b200", {"kv_cache_dtype": "bfloat16", "tensor_parallel_size": 2}),
    ("a100", {"max_model_len": 16384}),
    ("rtx-pro-6000", {}),
    ("mi300x", {}),
)
LEFT = {("qwen4-exp-ngram", "mi300x")}
"""The class for AMD GPUs cannot be built with such layers on a CPU."""
DRAFTS = {"glm5-next": (1, 3, 5), "qwen4-exp": (1, 3), "qwen4-exp-ngram": (1, 3)}
"""Of configs with prediction layers: how many drafts are asked."""


def own_cases() -> Iterator[Case]:
    """Every config with every turn, grouped by GPU; a variant with the first and the first on a B200."""
    listed: list[tuple[str, str, Options]] = []
    for name in OWN:
        plain = name in ("inkling", "glm5-next", "dots3-note", "deepseek-v41", "qwen4-exp", "qwen4-exp-ngram")
        turns = TURNS if plain else (TURNS[0], TURNS[9])
        turns = tuple(turn for turn in turns if (name, turn[0]) not in LEFT)
        listed += [(name, gpu, options) for gpu, options in turns]
    for name, counts in DRAFTS.items():
        for count in counts:
            listed.append((name, "h100", {"speculative_method": "mtp", "num_speculative_tokens": count}))
    for name, gpu, options in sorted(listed, key=lambda entry: entry[1]):
        words: list[Any] = [f"{key}={value}" for key, value in options.items()]
        yield Case(" ".join([name, f"gpu={gpu}", *words]), gpu, OWN[name], MEMORY, options)
