"""Scales of FP8 blocks on GPUs that cannot multiply FP8."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.units import GIB
from kvplan.weights import Parallel
from kvplan.weights.expanded import expanded_bytes
from kvplan.weights.formats import Format
from kvplan.weights.inventory import Block, Dim, Inventory, Split, Tensor

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
    assert expanded_bytes(inventory, Parallel(tp), 2) == (layers * (after - before),)


@pytest.mark.parametrize("form", [None, CHANNELS])
def test_other_formats_have_them_already(form: Format | None) -> None:
    assert expanded_bytes(of(form, 1024, 1024), Parallel(), 2) == (0,)


def beside(gpu: str, **options: Any) -> tuple[int, int]:
    """Bytes of weights and of what lies beside them."""
    found = kvplan.size("Qwen/Qwen3.8-27B-FP8", engine="vllm@0.27", gpu=gpu, **options).budget
    assert found is not None
    named = {line.name: line.bytes for line in found.lines}
    return named["weights"] + named["rotary tables"], named["beside the weights"]


def test_two_rtx_3090_print_them() -> None:
    """mitchross/talos-argocd-proxmox#1995, 0.27.1: 14.46 GiB on each."""
    weights, more = beside("rtx-3090", tensor_parallel_size=2)
    assert weights + more == pytest.approx(14.46 * GIB, abs=0.03 * GIB)
    assert more > 0.15 * GIB


@pytest.mark.parametrize("gpu", ["l40s", "h100", "rtx-5090", "mi300x"])
def test_gpus_with_fp8_keep_the_blocks(gpu: str) -> None:
    assert beside(gpu)[1] < 0.1 * GIB
