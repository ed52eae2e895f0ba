"""Numbers of a config that no model has: an answer that can be, or an error that names the key."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import size
from kvplan.architectures.config.view import MAX_LAYERS
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.results import Budget, BudgetLine, SizeResult, about, exact, left_over
from kvplan.weights.inventory import Dim
from kvplan.weights.ranks import bytes_by_stage

TEXT = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 4}
LLAMA = {**TEXT, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
           "num_hidden_layers": 2, "patch_size": 16}  # fmt: skip
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 64, "num_attention_heads": 4,
          "intermediate_size": 128, "num_hidden_layers": 2}  # fmt: skip
KIMI = {"vt_hidden_size": 64, "vt_num_attention_heads": 4, "vt_intermediate_size": 128, "patch_size": 14,
        "vt_num_hidden_layers": 2, "init_pos_emb_height": 64, "init_pos_emb_width": 64}  # fmt: skip
TEXT_OF = {"text_config": {**LLAMA}}
WRAPPERS: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {**TEXT, "vision_config": {}},
    "qwen3_vl": {"text_config": {**TEXT, "model_type": "qwen3_vl_text"}, "vision_config": {}},
    "gemma3": {"text_config": {**TEXT, "model_type": "gemma3_text"}, "vision_config": SIGLIP},
    "mistral3": {"text_config": {**TEXT, "model_type": "mistral"}, "vision_config": PIXTRAL},
    "lfm2_vl": {
        "text_config": {**TEXT, "model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 2},
        "vision_config": {**SIGLIP, "model_type": "siglip2_vision_model"},
    },
    "kimi_k25": {"text_config": {**TEXT, "model_type": "deepseek_v3"}, "vision_config": KIMI},
    "llama4": {"text_config": {**TEXT, "model_type": "llama4_text"}, "vision_config": {}},
}
DEPTHS = {"qwen2_5_vl": "depth", "qwen3_vl": "depth", "kimi_k25": "vt_num_hidden_layers"}


def config(model_type: str) -> dict[str, Any]:
    """A small model of the type; what is not said is its class's default."""
    if model_type in WRAPPERS:
        return {"model_type": model_type, **WRAPPERS[model_type]}
    return {**TEXT, "model_type": model_type, "intermediate_size": 1024, "vocab_size": 1000}


def asked(raw: dict[str, Any], **more: Any) -> SizeResult | None:
    """The answer, or None where the config is refused. Anything else is raised."""
    with contextlib.suppress(KvplanError):
        return size(raw, gpu="h100", tokens=100, **more)
    return None


