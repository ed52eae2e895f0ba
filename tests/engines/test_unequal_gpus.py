"""GPUs of several kinds in one server: llama.cpp deals layers by what each has; the others refuse."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import gpus_of
from kvplan.engines.llamacpp.cache_layout.caches import place
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from kvplan.units import GIB, human_bytes

CARDS = ("rtx-3090", "rtx-3060", "rtx-4090", "rtx-5090", "rtx-4060-ti-16gb", "rtx-2080-ti")


def sized(gpu: str, **options: Any) -> SizeResult:
    return kvplan.size(
        "llama-3.1-8b", engine="llamacpp", gpu=gpu, **{"quantization": "q4_k_m", "tokens": 8192, **options}
    )


def held(gpu: str, **options: Any) -> int:
    pool = sized(gpu, **options).pool
    return 0 if pool is None else pool.requests_that_fit


def test_a_row_of_gpus_is_read() -> None:
    row, count = gpus_of("2x3090+rtx 3060 12gb")
    assert count == 3
    assert [gpu.slug for gpu in row.row] == ["rtx-3090-24gb", "rtx-3090-24gb", "rtx-3060-12gb"]
    assert gpus_of(row.slug) == (row, 3)
    assert gpus_of(row) == (row, 3)
    equal, count = gpus_of("3090+3090")
    assert (equal.slug, equal.row, count) == ("rtx-3090-24gb", (), 2)
    with pytest.raises(KvplanError) as caught:
        gpus_of("3090+nope")
    assert caught.value.code == "unknown-gpu"


def test_a_plan_has_one_kind() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.plan("llama-3.1-8b", engine="llamacpp", gpu=["rtx-3090+rtx-3060"], tokens=8192)
    assert caught.value.code == "unequal-gpus"


def test_a_name_with_a_plus_is_one_gpu() -> None:
    assert gpus_of("ryzen-ai-max+-395") == gpus_of("strix-halo")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_engines_that_divide_equally_refuse(engine: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("llama-3.1-8b", engine=engine, gpu="rtx-3090+rtx-3060", tokens=8192)
    assert caught.value.code == "unequal-gpus"


@given(
    layers=st.integers(1, 100),
    split=st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any),
    n_gpu_layers=st.none() | st.integers(0, 110),
)
def test_layers_are_dealt_as_upper_bound_does(
    layers: int, split: list[int], n_gpu_layers: int | None
) -> None:
    """In order, nothing to a GPU without a share, and within a layer of its proportion."""
    dealt = place(layers, len(split), n_gpu_layers, tuple(split))
    there = [device for device in dealt if device is not None]
    assert there == sorted(there)
    assert all(split[device] for device in there)
    on_gpu = layers + 1 if n_gpu_layers is None else min(n_gpu_layers, layers + 1)
    ends = list(accumulate(split))
    for device in range(len(split)):
        low = 0 if device == 0 else ends[device - 1]
        share = (ends[device] - low) * on_gpu / ends[-1]
        assert abs(there.count(device) - share) <= 2


@given(layers=st.integers(1, 100), devices=st.integers(1, 8), share=st.integers(1, 9))
def test_equal_shares_are_the_default(layers: int, devices: int, share: int) -> None:
    assert place(layers, devices, None, (share,) * devices) == place(layers, devices, None)


@settings(max_examples=8, deadline=None)
@given(pair=st.permutations(CARDS))
def test_a_pair_holds_what_each_of_its_gpus_has_room_for(pair: list[str]) -> None:
    """No GPU is overfull with the requests that fit, and one more would overfill one."""
    first, second = pair[:2]
    found = sized(f"{first}+{second}")
    assert found.pool is not None
    assert found.budget is not None
    most = found.pool.requests_that_fit
    fixed = sum(line.bytes for line in found.budget.lines if line.name != "weights")

    def overfull(requests: int) -> list[str]:
        asked = sized(f"{first}+{second}", requests=requests, kv_cache_memory=10**15)
        row = gpus_of(f"{first}+{second}")[0].row
        weights = [one.weights_bytes for one in found.devices]
        full = []
        for gpu, one, loaded in zip(row, asked.devices, weights):
            assert gpu.memory_total_bytes is not None
            assert loaded is not None
            if one.kv_bytes + loaded + fixed > gpu.memory_total_bytes:
                full.append(gpu.slug)
        return full

    assert not overfull(most)
    assert overfull(most + 1) or most == 256


def test_a_second_card_never_makes_it_less() -> None:
    assert held("rtx-3090") < held("rtx-3090+rtx-3060") < held("2xrtx-3090")


def test_a_stated_split_is_taken() -> None:
    ours = sized("rtx-3090+rtx-3060", tensor_split="1,1")
    assert [one.layers for one in ours.devices] == [17, 15]
    assert any("as stated" in text for text in ours.warnings)
    assert held("rtx-3090+rtx-3060", tensor_split="1,1") < held("rtx-3090+rtx-3060")
    assert held("2xrtx-3090", tensor_split="3,1") < held("2xrtx-3090")
    assert sized("2xrtx-3090", tensor_split="0.6,0.4") == sized("2xrtx-3090", tensor_split="3,2")
    with pytest.raises(KvplanError, match="3 proportions for 2 GPUs"):
        sized("rtx-3090+rtx-3060", tensor_split="1,1,1")


def test_the_memory_shown_is_that_of_the_gpu_with_the_least_left() -> None:
    found = sized("rtx-3090+rtx-3060")
    assert found.budget is not None
    assert found.budget.gpu == "rtx-3060-12gb"
    assert found.settings["unequal_gpus"] == "rtx-3090-24gb+rtx-3060-12gb"
    assert 0 < found.budget.kv_pool_bytes < 12 * GIB


def test_what_does_not_fit_names_the_bytes_of_the_gpu_that_is_full() -> None:
    found = sized("rtx-3060+rtx-2080-ti", tokens=131072, n_gpu_layers=99)
    assert found.refusal is not None
    assert f"needs {human_bytes(max(one.kv_bytes for one in found.devices))} on" in found.refusal.message
    longest = found.refusal.largest_max_model_len
    assert sized("rtx-3060+rtx-2080-ti", tokens=longest, n_gpu_layers=99).refusal is None


def test_a_row_is_a_value() -> None:
    row = gpus_of("rtx-3090+rtx-3060")[0]
    assert row == replace(row)
    assert hash(row) == hash(replace(row))
