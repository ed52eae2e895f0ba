"""Which decoder-only architectures are built, with which settings, and why some are not."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.conformance.harness import Case
from tests.conformance.shrink import HEAD_DIM, HEADS, KV_HEADS, WIDTH, WINDOW

CAUSAL: dict[str, str] = dict(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def set_of(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())


FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, HYBRID, INDEXED = "linear_attention", "conv", "hybrid", "indexed_attention"

UNMEASURABLE = {
    "blt": "the class cannot use a cache in 5.24: BltConfig has no num_hidden_layers",
    "dots3_note": "the wrapper's default vision settings cannot be shrunk; dots3_note_text is measured",
    "gemma3n": "the wrapper needs timm; gemma3n_text is measured",
    "gemma4_assistant": "a draft model: every layer reads the target's cache",
    "gemma4_unified_assistant": "a draft model: every layer reads the target's cache",
    "openai-gpt": "the class returns no cache",
    "xlm": "the class returns no cache",
}
NO_FORMULA = {"reformer": "its cache follows the values of the tokens (hash buckets)"}
# The wrapper's decoder is built by itself: (model type, class).
DECODER_OF = {"musicgen": "musicgen_decoder", "musicgen_melody": "musicgen_melody_decoder"}
PROMPT_ONLY = {"cpmant": "its forward with a cache fails in 5.24; a prompt alone is measured"}
FLOAT32_ONLY = {
    "inkling2_text": "its forward mixes dtypes in bfloat16",
    "xlnet": "its forward mixes dtypes in bfloat16",
}
KNOWN_MEASURABLE = 181

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_MAMBA2 = {"mamba_n_heads": 12, "mamba_d_head": HEAD_DIM}
_ZAMBA = [LINEAR, LINEAR, HYBRID, LINEAR, HYBRID]
SETTINGS: dict[str, dict[str, Any]] = {
    "bamba": {**_MAMBA2, "attn_layer_indices": [1]},
    "blenderbot": {"encoder_layers": 4},
    "bloom": {"hidden_size": WIDTH},
    "codegen": {"n_head": 8, "n_embd": 128},
    "cohere_compass_text": {"rope_parameters": {FULL: _ROPE, "rope_type": "default"}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 3, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_method": "greedy"},
    "dory": {"n_input_layers": 1, "n_output_layers": 1, "n_recurrent_loops": 3},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "falcon_h1": {**_MAMBA2, "mamba_d_ssm": 192, "mamba_expand": 2},
    "gemma3n_text": {"num_hidden_layers": 10, "num_kv_shared_layers": 4},
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {**_MAMBA2, "num_hidden_layers": 3, "layer_types": [LINEAR, FULL, LINEAR]},
    "hrm_text": {"num_hidden_layers": 2, "num_layers_per_stack": None, "H_cycles": 2, "L_cycles": 1},
    "hunyuan_v1_dense": {"head_dim": HEAD_DIM},
    "inkling2_loop_text": {
        "num_hidden_layers": 8, "n_layers_per_attn_res_block": 2, "loop_layer_index_start": 2,
        "loop_layer_index_end": 6, "loop_num_passes": 3,
    },
    "hunyuan_v1_moe": {"head_dim": HEAD_DIM},
    "lfm2": {"num_hidden_layers": 3, "layer_types": [CONV, FULL, CONV]},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": [CONV, FULL, CONV]},
    "longcat_flash": {"head_dim": 8, "qk_head_dim": 24},
    "mamba2": {"num_heads": 12, "head_dim": HEAD_DIM, "n_groups": 3},
    "ministral": {"head_dim": HEAD_DIM},
    "nemotron": {"num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM},
    "nemotron_h": {"n_groups": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 18, "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "rwkv": {"attention_hidden_size": WIDTH},
    "xlstm": {"hidden_size": 256, "embedding_dim": 256, "num_heads": 2},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 5, "layers_block_type": _ZAMBA, "attention_hidden_size": 2 * WIDTH,
        "attention_head_dim": 2 * WIDTH // HEADS,
    },
    "zamba2": {
        "num_hidden_layers": 5, "layers_block_type": _ZAMBA, "attention_hidden_size": 2 * WIDTH,
        "attention_head_dim": 2 * WIDTH // HEADS, "n_mamba_heads": 12, "mamba_ngroups": 2,
    },
}  # fmt: skip
SETTINGS["qwen4_exp"] = {"text_config": {"settings": SETTINGS["qwen4_exp_text"]}}

# Other settings of an architecture that change what it keeps.
VARIANTS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("llama", "mqa", {"num_key_value_heads": 1}),
    ("llama", "wide-heads", {"head_dim": 40, "num_key_value_heads": 2}),
    ("llama", "stray-window", {"sliding_window": WINDOW}),
    ("mistral", "no-window", {"sliding_window": None}),
    ("mistral", "window-of-one", {"sliding_window": 1}),
    ("mixtral", "window", {"sliding_window": WINDOW}),
    ("phi3", "window", {"sliding_window": WINDOW}),
    ("starcoder2", "window", {"sliding_window": 3}),
    ("qwen2", "windowed-half", {"use_sliding_window": True, "num_hidden_layers": 4, "max_window_layers": 2}),
    ("qwen2", "gate-off", {"use_sliding_window": False, "sliding_window": WINDOW}),
    ("qwen2_moe", "windowed", {"use_sliding_window": True, "num_hidden_layers": 5, "max_window_layers": 4}),
    ("qwen3_moe", "windowed", {"use_sliding_window": True, "sliding_window": WINDOW}),
    ("falcon", "multi-query", {"multi_query": True, "new_decoder_architecture": False}),
    ("falcon", "multi-head", {"multi_query": False, "new_decoder_architecture": False}),
    ("falcon", "new", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("gpt_bigcode", "multi-head", {"multi_query": False}),
    ("gemma2", "odd", {"num_hidden_layers": 5}),
    ("gemma3_text", "both-ways", {"use_bidirectional_attention": True}),
    ("gemma3n_text", "all-own", {"num_kv_shared_layers": 0, "num_hidden_layers": 5}),
    ("gemma4_text", "shared", {"num_hidden_layers": 14, "num_kv_shared_layers": 5}),
    ("gemma4_text", "k-is-v", {"attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    ("gemma4_text", "global-unused", {"attention_k_eq_v": False, "num_global_key_value_heads": 1}),
    ("llama4_text", "all-chunked", {"num_hidden_layers": 3, "layer_types": [CHUNKED] * 3}),
    ("cohere2", "given", {"num_hidden_layers": 3, "layer_types": [SLIDING, FULL, FULL]}),
    ("smollm3", "windowed", {"use_sliding_window": True, "sliding_window": WINDOW, "num_hidden_layers": 5}),
    ("modernbert-decoder", "narrow", {"local_attention": 8}),
    ("deepseek_v2", "no-q-rank", {**SETTINGS["deepseek_v2"], "q_lora_rank": None}),
    ("glm_moe_dsa", "shared-indexers", {"num_hidden_layers": 7, "index_topk_freq": 3,
                                        "index_skip_topk_offset": 1}),
    ("hy_v4", "nine-layers", {"num_hidden_layers": 9}),
    ("dots3_note_text", "dense", {"use_dsa": False, "num_hidden_layers": 4}),
    ("deepseek_v4", "rates", {"compress_rates": {"heavily_compressed_attention": 16,
                                                  "compressed_sparse_attention": 4}}),
    ("deepseek_v4", "plain-windows", {"num_hidden_layers": 3,
                                      "layer_types": [SLIDING, "compressed_sparse_attention", SLIDING]}),
    ("longcat_flash", "five", {**SETTINGS["longcat_flash"], "num_layers": 5}),
    ("jamba", "period-three", {"num_hidden_layers": 6, "attn_layer_period": 3, "attn_layer_offset": 2}),
    ("falcon_mamba", "long-state", {"state_size": 20, "conv_kernel": 3}),
    ("mamba", "expand-three", {"expand": 3}),
    ("nemotron_h", "mixed", {"n_groups": 3, "layers_block_type": [LINEAR, "moe", LINEAR, FULL, "mlp", FULL]}),
    ("granitemoehybrid", "attention-only", {**_MAMBA2, "num_hidden_layers": 2, "layer_types": [FULL, FULL]}),
    ("lfm2", "long-kernel", {"num_hidden_layers": 2, "layer_types": [CONV, FULL], "conv_L_cache": 6}),
    ("minimax", "given", {"num_hidden_layers": 3, "layer_types": [LINEAR, LINEAR, FULL]}),
    ("qwen3_next", "given", {"num_hidden_layers": 3, "layer_types": [LINEAR, FULL, LINEAR]}),
    ("qwen4_exp_text", "two-indexed", {**SETTINGS["qwen4_exp_text"], "num_hidden_layers": 4,
                                       "layer_types": [LINEAR, INDEXED, LINEAR, INDEXED]}),
    ("qwen4_exp_text", "ngram", {**SETTINGS["qwen4_exp_text"], "num_hidden_layers": 4,
                                 "ple_layer_ids": [1, 3],
                                 "ngram_vocab_size_base": 50, "split_ngram_parts": 4, "ple_embed_dim": 16,
                                 "eos_token_id": 2}),
    ("olmo_hybrid", "three", {"num_hidden_layers": 3}),
    ("kimi_linear", "released-words", {"num_hidden_layers": 4, "linear_attn_config": {
        "full_attn_layers": [2, 4], "kda_layers": [1, 3], "num_heads": 5, "head_dim": 8,
        "short_conv_kernel_size": 3}}),
    ("recurrent_gemma", "attention-first", {"num_hidden_layers": 5,
                                            "block_types": ["attention", "recurrent"]}),
    ("xlnet", "all-kept", {"mem_len": None}),
    ("zaya", "windowed", {"num_hidden_layers": 2, "layer_types": ["hybrid", "hybrid_sliding"],
                          "sliding_window": 9}),
    ("dory", "last-loop", {**SETTINGS["dory"], "recurrent_kv_cache_mode": "last_loop"}),
    ("inkling2_loop_text", "one-pass", {**SETTINGS["inkling2_loop_text"], "loop_num_passes": 1}),
    ("inkling2_loop_text", "no-loop", {"num_hidden_layers": 4}),
    ("lara_mini", "given", {"num_hidden_layers": 3, "layer_types": [LINEAR, FULL, SLIDING]}),
    ("inkling_text", "local-first", {"num_hidden_layers": 3, "local_layer_ids": [0]}),
    ("hrm_text", "one-pass", {"num_hidden_layers": 2, "num_layers_per_stack": None, "H_cycles": 1,
                              "L_cycles": 1}),
    ("gpt_oss", "all-full", {"num_hidden_layers": 2, "layer_types": [FULL, FULL]}),
    ("mimo_v2_flash", "size-given", {"sliding_window_size": 8}),
)  # fmt: skip

# At least one of every attention family is in every run of the tests.
ALWAYS = set_of(
    """
    llama mistral gemma3_text gemma4_text llama4_text deepseek_v3 glm_moe_dsa dots3_note_text
    deepseek_v4 longcat_flash mamba mamba2 jamba falcon_h1 nemotron_h zamba2 qwen3_next
    qwen4_exp_text kimi_linear minimax lfm2 inkling_text zaya recurrent_gemma rwkv xlstm xlnet
    falcon hrm_text mimo_v2_flash
    """
)


def all_cases() -> list[Case]:
    """Every causal architecture of the installed release that can be built, and the variants."""
    cases = []
    for model_type, class_name in CAUSAL.items():
        if model_type not in UNMEASURABLE and model_type not in NO_FORMULA:
            built = DECODER_OF.get(model_type, model_type)
            cases.append(Case(built, class_name, settings=SETTINGS.get(model_type, {})))
    return cases + [Case(mt, CAUSAL[mt], variant, changes) for mt, variant, changes in VARIANTS]


def sample(cases: list[Case]) -> list[Case]:
    """One of each family and a fifth of the rest, always the same."""
    return [
        case
        for case in cases
        if (case.model_type in ALWAYS and case.variant == "base") or zlib.crc32(case.name.encode()) % 5 == 0
    ]
