"""Scales of FP8 blocks on GPUs that cannot multiply FP8; zero points on Hopper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.results import SizeResult
from kvplan.units import GIB
from kvplan.weights.expanded import expanded_bytes, repeated_scales, whole_zero_points
from kvplan.weights.formats import Format, grouped
from kvplan.weights.inventory import Block, Dim, Inventory, Role, Split, Tensor
from kvplan.weights.ranks import Parallel

BLOCKS = Format("fp8, blocks of 128 × 128", 8, (128, 128), 4)
CHANNELS = Format("fp8", 8, (1, 0), 4)


def of(form: Format | None, rows: int, columns: int, layers: int = 1) -> Inventory:
    tensor = Tensor("w", (Dim("n", rows, Split.EVEN),), (Dim("k", columns),), form=form)
    return Inventory((), tuple(Block(f"layers.{i}", (tensor,)) for i in range(layers)))


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.sampled_from([1, 2]))
def test_every_output_has_a_scale_for_each_block_of_inputs(
    high: int, wide: int, layers: int, tp: int
) -> None:
    rows, columns = 128 * high * tp, 128 * wide
    before = high * wide * 4
    after = (rows // tp) * wide * 2
    inventory = of(BLOCKS, rows, columns, layers)
    assert expanded_bytes(inventory, Parallel(tp), repeated_scales, 2) == (layers * (after - before),)


@pytest.mark.parametrize("form", [None, CHANNELS])
def test_other_formats_have_them_already(form: Format | None) -> None:
    assert expanded_bytes(of(form, 1024, 1024), Parallel(), repeated_scales, 2) == (0,)


def beside(gpu: str, **options: Any) -> tuple[int, int]:
    """Bytes of weights and of what lies beside them."""
    found = kvplan.size("Qwen/Qwen3.8-27B-FP8", engine="vllm@0.27", gpu=gpu, **options).budget
    assert found is not None
    named = {line.name: line.bytes for line in found.lines}
    return named["weights"] + named["rotary tables"], named["beside the weights"]


def test_two_rtx_3090_print_them() -> None:
    """mitchross/talos-argocd-proxmox#1995, 0.27.1 with expandable segments: 14.46 GiB on each."""
    pages = "expandable_segments:True"
    weights, more = beside("rtx-3090", tensor_parallel_size=2, pytorch_alloc_conf=pages)
    assert weights + more == pytest.approx(14.46 * GIB, abs=0.03 * GIB)
    assert more > 0.15 * GIB


@pytest.mark.parametrize("gpu", ["l40s", "h100", "rtx-5090", "mi300x"])
def test_gpus_with_fp8_keep_the_blocks(gpu: str) -> None:
    assert beside(gpu)[1] < 0.1 * GIB


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([4, 8]), st.sampled_from([64, 128]))
def test_every_zero_point_is_whole(high: int, wide: int, bits: int, group: int) -> None:
    rows, columns = 128 * high, group * wide
    inventory = of(grouped(bits, group, zeros=True), rows, columns)
    before, after = rows * wide * bits // 8, rows * wide * 2
    assert expanded_bytes(inventory, Parallel(), whole_zero_points, 2) == (after - before,)


@pytest.mark.parametrize("form", [None, BLOCKS, grouped(4, 128, zeros=False), grouped(4, 32, zeros=True)])
def test_without_zero_points_nothing_is_added(form: Format | None) -> None:
    assert expanded_bytes(of(form, 1024, 1024), Parallel(), whole_zero_points, 2) == (0,)


def test_experts_keep_theirs_packed() -> None:
    tensor = of(grouped(4, 128, zeros=True), 1024, 1024).layers[0].tensors[0]
    assert whole_zero_points(tensor, 2) > 0
    assert whole_zero_points(replace(tensor, role=Role.EXPERT), 2) == 0


def weighs(gpu: str, version: str) -> tuple[int, int]:
    found: SizeResult = kvplan.size("Qwen/Qwen2.5-7B", engine=f"vllm@{version}", gpu=gpu, quantization="awq")
    assert found.budget is not None
    named = {line.name: line.bytes for line in found.budget.lines}
    return named["weights"], named["beside the weights"]


def test_an_awq_start_on_an_h100_has_them() -> None:
    """h100-033-q25-7b-awq-cold: parameters of 28 layers with 233,046,016 numbers each, in groups of 128."""
    stored, beside = weighs("h100", "0.33")
    more = 28 * 233_046_016 // 128 * 3 // 2
    assert stored + more == 5_647_215_616
    assert weighs("h100", "0.21") == weighs("a100-80gb", "0.33") == weighs("rtx-5090", "0.33")
    assert weighs("h100", "0.21") == (stored, beside - more)
