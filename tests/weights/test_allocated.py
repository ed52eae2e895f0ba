"""What torch's allocator gives for tensors: laws for any row of sizes, and weights as servers print them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.results import BudgetLine
from kvplan.units import GIB, MIB
from kvplan.weights.caching_allocator import Allocator, allocated

sizes = st.lists(st.integers(1, 64 * MIB), max_size=60)
WHOLE = 20 * MIB


@given(sizes)
def test_never_less_than_the_tensors_and_at_most_a_step_more_of_each(row: list[int]) -> None:
    for limit in (None, WHOLE):
        assert sum(row) <= allocated(row, limit) < sum(row) + 2 * MIB * len(row) + 1


@given(sizes)
def test_what_is_not_split_takes_whole_steps(row: list[int]) -> None:
    large = [size for size in row if size >= WHOLE]
    rest = [size for size in row if size < WHOLE - 512]
    assert allocated(large, WHOLE) == sum(-(-size // (2 * MIB)) * 2 * MIB for size in large)
    assert allocated(rest, WHOLE) == allocated(rest)


@given(sizes, sizes)
def test_more_tensors_take_no_less(row: list[int], more: list[int]) -> None:
    for limit in (None, WHOLE):
        assert allocated([*row, *more], limit) >= allocated(row, limit)


def line(result: kvplan.SizeResult, name: str) -> BudgetLine | None:
    assert result.budget is not None
    return next((one for one in result.budget.lines if one.name == name), None)


def loaded(model: str, version: str, gpu: str, **more: Any) -> float:
    """``Model loading took``, GiB."""
    budget = kvplan.size(model, engine=f"vllm@{version}", gpu=gpu, max_num_batched_tokens=4096, **more).budget
    assert budget is not None
    return (
        sum(
            one.bytes
            for one in budget.lines
            if one.name.startswith(("weights", "beside the weights", "rotary"))
        )
        / GIB
    )


@pytest.mark.parametrize(
    ("model", "version", "gpu", "tp", "printed"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "0.19", "h100-sxm", 1, 14.25),
        ("Qwen/Qwen2.5-7B-Instruct", "0.22", "l40s", 1, 14.29),
        ("Qwen/Qwen2.5-1.5B-Instruct", "0.30", "rtx-4090", 1, 2.98),
        ("Qwen/Qwen2.5-1.5B-Instruct", "0.29", "rtx-4090", 2, 1.5),
        ("Qwen/Qwen3-32B", "0.27", "rtx-pro-6000-blackwell", 2, 30.59),
        ("Qwen/Qwen3-8B", "0.27", "rtx-4090", 1, 15.27),
        ("google/gemma-3-27b-it", "0.19", "h100-sxm", 1, 51.45),
        ("google/gemma-4-31B-it", "0.23", "rtx-pro-6000-blackwell", 1, 58.99),
        ("google/gemma-4-26B-A4B-it", "0.20", "gb10", 1, 48.50),
    ],
)
def test_weights_as_servers_printed_them(model: str, version: str, gpu: str, tp: int, printed: float) -> None:
    assert loaded(model, version, gpu, tensor_parallel_size=tp) == pytest.approx(printed, abs=0.011)


def test_weights_that_somebody_read_are_not_rounded_again() -> None:
    given_ = kvplan.size("Qwen/Qwen2.5-7B-Instruct", engine="vllm@0.22", gpu="l40s", weights="14.29GiB")
    assert line(given_, "beside the weights") is None


@pytest.mark.parametrize(("version", "least", "most"), [("0.20", 0, 3), ("0.28", 80, 90)])
def test_quantised_matrices_have_whole_steps_since_loading_does_not_split(
    version: str, least: int, most: int
) -> None:
    """Qwen2.5-7B in AWQ, a layer: gate and up of 64.75 MiB have 66, down of 32.4 has 34."""
    packed = kvplan.size("Qwen/Qwen2.5-7B-Instruct-AWQ", engine=f"vllm@{version}", gpu="rtx-4090")
    paged = kvplan.size(
        "Qwen/Qwen2.5-7B-Instruct-AWQ",
        engine=f"vllm@{version}",
        gpu="rtx-4090",
        settings={"pytorch_alloc_conf": "expandable_segments:True"},
    )
    rounded, mapped = (line(one, "beside the weights") for one in (packed, paged))
    assert rounded is not None
    assert least * MIB <= rounded.bytes < most * MIB
    assert mapped is not None
    assert mapped.low_bytes < MIB
    torn = 10 * MIB * 28 * 4 if version >= "0.27" else 0  # of AWQ, which is unpacked as it is loaded
    assert mapped.bytes == mapped.low_bytes + torn
    assert mapped.high_bytes == mapped.low_bytes + 2 * torn


def test_pages_of_awq_as_an_h100_has_them() -> None:
    """h100-030-q3-32b-awq-pages-warm took 2.56 GiB more than the same start without expandable segments."""
    found = []
    for pages in ("native", "expandable_segments:True"):
        sized = kvplan.size(
            "Qwen/Qwen3-32B-AWQ", engine="vllm@0.30", gpu="h100", settings={"pytorch_alloc_conf": pages}
        )
        taken = line(sized, "beside the weights")
        assert taken is not None
        found.append(taken)
    plain, paged = found
    assert plain.low_bytes == plain.bytes == plain.high_bytes
    more = paged.bytes - (plain.bytes - rounded_bytes(plain))
    assert abs(more - 2.56 * GIB) < GIB / 10
    assert paged.low_bytes < paged.bytes < paged.high_bytes


def rounded_bytes(taken: BudgetLine) -> int:
    """Whole steps of 2 MiB: what is not zero points."""
    points = re.search(r"([\d.]+) GiB of zero points", taken.source)
    assert points is not None
    return taken.bytes - round(float(points[1]) * GIB)


@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans()), max_size=60))
def test_a_block_that_is_given_back_is_counted_no_more(row: list[tuple[int, bool]]) -> None:
    """Of what is held at the end no less than its bytes are counted, and less than 22 MiB more of each."""
    for limit in (None, WHOLE):
        torch = Allocator(max_split=limit)
        held = []
        for size, goes in row:
            block = torch.malloc(size)
            if goes:
                torch.free(block)
            else:
                held.append(size)
        assert sum(held) <= torch.allocated < sum(held) + (WHOLE + 2 * MIB) * len(held) + 1


@pytest.mark.parametrize(
    ("model", "version", "gpu", "printed"),
    [
        ("Qwen/Qwen3-8B", "0.27", "l4", 9.06),
        ("Qwen/Qwen3-4B", "0.29", "l4", 4.38),
        ("meta-llama/Llama-3.1-70B-Instruct", "0.23", "rtx-pro-6000-blackwell", 67.7),
    ],
)
def test_what_quantising_while_loading_leaves(model: str, version: str, gpu: str, printed: float) -> None:
    """Tensors alone come to 8.80, 4.12 and 67.71."""
    assert loaded(model, version, gpu, quantization="fp8") == pytest.approx(printed, abs=0.025)


def test_a_checkpoint_that_is_quantised_leaves_nothing() -> None:
    found = line(kvplan.size("Qwen/Qwen3-8B-FP8", engine="vllm@0.29", gpu="l4"), "beside the weights")
    assert found is not None
    assert found.bytes < 30 * MIB
