"""What of a GPU's memory its runtime reports, where nobody published it: a law for each class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.engines.budget.parts import kept_by_driver, memory_of, wired_by_macos
from kvplan.files.gpus.find import list_gpus, load_gpu
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
    likely, least, most = kept_by_driver(gpu.memory_nvml_bytes)
    kept = gpu.memory_nvml_bytes - gpu.memory_total_bytes
    volta = gpu.arch == "Volta"  # read of older drivers, which keep less
    assert (0 if volta else least) <= kept <= most
    assert volta or abs(kept - likely) <= max(200 * MIB, gpu.memory_nvml_bytes // 400)


@pytest.mark.parametrize("gpu", BOTH, ids=lambda gpu: gpu.slug)
def test_a_card_without_a_total_has_an_interval_around_it(gpu: Gpu) -> None:
    total, lines, said = memory_of(replace(gpu, memory_total_bytes=None))
    assert total == gpu.memory_nvml_bytes
    assert "not published" in " ".join(said)
    line = next(line for line in lines if line.name == "kept by the driver")
    assert line.low_bytes < line.bytes < line.high_bytes


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
