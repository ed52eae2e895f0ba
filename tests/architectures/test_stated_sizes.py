"""A size that is no finite whole number from 0 on stops at the door, whatever engine would have read it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.read import read_config
from kvplan.errors import KvplanError
from tests.fuzz.targets import LLAMA

KEYS = """num_local_experts first_k_dense_replace intermediate_size moe_intermediate_size num_channels depth
n_routed_experts num_experts_per_tok hidden_size max_position_embeddings rotary_dim n_inner index_n_heads
projector_hidden_size patch_size d_state conv_kernel""".split()
WILD = (-256, -(10**9), -1, math.inf, -math.inf, math.nan, 0.5, 10**18, [[1]], [8, -8], [8, math.inf])


@given(
    key=st.sampled_from(KEYS), value=st.sampled_from(WILD),
    path=st.lists(st.sampled_from(["vision_config", "text_config2", "ssm_cfg"]), max_size=3),
)  # fmt: skip
@settings(max_examples=120, deadline=None)
def test_a_wild_size_anywhere_is_refused_by_its_name(key: str, value: Any, path: list[str]) -> None:
    assume(value != -1 or not key.startswith("max_"))  # a length that is not bounded
    part: dict[str, Any] = {key: value}
    for name in path:
        part = {name: part}
    with pytest.raises(KvplanError, match=key) as found:
        read_config({**LLAMA, **part}, id="wild", source="test")
    assert found.value.code == "bad-config"


FINE: tuple[tuple[str, Any], ...] = (
    ("sliding_window", -1), ("chunk_size", -1), ("vision_feature_layer", -2), ("pad_token_id", -1),
    ("max_position_embeddings", -1),
    ("routed_scaling_factor", -2.5), ("window_sizes", [[-1, 0]]), ("num_kv_heads_per_layer", [1, 2]),
    ("quantization_config", {"quant_method": "gptq", "bits": 4, "group_size": -1}), ("scale_depth", 1.4),
    ("kernel_size", None), ("num_labels", True), ("topk_method", "greedy"), ("length_penalty", -1.0),
)  # fmt: skip


@pytest.mark.parametrize(("key", "value"), FINE)
def test_what_is_no_size_or_says_none_is_read(key: str, value: Any) -> None:
    read_config({**LLAMA, "extra_config": {key: value}}, id="fine", source="test")


@pytest.mark.parametrize("where", ["vocoder", "token2wav_config", None])
def test_sizes_of_several_parts_are_lists_in_a_list(where: str | None) -> None:
    """resblock_dilation_sizes of a vocoder, SeamlessM4T or Qwen2.5-Omni: no part of a cache, and no fault."""
    config = {**(kvplan.load_model("llama-3.1-8b").config or {})}
    sizes: dict[str, object] = {"resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]]}
    assert kvplan.load_model({**config, **(sizes if where is None else {where: sizes})}).num_layers == 32
    for wrong in ([[1, -3]], [[1, 2.5]], [[[[1]]]]):
        with pytest.raises(KvplanError, match="resblock_dilation_sizes"):
            kvplan.load_model({**config, "resblock_dilation_sizes": wrong})
