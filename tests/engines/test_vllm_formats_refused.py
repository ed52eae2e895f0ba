"""Formats of weights that vLLM stops at: GPTQ's activation order, and experts that ranks would cut."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.read import read_config
from kvplan.results import Refusal
from tests.recorded import model_of

GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}


def refusal(quantised: dict[str, Any], release: str = "0.33") -> Refusal | None:
    config = copy.deepcopy(dict(model_of("Qwen__Qwen2.5-7B-Instruct").config or {}))
    model = read_config({**config, "quantization_config": quantised}, id="build", source="test")
    return kvplan.size(model, engine=f"vllm@{release}", gpu="a100", max_model_len=4096).refusal


def test_activation_order_with_groups_is_refused_since_0_30() -> None:
    """utils/gptq_utils.py, normalize_and_validate_gptq_desc_act; vLLM 0.33 refused eight of eight."""
    for release in ("0.30", "0.32", "0.33"):
        found = refusal(GPTQ, release)
        assert found is not None
        assert "desc_act" in found.message
    assert refusal(GPTQ, "0.29") is None


@pytest.mark.parametrize("other", [{"desc_act": False}, {"group_size": -1}])
def test_without_order_or_groups_it_starts(other: dict[str, Any]) -> None:
    assert refusal({**GPTQ, **other}) is None


def test_a_dynamic_rule_may_ask_for_it() -> None:
    plain = {**GPTQ, "desc_act": False}
    assert refusal({**plain, "dynamic": {"+:.*mlp.*": {"desc_act": True}}}) is not None
    assert refusal({**plain, "dynamic": {"-:.*mlp.*": {"desc_act": True}}}) is None


@pytest.mark.parametrize(
    ("tp", "dp", "width"), [(1, 8, 128), (8, 1, 256), (4, 1, 256), (2, 1, 512), (8, 2, 128)]
)
def test_kimi_linear_pads_experts_for_tensor_parallel_ranks_alone(tp: int, dp: int, width: int) -> None:
    """vllm/models/kimi_k3/nvidia/model.py: at least 256 of a rank, and without padding under data parallelism
    alone (DP 8: 15,804,268,544 bytes a rank in vLLM 0.33's class)."""
    from kvplan.weights.inventory import Dim, Split
    from kvplan.weights.ranks import Parallel, on_rank

    dim = Dim("expert width", 1024, Split.EXPERT_WIDTH, 256)
    assert on_rank(dim, Parallel(tensor_parallel_size=tp, data_parallel_size=dp)) == width
