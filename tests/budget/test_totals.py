"""What of a GPU's memory its runtime reports, where nobody published it: a law for each class."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import kvplan
from kvplan.api.planning.inputs import is_usual
from kvplan.engines.budget.parts import KEPT_BY_DRIVER, kept_by_driver, memory_of, of_share, wired_by_macos
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from kvplan.units import GIB, MIB

ROUGH = {"gh200-96gb"}
"""Of which the total was read to a tenth of a GiB, and is far from all others."""
BOTH = [
    gpu
    for gpu in list_gpus()
    if gpu.vendor == "nvidia" and not gpu.is_mig_slice and gpu.slug not in ROUGH
    and gpu.memory_total_bytes and gpu.memory_nvml_bytes
]  # fmt: skip


def test_enough_cards_stand_behind_the_law() -> None:
    assert len(BOTH) >= 35
    assert {gpu.arch for gpu in BOTH} >= {"Turing", "Ampere", "Ada", "Hopper", "Blackwell"}


@pytest.mark.parametrize("gpu", BOTH, ids=lambda gpu: gpu.slug)
def test_the_driver_keeps_what_the_law_says(gpu: Gpu) -> None:
    assert gpu.memory_total_bytes is not None
    assert gpu.memory_nvml_bytes is not None
    likely, least, most = kept_by_driver(gpu.memory_nvml_bytes, gpu.arch)
    kept = gpu.memory_nvml_bytes - gpu.memory_total_bytes
    assert least <= kept <= most
    assert abs(kept - likely) <= 110 * MIB


@pytest.mark.parametrize("gpu", BOTH, ids=lambda gpu: gpu.slug)
def test_a_card_without_a_total_has_an_interval_around_it(gpu: Gpu) -> None:
    total, lines, said = memory_of(replace(gpu, memory_total_bytes=None))
    assert total == gpu.memory_nvml_bytes
    assert "not published" in " ".join(said)
    line = next(line for line in lines if line.name == "kept by the driver")
    assert line.low_bytes < line.bytes < line.high_bytes


@pytest.mark.parametrize("utilization", ["0.3", "0.6", "0.85", "0.92", "1"])
@pytest.mark.parametrize("slug", ["rtx-3050-6gb", "rtx-3090-ti-24gb", "h200-nvl-141gb"])
def test_an_engine_misses_the_share_that_it_asks_for(slug: str, utilization: str) -> None:
    """requested = ceil(total · utilisation), the runtime's total (vllm/v1/worker/utils.py request_memory)."""
    card = load_gpu(slug)
    total, lines, _ = memory_of(card)
    kept = next(line for line in lines if line.name == KEPT_BY_DRIVER)
    assert total is not None
    asked: dict[str, Any] = {
        "engine": "vllm@0.26",
        "gpu_memory_utilization": utilization,
        "max_model_len": 1024,
    }
    small = kvplan.load_model("Qwen/Qwen3-0.6B")
    for end, pool in (("bytes", "kv_pool_bytes"), ("low_bytes", None), ("high_bytes", None)):
        known = replace(card, memory_total_bytes=total - getattr(kept, end))
        without, told = (kvplan.size(small, gpu=gpu, **asked).budget for gpu in (card, known))
        assert without is not None
        assert told is not None
        line = next(line for line in without.lines if line.name == KEPT_BY_DRIVER)
        share = Fraction(utilization)
        assert abs(getattr(line, end) - share * getattr(kept, end)) <= 1
        if pool is not None:
            assert abs(getattr(without, pool) - getattr(told, pool)) <= 2


def test_unified_memory_is_held_whole() -> None:
    _, lines, _ = memory_of(load_gpu("gb10-128gb"))
    assert of_share(lines, Fraction(1, 2)) == lines


MACS = [
    (16, 11453.25, True), (32, 22906.50, True), (36, 28991.03, True), (48, 38654.71, True),
    (64, 51539.61, True), (18, 14302.25, False), (32, 26800.60, False), (36, 30150.67, False),
    (48, 40200.90, False), (64, 55662.79, False), (128, 115448.73, False),
]  # fmt: skip
"""GB of memory, recommendedMaxWorkingSetSize in MB as llama.cpp printed it, whether before macOS 26."""


