"""Tables of hashed n-grams (Qwen4-Exp): their rows are primes, and vLLM looks them up in the CPU's memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.blocks.primes import EXACT_BELOW, is_prime, primes_from
from kvplan.architectures.config.read import read_config
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.units import GIB
from kvplan.weights.ranks import Parallel, lookup_bytes
from tests.engines.vllm_own_cases import OWN

MODEL = "Qwen/Qwen3.8-Flash-Next"
PUBLISHED = 179_999_981_459
HASHES = 3 + 16 + 16
"""Numbers beside the weights: multipliers of the tokens, sizes and offsets of the heads."""


def _by_division(number: int) -> bool:
    return number > 1 and all(number % low for low in range(2, int(number**0.5) + 1))


@given(st.integers(0, 200_000) | st.integers(EXACT_BELOW - 3000, EXACT_BELOW - 1))
def test_a_prime_is_one(number: int) -> None:
    assert is_prime(number) == _by_division(number)


@given(st.integers(0, 50_000), st.integers(0, 20))
def test_they_follow_each_other(first: int, how_many: int) -> None:
    found = primes_from(first, how_many)
    assert found == [one for one in range(first, max(found, default=0) + 1) if _by_division(one)]
    assert len(found) == how_many


def test_the_published_number_of_parameters() -> None:
    config = kvplan.load_model(MODEL).config
    assert config is not None
    inventory = inventory_of(config)
    drafted = sum(tensor.elements for block in inventory.draft for tensor in block.tensors)
    assert inventory.parameters + drafted + HASHES == PUBLISHED


def test_each_table_goes_on_where_the_one_before_ended() -> None:
    """Heads of all tables have different primes."""
    config = OWN["qwen4-exp-ngram"] | {"ple_layer_ids": [2, 5], "make_ngram_vocab_size_divisible_by": 1}
    first, second = (
        next(t for t in block.tensors if "ngram" in t.name) for block in inventory_of(config).layers[1::3][:2]
    )
    primes, width = primes_from(1000, 16), 512 // 8
    assert (first.elements, second.elements) == (sum(primes[:8]) * width, sum(primes[8:]) * width)


@pytest.mark.parametrize(("release", "on_gpu"), [("0.29.0", True), ("0.30.0", False), ("0.33.0", False)])
def test_vllm_keeps_them_off_the_gpu(release: str, on_gpu: bool) -> None:
    inventory = inventory_of(kvplan.load_model(MODEL).config or {})
    (table,) = lookup_bytes(inventory, Parallel(tensor_parallel_size=4))
    result = kvplan.size(MODEL, engine=f"vllm@{release}", gpu="h200", tensor_parallel_size=4)
    assert result.budget is not None
    (weights,) = (line for line in result.budget.lines if line.name == "weights")
    assert weights.bytes // GIB == (83 if on_gpu else 59)
    assert [line.bytes for line in result.host if line.name == "n-gram tables"] == (
        [] if on_gpu else [4 * table]
    )


def test_no_second_stage_has_the_ids() -> None:
    result = kvplan.size(MODEL, engine="vllm@0.33.0", gpu="h200", pipeline_parallel_size=2)
    assert result.refusal is not None
    assert "n-gram" in result.refusal.message


@pytest.mark.parametrize("release", ["0.29.0", "0.30.0"])
def test_an_fp8_cache_came_later(release: str) -> None:
    asked: dict[str, Any] = {"gpu": "h200", "tensor_parallel_size": 4, "kv_cache_dtype": "fp8"}
    refused = kvplan.size(MODEL, engine=f"vllm@{release}", **asked).refusal
    assert refused is not None
    assert "bfloat16 only" in refused.message
    assert kvplan.size(MODEL, engine="vllm@0.31.0", **asked).refusal is None


def test_how_many_groups_are_chosen_was_fixed() -> None:
    model = read_config(OWN["qwen4-exp"] | {"indexer_compress_ratio": 16}, id="m", source="m")
    older, newer = (
        kvplan.size(model, engine=f"vllm@{release}", gpu="h100").refusal for release in ("0.31.0", "0.32.0")
    )
    assert older is not None
    assert "128 groups" in older.message
    assert newer is None


def test_v41_on_blackwell_before_its_rows_were_known() -> None:
    with pytest.raises(KvplanError, match="not known"):
        kvplan.size("deepseek-v4.1-flash", engine="vllm@0.30.0", gpu="b200", tensor_parallel_size=8)
    kvplan.size("deepseek-v4.1-flash", engine="vllm@0.30.0", gpu="h200", tensor_parallel_size=8)
