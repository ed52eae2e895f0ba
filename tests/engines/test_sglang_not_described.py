"""Classes of which SGLang's planner says something else than their layers do: no answer."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.errors import KvplanError
from tests.engines.vllm_class_cases import MADE


@pytest.mark.parametrize("name", ["iquest-loop", "iquest-loop-3", "step-3-vl"])
def test_no_answer_where_the_planner_says_otherwise(name: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(dict(MADE[name].config), engine="sglang", tokens=100)
    assert caught.value.code == "unknown-rule"
    assert kvplan.size(dict(MADE[name].config), engine="vllm", tokens=100).refusal is None
