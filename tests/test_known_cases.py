"""Nineteen cases that calculators get wrong, to the byte, engine ``generic``.

The configs are typed from the models' published facts; the same cases are read from the published configs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.read import read_config
from kvplan.results import SizeResult
from tests.recorded import config_names, model_of

LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "dtype": "bfloat16",
}
LLAMA_70B = {**LLAMA_8B, "num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192}
MISTRAL_V01 = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}
GEMMA3_27B = {
    "model_type": "gemma3",
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "hidden_size": 5376,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "torch_dtype": "bfloat16",
}
KIMI_K2 = {**DEEPSEEK_V3, "model_type": "kimi_k2", "num_attention_heads": 64}
DEEPSEEK_V32 = {**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_head_dim": 128}
FALCON_7B = {
    "model_type": "falcon",
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_kv_heads": 71,
    "hidden_size": 4544,
    "multi_query": True,
    "new_decoder_architecture": False,
    "torch_dtype": "bfloat16",
}
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
QWEN3_5_27B = {
    "model_type": "qwen3_5",
    "text_config": {
        **QWEN3_NEXT,
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "mamba_ssm_dtype": "float32",
    },
}
# 54 state-space, 10 attention and 54 MLP layers, in the order in which the model has them.
NEMOTRON_H_PATTERN = (
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*"
    "-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
)
NEMOTRON_H_56B = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": NEMOTRON_H_PATTERN,
    "num_hidden_layers": len(NEMOTRON_H_PATTERN),
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 8192,
    "mamba_num_heads": 256,
    "mamba_head_dim": 64,
    "ssm_state_size": 256,
    "n_groups": 8,
    "conv_kernel": 4,
}
JAMBA_MINI = {
    "model_type": "jamba",
    "num_hidden_layers": 32,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}
_BLOCK = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}
_NO_BLOCK = {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}
# 49 of 80 blocks have attention; which ones does not matter to the sum.
NEMOTRON_SUPER_49B = {
    "model_type": "nemotron-nas",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "hidden_size": 8192,
    "block_configs": [{"attention": _BLOCK}] * 49 + [{"attention": _NO_BLOCK}] * 31,
}
MIMO_V2_FLASH = {
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "sliding_window": 128,
    "sliding_window_size": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, *([0, 1, 1, 1, 1, 1] * 7), 0],
}
WHISPER_LARGE = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 1280,
    "decoder_layers": 32,
    "decoder_attention_heads": 20,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "max_source_positions": 1500,
    "torch_dtype": "float16",
}
GEMMA4_26B = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "sliding_window": 1024,
        "num_kv_shared_layers": 0,
    },
}

K128 = 131072
GROWING = "bytes of the terms that grow with tokens"
Case = tuple[str, dict[str, Any], dict[str, Any], str, int]
CASES: list[Case] = [
    ("Llama-3.1-8B", LLAMA_8B, {"tokens": K128}, "total", 17179869184),
    ("Meta-Llama-3.1-70B", LLAMA_70B, {"tokens": K128, "tensor_parallel_size": 16}, "per_gpu", 5368709120),
    ("Llama-3.1-8B", LLAMA_8B, {"tokens": K128, "pipeline_parallel_size": 4}, "per_gpu", 4294967296),
    ("Mistral-7B-v0.1", MISTRAL_V01, {"tokens": 32768}, "total", 536870912),
    ("gemma-3-27b-it", GEMMA3_27B, {"tokens": K128}, "total", 11173625856),
    ("gpt-oss-120b", GPT_OSS_120B, {"tokens": K128}, "total", 4836556800),
    ("DeepSeek-V3", DEEPSEEK_V3, {"tokens": K128, "tensor_parallel_size": 8}, "per_gpu", 9210691584),
    ("Kimi-K2-Instruct", KIMI_K2, {"tokens": K128, "tensor_parallel_size": 8}, "per_gpu", 9210691584),
    ("falcon-7b", FALCON_7B, {"tokens": 8192}, "total", 67108864),
    ("Qwen3-Next-80B-A3B-Thinking", QWEN3_NEXT, {"tokens": K128}, GROWING, 3221225472),
    ("Qwen3.5-27B", QWEN3_5_27B, {"tokens": K128}, "total", 8743878656),
    ("Nemotron-H-56B-Base-8K", NEMOTRON_H_56B, {"tokens": 8192}, GROWING, 335544320),
    ("AI21-Jamba-1.5-Mini", JAMBA_MINI, {"tokens": K128}, GROWING, 2147483648),
    ("Llama-3_3-Nemotron-Super-49B-v1", NEMOTRON_SUPER_49B, {"tokens": K128}, "total", 26306674688),
    ("MiMo-V2-Flash", MIMO_V2_FLASH, {"tokens": K128, "kv_cache_dtype": "fp8"}, "total", 1522728960),
    ("DeepSeek-V3.2", DEEPSEEK_V32, {"tokens": K128, "kv_cache_dtype": "fp8_ds_mla"}, "total", 6300368896),
    ("DeepSeek-V3.2", DEEPSEEK_V32, {"tokens": K128, "kv_cache_dtype": "bfloat16"}, "total", 10266083328),
    ("whisper-large-v3", WHISPER_LARGE, {"tokens": 448, "encoder_tokens": 1500}, "total", 319160320),
    ("gemma-4-26B-A4B", GEMMA4_26B, {"tokens": K128, "kv_cache_dtype": "bfloat16"}, "total", 2894069760),
]


def answer(result: SizeResult, field: str, tokens: int) -> int | Fraction:
    """The figure that the case is about."""
    if field == "total":
        return result.total.kv_bytes
    if field == "per_gpu":
        return result.per_gpu.kv_bytes
    return sum(
        answer_of.count * term.bytes_at(tokens)
        for answer_of in result.layers
        for term in answer_of.terms
        if term.grows.value == "token"
    )


def _id(case: Case) -> str:
    name, _, settings, _, _ = case
    return "-".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "tokens")])


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_typed_from_facts(case: Case) -> None:
    name, config, settings, field, expected = case
    result = kvplan.size(read_config(config, id=name, source="test"), engine="generic", **settings)
    assert answer(result, field, settings["tokens"]) == expected


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_published_configs(case: Case) -> None:
    name, _, settings, field, expected = case
    found = [one for one in config_names() if one.partition("__")[2] == name]
    result = kvplan.size(model_of(found[0]), engine="generic", **settings)
    assert answer(result, field, settings["tokens"]) == expected
