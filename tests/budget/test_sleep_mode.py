"""`--enable-sleep-mode`: weights in a pool of their own, of which part may count as free until 0.27."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.results import Budget


def budget(model: str, version: str, **asked: Any) -> Budget:
    result = kvplan.size(model, engine=f"vllm@{version}", gpu="l40s", max_model_len=8192, **asked)
    assert result.budget is not None
    return result.budget


@pytest.mark.parametrize("version", ["0.20", "0.26", "0.27", "0.33"])
@pytest.mark.parametrize("stored", [None, "fp8", "awq"])
def test_only_the_high_end_moves_and_only_where_layouts_change(version: str, stored: str | None) -> None:
    model = "qwen2.5-7b-instruct-awq" if stored == "awq" else "qwen2.5-7b-instruct"
    asked = {"quantization": stored} if stored == "fp8" else {}
    awake = budget(model, version, **asked)
    asleep = budget(model, version, enable_sleep_mode=True, **asked)
    assert asleep.kv_pool_bytes == awake.kv_pool_bytes
    assert asleep.kv_pool_low_bytes == awake.kv_pool_low_bytes
    more = asleep.kv_pool_high_bytes - awake.kv_pool_high_bytes
    weights = next(line.bytes for line in awake.lines if line.name == "weights")
    if stored is None or version in ("0.27", "0.33"):
        assert more == 0
    else:
        assert 0 < more <= weights // 2


def test_the_screen_says_why() -> None:
    line = next(
        one
        for one in budget("qwen2.5-7b-instruct-awq", "0.26", enable_sleep_mode=True).lines
        if one.name == "weights"
    )
    assert "sleep mode" in line.source
