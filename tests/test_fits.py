"""Which models fit a GPU: what the list says of a model is what ``size`` says of it."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api.fitting import FitResult
from kvplan.errors import KvplanError

CASES = [("rtx-4090", "llamacpp", 8192, 1), ("2xrtx-3090", "llamacpp", 32768, 2), ("24GiB", "vllm", 8192, 4)]


@pytest.fixture(scope="module")
def results() -> list[FitResult]:
    return [
        kvplan.fits(gpu, engine=engine, tokens=tokens, requests=requests, models="qwen")
        for gpu, engine, tokens, requests in CASES
    ]


def test_what_is_listed_is_what_size_says(results: list[FitResult]) -> None:
    for result, (gpu, engine, tokens, _) in zip(results, CASES):
        assert result.rows
        for row in result.rows[::3]:
            build: dict[str, Any] = {} if row.format == "as stored" else {"quantization": row.format}
            build |= {"tp": result.gpus} if engine == "vllm" and result.gpus > 1 else {}
            sized = kvplan.size(
                row.model, engine=engine, gpu=gpu, tokens=tokens, max_model_len=tokens, **build
            )  # fmt: skip
            assert sized.weights is not None
            assert sized.weights.bytes_per_gpu == row.weights_bytes, row
            assert row.requests >= row.safe_requests >= result.asked_requests


def test_the_best_build_comes_first(results: list[FitResult]) -> None:
    """A model is listed in a build only where no better one holds the requests."""
    result = results[0]
    row = next(one for one in result.rows if one.format == "q4_k_m")
    better = kvplan.fits("rtx-4090", engine="llamacpp", models=row.model, formats=("q8_0", "q6_k", "q5_k_m"))
    assert row.model not in [one.model for one in better.rows]


def test_a_larger_card_holds_what_a_smaller_one_holds() -> None:
    small = kvplan.fits("16GiB", engine="llamacpp", models="llama")
    large = kvplan.fits("24GiB", engine="llamacpp", models="llama")
    assert {row.model for row in small.rows} <= {row.model for row in large.rows}


def test_models_that_take_no_request_that_long_are_none() -> None:
    result = kvplan.fits("80GiB", models="falcon", tokens=8192)
    assert "falcon-7b" not in [row.model for row in result.rows]
    assert dict(result.unfit)["take no request that long"] >= 1


def test_wrong_questions() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.fits("24GiB", engine="llamacpp", models="qwen3-8b", formats=("q4_km",))
    assert caught.value.code == "bad-setting"
    with pytest.raises(KvplanError):
        kvplan.fits("no-such-card")
