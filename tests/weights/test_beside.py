"""What vLLM makes with the weights that no checkpoint holds: K and V of sharing layers, a buffer of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model
from kvplan.architectures.weights import sources_of
from kvplan.engines.vllm.memory.allocator_rounding import layer_embeddings, with_shared_keys
from kvplan.units import GIB, MIB

E4B, E2B = "google/gemma-4-E4B-it", "google/gemma-4-E2B-it"


def taken(model: str, release: str, tokens: int = 2048) -> int:
    """``Model loading took``, bytes."""
    budget = kvplan.size(
        model, engine=f"vllm@{release}", gpu="rtx-3090-ti", max_num_batched_tokens=tokens, max_model_len=8192
    ).budget
    assert budget is not None
    return sum(
        line.bytes
        for line in budget.lines
        if line.name.startswith(("weights", "beside the weights", "rotary"))
    )


def test_a_server_of_0_22_printed_it() -> None:
    """15.18 GiB; 0.18 of it was missing before."""
    assert taken(E4B, "0.22.1") / GIB == pytest.approx(15.18, abs=0.03)


def test_layers_that_share_have_queries_alone_since_0_30() -> None:
    """18 layers of E4B: 15 windowed with 2 heads of 256, 3 full ones with 2 of 512; hidden size 2560."""
    shared = 2 * 2 * 2560 * 2 * (15 * 256 + 3 * 512)
    assert shared == 105 * MIB
    assert shared <= taken(E4B, "0.29") - taken(E4B, "0.30") < shared + 18 * 2 * MIB
    model = load_model(E4B)
    inventory = sources_of(model).inventory
    assert inventory is not None
    assert with_shared_keys(model, inventory, (0, 30)) is inventory
    made = with_shared_keys(model, inventory, (0, 29))
    assert 2 * (made.parameters - inventory.parameters) == shared
    assert with_shared_keys(model, made, (0, 29)).parameters == made.parameters


@given(st.integers(1, 65536), st.sampled_from([E4B, E2B]), st.sampled_from([(0, 20), (0, 29), (0, 33)]))
def test_the_buffer_has_a_row_a_token(tokens: int, name: str, release: tuple[int, int]) -> None:
    layers = {E4B: 42, E2B: 35}[name]
    assert layer_embeddings(load_model(name), tokens, 2, release) == tokens * layers * 256 * 2


def test_the_buffer_grows_with_the_batch_on_the_screen() -> None:
    assert taken(E4B, "0.33", 4096) - taken(E4B, "0.33", 2048) == 2048 * 42 * 256 * 2


@pytest.mark.parametrize("name", ["google/gemma-4-31B-it", "google/gemma-3-27b-it", "Qwen/Qwen3-8B"])
def test_other_models_have_neither(name: str) -> None:
    model = load_model(name)
    inventory = sources_of(model).inventory
    assert inventory is not None
    assert with_shared_keys(model, inventory, (0, 25)).parameters == inventory.parameters
    assert layer_embeddings(model, 8192, 2, (0, 25)) == 0
