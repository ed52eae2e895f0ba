"""Engines whose pool is as large as their slots: what lies beside it follows them, so the engine is asked."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan

START: dict[str, Any] = {"engine": "llamacpp", "gpu": "h100", "tokens": 8192}


@pytest.mark.parametrize("layers", [5, 14, 20, 28, 99])
@pytest.mark.parametrize("weights", [None, "4GiB"])
def test_the_most_requests_are_those_that_start(layers: int, weights: str | None) -> None:
    """The planner says a number: the engine starts with it, and with no slot more."""
    own = {"weights": weights} if weights else {"quantization": "f16"}
    asked = {**START, "n_gpu_layers": layers, **own}
    found = kvplan.plan(
        "qwen3-0.6b", requests=1, objective="requests", max_gpus=1, quality="lossless", pool="likely", **asked
    )
    most = found.options[0].requests
    assert most > 8

    def starts(slots: int) -> bool:
        start = kvplan.size(
            "qwen3-0.6b", settings={"ctx_size": 8192 * slots, "parallel": slots}, requests=slots, **asked
        )
        return start.refusal is None and (start.pool is None or start.pool.max_requests >= slots)

    assert starts(most)
    assert most == 256 or not starts(most + 1)


def test_more_than_one_engine_holds_are_spread() -> None:
    found = kvplan.plan(
        "qwen3-0.6b", requests=200, settings={"n_gpu_layers": 20}, max_gpus=2, quality="lossless", **START
    )
    assert found.options[0].replicas == 2
