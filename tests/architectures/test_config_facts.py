"""Model-level facts of a config: element type, length, quantisation and KV scheme, prediction layers."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.architectures.config.activation_shape import num_experts
from kvplan.architectures.config.read import read_config
from kvplan.errors import KvplanError
from kvplan.model import Model

LLAMA: dict[str, Any] = {"model_type": "llama", "max_position_embeddings": 4096, "num_hidden_layers": 32}


def read(config: dict[str, Any], quant: dict[str, Any] | None = None) -> Model:
    return read_config(config, id="m", source="test", hf_quant_config=quant)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "torch.float16"}, "float16"),
        ({"dtype": "half"}, "float16"),
        ({"dtype": "float32", "torch_dtype": "bfloat16"}, "float32"),
        ({"dtype": None, "torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "auto"}, None),
        ({}, None),
    ],
)
def test_dtype(config: dict[str, Any], dtype: str | None) -> None:
    assert read({**LLAMA, **config}).dtype == dtype


def test_dtype_of_a_part() -> None:
    part = {"model_type": "llama", "torch_dtype": "bfloat16"}
    assert read({"model_type": "llava", "text_config": part}).dtype == "bfloat16"
    assert read({"model_type": "llava", "torch_dtype": "float16", "text_config": part}).dtype == "float16"


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, 4096),
        ({"max_seq_len": 2048}, 2048),
        ({"seq_length": 8192}, 4096),
        ({"model_max_length": 131072}, 131072),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "su"}}, 4096),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": None}}, 4096),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}, 8192),
        ({"max_position_embeddings": 1e5}, 100000),
        ({"max_position_embeddings": 0}, None),
        ({"max_position_embeddings": -1, "max_seq_len": 77}, 77),
    ],
)
def test_longest_context(config: dict[str, Any], length: int | None) -> None:
    assert read({**LLAMA, **config}).max_model_len == length


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"model_type": "gpt2"}, 1024),
        ({"model_type": "whisper"}, 448),
        ({"model_type": "mpt"}, 2048),
        ({"model_type": "mamba"}, None),
        ({"model_type": "led"}, 1024),
        (
            {
                "model_type": "gemma3",
                "text_config": {
                    "max_position_embeddings": 131072,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
                },
            },
            131072,
        ),
        (
            {
                "model_type": "gemma3_text",
                "max_position_embeddings": 32768,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            32768,
        ),
    ],
)
def test_length_by_type(config: dict[str, Any], length: int | None) -> None:
    assert read(config).max_model_len == length


@pytest.mark.parametrize("factor", [0, -1, "2", True, [2]])
def test_a_factor_that_is_no_factor(factor: object) -> None:
    with pytest.raises(KvplanError, match="factor"):
        read({**LLAMA, "rope_scaling": {"type": "linear", "factor": factor}})


FP8 = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.mark.parametrize(
    ("quant", "method", "scheme"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": FP8}, "compressed-tensors", "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, "compressed-tensors", None),
        ({"quant_method": "modelopt", "kv_cache_scheme": FP8}, "modelopt", "fp8"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {**FP8, "num_bits": 4}}, "modelopt", "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "modelopt", "nvfp4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", None),
        ({"quant_method": "gptq_marlin"}, "gptq_marlin", None),
        ({"producer": {"name": "modelopt"}, "kv_cache_quant_algo": "FP8"}, "modelopt", "fp8"),
        ({}, None, None),
    ],
)
def test_quantisation_in_the_config(quant: dict[str, Any], method: str | None, scheme: str | None) -> None:
    model = read({**LLAMA, "quantization_config": quant})
    assert (model.quantization, model.kv_cache_scheme) == (method, scheme)
    assert model.warnings == ()


def test_quantisation_beside_the_config() -> None:
    beside = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
    }
    assert read(LLAMA, beside).kv_cache_scheme == "fp8"
    own = {**LLAMA, "quantization_config": {"quant_method": "modelopt"}}
    assert read(own, beside).kv_cache_scheme is None, "what config.json says counts first"


def test_an_unknown_kv_scheme_warns() -> None:
    model = read(
        {**LLAMA, "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "INT3"}}
    )
    assert model.kv_cache_scheme is None
    assert "KV scheme" in model.warnings[0]


def test_quantisation_of_the_text_part() -> None:
    part = {"model_type": "llama", "quantization_config": {"quant_method": "awq"}}
    assert read({"model_type": "llava", "text_config": part}).quantization == "awq"


@pytest.mark.parametrize(
    ("config", "families"),
    [
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 2}, ["mla", "mla"]),
        ({"model_type": "glm_moe_dsa", "num_nextn_predict_layers": 1}, ["mla+sparse_indexer"]),
        ({"model_type": "deepseek_v4", "num_nextn_predict_layers": 1}, ["compressed_attention"]),
        ({"model_type": "qwen3_next"}, ["full_attention"]),
        ({"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 1}}, ["full_attention"]),
        ({"model_type": "mimo_v2_flash", "num_nextn_predict_layers": 3}, ["sliding_window"]),
        (
            {"model_type": "nemotron_h", "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"},
            ["full_attention"],
        ),
        ({"model_type": "llama", "num_nextn_predict_layers": 1}, []),
    ],
)
def test_prediction_layers(config: dict[str, Any], families: list[str]) -> None:
    assert [layer.family for layer in read(config).draft_layers] == families


def test_deepseek_v4_predicts_with_a_window_only() -> None:
    part = read({"model_type": "deepseek_v4", "num_nextn_predict_layers": 1}).draft_layers[0].parts[0]
    assert getattr(part, "compress_rate", 0) is None


def test_step_names_the_kind_of_each_prediction_layer() -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    config = {
        "model_type": "step3p5",
        "num_hidden_layers": 2,
        "layer_types": kinds,
        "num_nextn_predict_layers": 2,
        "sliding_window": 64,
    }
    assert [layer.family for layer in read(config).draft_layers] == ["sliding_window", "full_attention"]


def test_plain_numbers() -> None:
    model = read({"model_type": "gpt2", "n_head": 8, "n_embd": 64, "vocab_size": 100})
    assert (model.num_attention_heads, model.hidden_size, model.vocab_size) == (8, 64, 100)
    whisper = read({"model_type": "whisper", "decoder_attention_heads": 4, "d_model": 64})
    assert (whisper.num_attention_heads, whisper.hidden_size) == (4, 64)


def test_provenance_names_the_keys() -> None:
    model = read({"model_type": "llava", "text_config": {"model_type": "llama", "num_key_value_heads": 2}})
    keys = model.provenance.keys["full_attention"]
    assert keys["num_kv_heads"] == "text_config.num_key_value_heads"
    assert keys["head_dim"] == "hidden_size // num_attention_heads"


def test_experts_that_are_listed_by_kind_of_token() -> None:
    """ERNIE 4.5 VL: as many for text as for images, of which a token of text chooses among the first."""
    config = {
        "model_type": "ernie4_5_moe_vl", "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000, "moe_num_experts": [64, 64],
    }  # fmt: skip
    assert num_experts(read_config(config, id="x", source="x")) == 64
    assert num_experts(read_config({**config, "moe_num_experts": 64}, id="x", source="x")) == 64
    with pytest.raises(KvplanError, match="not a whole number"):
        num_experts(read_config({**config, "moe_num_experts": ["many"]}, id="x", source="x"))