@pytest.mark.parametrize(("size", "printed", "older"), MACS)
def test_macs_wire_what_llamacpp_prints(size: int, printed: float, older: bool) -> None:
    mac = replace(load_gpu("m4-max"), memory_marketing=f"{size} GB")
    assert abs(wired_by_macos(mac)[older] - printed * 10**6) < 10**6


def test_the_largest_mac_wires_a_little_more() -> None:
    assert 0.99 < wired_by_macos(replace(load_gpu("m3-ultra")))[0] / 498216.21e6 < 1


@pytest.mark.parametrize("size", [8, 16, 24, 36, 64, 96, 128, 192, 256, 512])
def test_a_newer_macos_wires_no_less(size: int) -> None:
    newer, older = wired_by_macos(replace(load_gpu("m4-max"), memory_marketing=f"{size} GB"))
    assert older <= newer < size * GIB


SOLD = [
    gpu
    for gpu in list_gpus()
    if gpu.vendor in ("amd", "intel") and gpu.memory_total_bytes and not gpu.is_unified_memory
    and gpu.slug != "mi250x-64gb"  # sold as a package of two
]  # fmt: skip


def test_enough_cards_stand_behind_the_law_of_what_is_sold() -> None:
    assert sum(gpu.vendor == "amd" for gpu in SOLD) >= 12
    assert sum(gpu.vendor == "intel" for gpu in SOLD) >= 3


@pytest.mark.parametrize("gpu", SOLD, ids=lambda gpu: gpu.slug)
def test_a_card_of_which_only_the_sold_memory_is_known_has_an_interval(gpu: Gpu) -> None:
    total, lines, said = memory_of(replace(gpu, memory_total_bytes=None, memory_nvml_bytes=None))
    [line] = lines
    assert total is not None
    assert gpu.memory_total_bytes is not None
    assert line.low_bytes <= total - gpu.memory_total_bytes <= line.high_bytes
    assert "not published" in said[0]


def test_accelerators_that_are_no_cards_have_no_total() -> None:
    assert memory_of(load_gpu("gaudi3"))[0] is None
    assert memory_of(load_gpu("v5e"))[0] is None


RESERVED = {2: 0xC000000, 4: 0x14000000, 13: 0x38000000}
"""GiB of a profile, bytes that its manager keeps: mbilker/vgpu_unlock-rs issues 37 and 42."""


@pytest.mark.parametrize("size", RESERVED)
def test_a_vgpu_has_an_interval_below_its_profile(size: int) -> None:
    gpu = load_gpu(f"L4-{size}Q")
    total, [line], said = memory_of(gpu)
    assert total == gpu.memory_nvml_bytes == size * GIB
    assert line.bytes >= RESERVED[size]
    assert line.low_bytes == 0
    assert line.high_bytes > RESERVED[size] + kept_by_driver(total)[0]
    assert "in the guest" in said[0]


def test_announced_cards_keep_what_cards_of_data_centres_do() -> None:
    """Nobody has printed their totals: the ends are those of NVIDIA's cards that are sold."""
    whole = (gpu for gpu in list_gpus() if gpu.vendor == "nvidia" and not gpu.is_mig_slice)
    sold = [gpu for gpu in whole if gpu.market == "datacenter" and gpu.is_verified("memory_total_bytes")]
    assert len(sold) >= 8
    card = load_gpu("vr200")
    total, (line,), (said,) = memory_of(card)
    assert total == 288 * GIB
    assert "announced" in said
    for gpu in sold:
        assert gpu.memory_total_bytes is not None
        size = int(gpu.memory_marketing.removesuffix(" GB")) * GIB
        kept = size - gpu.memory_total_bytes
        assert line.low_bytes * size <= kept * total <= line.high_bytes * size, gpu.slug


def test_no_plan_proposes_an_announced_card_by_itself() -> None:
    announced = [gpu for gpu in list_gpus() if gpu.is_announced]
    assert {gpu.slug for gpu in announced} >= {"vr200-288gb", "mi455x-432gb", "ascend-950dt-144gb"}
    for gpu in announced:
        assert gpu.memory_total_bytes is None
        for engine in ("vllm", "sglang", "trtllm", "llamacpp"):
            assert not is_usual(gpu, engine)
            assert not is_usual(replace(gpu, dense_tflops={"bf16": 1.0}), engine)
    assert is_usual(load_gpu("h200"), "vllm")