def put(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    key, _, rest = path.partition(".")
    return {**raw, key: put(raw.get(key, {}), rest, value) if rest else value}


@pytest.mark.parametrize("model_type", sorted(WRAPPERS))
def test_equal_blocks_of_a_tower_are_one(model_type: str) -> None:
    """No object for each block: the inventory is as long for 4,096 of them as for two, and counts them."""
    key = f"vision_config.{DEPTHS.get(model_type, 'num_hidden_layers')}"
    two, three, most = (inventory_of(put(config(model_type), key, depth)) for depth in (2, 3, MAX_LAYERS))
    assert len(two.ends) == len(most.ends)
    block = three.parameters - two.parameters
    assert block > 0
    assert most.parameters == two.parameters + (MAX_LAYERS - 2) * block
    names, fewer = ({name for name, _ in made.tensors()} for made in (three, two))
    assert {name.replace(".2.", ".1.") for name in names - fewer} <= fewer
    assert len(names - fewer) >= 8
    for depth in (MAX_LAYERS + 1, 10**6, 2**31 - 1, 0, -1):
        with pytest.raises(KvplanError) as caught:
            inventory_of(put(config(model_type), key, depth))
        assert caught.value.code == "bad-config"


@pytest.mark.parametrize("key", ["num_layers", "num_decoder_layers"])
def test_layers_of_encoders_and_decoders_are_bounded(key: str) -> None:
    raw = {"model_type": "t5", "d_model": 64, "num_heads": 4, "d_kv": 16, "d_ff": 128, "num_layers": 2,
           "vocab_size": 100}  # fmt: skip
    assert inventory_of(raw).parameters > 0
    with pytest.raises(KvplanError):
        inventory_of({**raw, key: 2**31 - 1})


ABSURD = [
    math.inf, -math.inf, [[]], [1], [14, {}], "x", "8", "9" * 4300, {}, 1e308, -1, 0, -(10**9), 10**30,
    1e-300, True, ["x"] * 4, [100] * 3, None,
]  # fmt: skip
KEYS = [
    ("mistral3", "spatial_merge_size"),
    ("mistral3", "multimodal_projector_bias"),
    ("lfm2_vl", "projector_hidden_size"),
    ("lfm2_vl", "downsample_factor"),
    ("lfm2_vl", "projector_use_layernorm"),
    ("lfm2_vl", "text_config.block_ffn_dim_multiplier"),
    ("lfm2", "block_ffn_dim_multiplier"),
    ("jamba", "mamba_dt_rank"),
    ("jamba", "mamba_expand"),
    ("mamba", "expand"),
    ("mamba", "time_step_rank"),
    ("kimi_k25", "vision_config.merge_kernel_size"),
    ("llama4", "vision_config.pixel_shuffle_ratio"),
    ("gemma3n_text", "intermediate_size"),
    ("mpt", "expansion_ratio"),
    ("llama", "rope_scaling.factor"),
    ("llama", "rope_scaling.original_max_position_embeddings"),
    ("llama", "partial_rotary_factor"),
    ("qwen2_5_vl", "vision_config.spatial_merge_size"),
    ("qwen3_vl", "vision_config.deepstack_visual_indexes"),
]


@pytest.mark.parametrize(("model_type", "key"), KEYS, ids=str)
def test_absurd_values_are_answered_or_refused(model_type: str, key: str) -> None:
    ropes = ["yarn", "linear", "longrope"] if "rope" in key else [""]
    for value, rope in product(ABSURD, ropes):
        raw = config(model_type)
        if rope:
            scaling = {"rope_type": rope, "factor": 2.0, "original_max_position_embeddings": 2048}
            raw = {**LLAMA, "intermediate_size": 1024, "rope_scaling": scaling}
        answer = asked(put(raw, key, value))
        if answer is not None and answer.budget is not None:
            check(answer.budget)


def check(budget: Budget) -> None:
    for line in budget.lines:
        assert 0 <= line.low_bytes <= line.bytes <= line.high_bytes, line
    assert 0 <= budget.kv_pool_low_bytes <= budget.kv_pool_bytes <= budget.kv_pool_high_bytes
    assert budget.kv_pool_high_bytes <= budget.total_bytes
    if budget.kv_pool_bytes:
        used = sum(line.bytes for line in budget.lines)
        assert used + budget.kv_pool_bytes + budget.unused_bytes == budget.total_bytes


@pytest.mark.parametrize("scaling", [
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": -(10**9)},
    {"rope_type": "linear", "factor": -1},
    {"rope_type": "linear", "factor": 1e308},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": "2048"},
])  # fmt: skip
def test_rotary_factors_are_numbers_above_zero(scaling: dict[str, Any]) -> None:
    raw = {**LLAMA, "intermediate_size": 1024, "max_position_embeddings": 4096, "rope_scaling": scaling}
    with pytest.raises(KvplanError) as caught:
        size(raw, gpu="h200")
    assert caught.value.code == "bad-config"


ANY = st.integers(-(2**40), 2**40)


@given(st.lists(st.tuples(ANY, ANY, ANY), max_size=4), ANY, ANY)
def test_no_budget_is_impossible(amounts: list[tuple[int, int, int]], total: int, usable: int) -> None:
    """Whatever is counted: a budget is in order, or it is a KvplanError. There is no third."""
    with contextlib.suppress(KvplanError):
        lines = tuple(BudgetLine("x", *amount, "y") for amount in amounts)
        check(left_over("g", total, usable, lines, calibrated=True))


@given(ANY, ANY)
def test_lines_are_made_in_order(amount: int, margin: int) -> None:
    fine = {"exact": amount >= 0, "about": amount >= 0 and margin >= 0}
    made: dict[str, Callable[[], BudgetLine]] = {
        "exact": lambda: exact("x", amount, "y"),
        "about": lambda: about("x", amount, margin, "y"),
    }
    for name, make in made.items():
        if fine[name]:
            line = make()
            assert 0 <= line.low_bytes <= line.bytes <= line.high_bytes
        else:
            with pytest.raises(KvplanError, match="no memory can be divided like this"):
                make()


def test_no_tensor_has_less_than_nothing() -> None:
    with pytest.raises(KvplanError, match="no tensor has such a size"):
        Dim("x", -1)


def test_a_tower_weighs_what_its_blocks_weigh() -> None:
    """In formats that differ between blocks too: a checkpoint's list leaves single blocks as they were."""
    raw = config("qwen3_vl")
    raw["text_config"] = {**raw["text_config"], "intermediate_size": 1024, "vocab_size": 1000}
    raw["vision_config"] = {"depth": 3}
    kept = [f"visual.blocks.1.mlp.linear_fc{index}" for index in (1, 2)]

    def stored(*ignored: str) -> int:
        method = {
            "quant_method": "compressed-tensors", "format": "float-quantized",
            "ignore": ["lm_head", *ignored],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}}},
        }  # fmt: skip
        return sum(bytes_by_stage(inventory_of({**raw, "quantization_config": method})))

    none, one, both = stored(), stored(kept[0]), stored(*kept)
    assert none < one < both
    every = [name.replace(".1.", f".{block}.") for block in range(3) for name in kept]
    assert stored(*every) - none == 3 * (both - none)
