"""GLM-5.3-Flash: its tensors against transformers' own class, what stays unquantised, its draft."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import load_model
from kvplan.architectures.config.view import split_quant
from kvplan.architectures.inventory import inventory_of
from kvplan.files.meta_model import tensors_on_meta
from kvplan.weights.inventory import Inventory, Role

TEXT: dict[str, Any] = {
    "model_type": "glm5_next_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 9,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 0,
    "qk_head_dim": 32,
    "v_head_dim": 32,
    "head_dim": 0,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 3,
    "index_head_dim": 32,
    "index_n_heads": 4,
    "index_topk": 64,
    "index_kpool": 4,
    "hc_mult": 4,
    "vocab_size": 2048,
    "pad_token_id": 0,
    "num_nextn_predict_layers": 0,
    "layer_types": [("linear_attention", "indexed_attention")[i % 4 == 3] for i in range(9)],
    "linear_attn_config": {"num_heads": 8, "head_dim": 32, "short_conv_kernel_size": 4},
    "tie_word_embeddings": False,
}
VISION: dict[str, Any] = {
    "model_type": "glm5_next_vision",
    "depth": 3,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_heads": 4,
    "out_hidden_size": 256,
    "projection_intermediate_size": 320,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "in_channels": 3,
    "image_size": 56,
}


def whole(**text: Any) -> dict[str, Any]:
    return {
        "model_type": "glm5_next",
        "architectures": ["Glm5NextForConditionalGeneration"],
        "text_config": {**TEXT, **text},
        "vision_config": VISION,
    }


def made(raw: dict[str, Any]) -> Inventory:
    config, quant = split_quant(raw)
    return inventory_of(config, hf_quant_config=quant)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"num_hidden_layers": 6, "layer_types": TEXT["layer_types"][:6]},
        {"hc_mult": 2},
        {"index_kpool": 8},
    ],
)
def test_as_many_numbers_as_transformers_builds(change: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="the extra gpu is not installed")
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    raw = whole(**change)
    theirs = sum(tensor.elements for tensor in tensors_on_meta(raw).tensors)
    assert made(raw).parameters == theirs


def test_no_projection_of_attention_is_quantised() -> None:
    """vLLM gives none a quantisation config, whatever the checkpoint's list of modules says."""
    found = {
        name for name, tensor in made(whole()).tensors() if tensor.role is Role.LINEAR and "self_attn" in name
    }
    assert found == set()


def test_the_draft_has_no_streams() -> None:
    """Glm5NextDecoderLayer with is_mtp_layer: one latent layer with experts, without hyper-connections."""
    config, quant = split_quant(load_model("glm-5.3-flash").config or {})
    inventory = inventory_of(config, hf_quant_config=quant)
    layers, draft = (
        [tensor.name for block in blocks for tensor in block.tensors]
        for blocks in (inventory.layers, inventory.draft)
    )
    assert any(name.startswith("hc_") for name in layers)
    assert any("self_attn.kv_b_proj" in name for name in draft)
    assert not any(name.startswith("hc_") for name in draft)


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_rank_has_its_share(gpus: int) -> None:
    result = kvplan.size("glm-5.3-flash", engine="vllm@0.33", gpu="h200-sxm", tensor_parallel_size=gpus)
    assert result.budget is not None
    weights = next(line.bytes for line in result.budget.lines if line.name == "weights")
    assert 313_890_438_974 / gpus < weights < 1.2 * 313_890_438_974 / gpus
