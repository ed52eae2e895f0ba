"""Inventories of T5, BART, RecurrentGemma, Llama 3.2 Vision and MiniMax-M3 beside transformers' modules.

The modules are built on the meta device; every parameter is compared by its shape. Whole models are compared
with parameter counts that the hub publishes.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card

T5 = {
    "model_type": "t5", "d_model": 64, "d_kv": 24, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3,
    "num_heads": 4, "vocab_size": 100, "feed_forward_proj": "gated-gelu",
}  # fmt: skip
BART = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 112, "encoder_attention_heads": 4, "decoder_attention_heads": 8, "vocab_size": 100,
    "max_position_embeddings": 50,
}  # fmt: skip
RECURRENT = {
    "model_type": "recurrent_gemma", "num_hidden_layers": 4, "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 80,
    "head_dim": 16, "conv1d_width": 4, "block_types": ["recurrent", "recurrent", "attention"],
    "attention_window_size": 32,
}  # fmt: skip
MLLAMA = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model", "vocab_size": 100, "pad_token_id": 0, "hidden_size": 64,
        "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 112,
        "cross_attention_layers": [1, 3],
    },
    "vision_config": {
        "model_type": "mllama_vision_model", "hidden_size": 48, "num_hidden_layers": 3,
        "num_global_layers": 2, "attention_heads": 4, "num_channels": 3, "intermediate_size": 80,
        "vision_output_dim": 144, "image_size": 28, "patch_size": 14, "max_num_tiles": 4,
        "intermediate_layers_indices": [0, 1], "supported_aspect_ratios": [[1, 1], [1, 2]],
    },
}  # fmt: skip


def _ours(config: dict[str, Any]) -> Counter[int]:
    return Counter(tensor.elements for _, tensor in inventory_of(config).tensors())


def _theirs(model: Any) -> Counter[int]:
    return Counter(math.prod(parameter.shape) for parameter in model.parameters())


def _built(name: str, config: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    known = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        return getattr(transformers, name)(transformers.AutoConfig.for_model(config["model_type"], **known))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("T5ForConditionalGeneration", T5),
        ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "relu"}),
        ("BartForConditionalGeneration", BART),
        ("RecurrentGemmaForCausalLM", RECURRENT),
        ("RecurrentGemmaForCausalLM", {**RECURRENT, "attention_bias": True}),
    ],
)
def test_every_parameter_of_transformers_class(name: str, config: dict[str, Any]) -> None:
    assert _ours(config) == _theirs(_built(name, config))


def test_llama_vision() -> None:
    """The embedding's eight rows more are a tensor of their own here."""
    theirs = _theirs(_built("MllamaForConditionalGeneration", MLLAMA))
    theirs -= Counter([108 * 64])
    assert _ours(MLLAMA) == theirs + Counter([100 * 64, 8 * 64])


def test_minimax_m3() -> None:
    """transformers joins gate and up; the correction bias is a buffer there."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    name = "transformers.models.minimax_m3_vl.modeling_minimax_m3_vl"
    parts = pytest.importorskip(name, reason="transformers 5.24 is not installed")
    shared: dict[str, Any] = {
        "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "dense_intermediate_size": 112,
        "num_local_experts": 6,
    }  # fmt: skip
    config = parts.MiniMaxM3VLTextConfig(
        **shared, shared_intermediate_size=48, mlp_layer_types=["dense", "sparse", "sparse"],
        layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], index_head_dim=24,
        index_n_heads=2,
    )  # fmt: skip
    with torch.device("meta"):
        theirs = parts.MiniMaxM3VLForCausalLM(config)
    ours = inventory_of(
        {
            "model_type": "minimax_m3", **shared, "n_shared_experts": 1, "moe_layer_freq": [0, 1, 1],
            "use_routing_bias": True, "tie_word_embeddings": False,
            "sparse_attention_config": {
                "sparse_attention_freq": [0, 1, 1], "sparse_num_index_heads": 2, "sparse_index_dim": 24,
            },
        }
    )  # fmt: skip
    biases = sum(buffer.numel() for name, buffer in theirs.named_buffers() if "correction" in name)
    assert biases == 2 * 6
    assert ours.parameters == sum(parameter.numel() for parameter in theirs.parameters()) + biases


@pytest.mark.parametrize(
    ("config", "count"),
    [
        # google/flan-t5-xl, with the output head that its checkpoint stores.
        (
            {
                "model_type": "t5", "d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_layers": 24,
                "num_decoder_layers": 24, "num_heads": 32, "feed_forward_proj": "gated-gelu",
                "tie_word_embeddings": False, "vocab_size": 32128,
            },
            2_849_757_184,
        ),
        # facebook/bart-base.
        (
            {
                "model_type": "bart", "d_model": 768, "encoder_layers": 6, "decoder_layers": 6,
                "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_attention_heads": 12,
                "decoder_attention_heads": 12, "vocab_size": 50265, "max_position_embeddings": 1024,
            },
            139_420_416,
        ),
    ],
)  # fmt: skip
def test_published_counts(config: dict[str, Any], count: int) -> None:
    assert inventory_of(config).parameters == count


def test_step() -> None:
    """As published (stepfun-ai/Step-3.5-Flash), made small: other heads in windows, experts from layer 2."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    name = "transformers.models.step3p7.modeling_step3p7"
    parts = pytest.importorskip(name, reason="transformers 5.24 is not installed")
    config: dict[str, Any] = {
        "vocab_size": 100, "pad_token_id": 0, "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 16, "intermediate_size": 112,
        "moe_intermediate_size": 48, "share_expert_dim": 40, "moe_num_experts": 6, "moe_layers_enum": "2,3",
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": 8, "num_attention_groups": 2,
            "head_dim": 16,
        },
    }  # fmt: skip
    with torch.device("meta"):
        theirs = parts.Step3p7TextModel(parts.Step3p7TextConfig(**config))
    ours = inventory_of({"model_type": "step3p5", "use_head_wise_attn_gate": True, **config})
    count = sum(parameter.numel() for parameter in theirs.parameters())
    # The class has no output head, and its correction biases are buffers.
    assert ours.parameters == count + 100 * 64 + 2 * 6
    for key in ("use_head_wise_attn_gate", "moe_layers_enum", "layer_types"):
        left = {name: value for name, value in config.items() if name != key}
        with pytest.raises(KvplanError):
            inventory_of({"model_type": "step3p5", **left})


@pytest.mark.parametrize(("name", "count"), [("qwen2-vl-2b", 2_208_985_600), ("qwen2-vl-7b", 8_291_375_616)])
def test_published_counts_of_cards(name: str, count: int) -> None:
    """As the hub counts the files of Qwen/Qwen2-VL-2B-Instruct and -7B-Instruct."""
    config = load_card(name).config
    assert config is not None
    assert inventory_of(config).parameters == count
