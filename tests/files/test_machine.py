"""The GPUs of this machine, as each tool tells of them (its output's form; no tool is run)."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

import pytest

import kvplan
from kvplan.engines.budget.parts import IN_USE
from kvplan.errors import CannotRunHere
from kvplan.files.gpus import machine
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.machine import SeenGpu, SilentError, said_by, seen_gpus
from kvplan.files.gpus.this import first_gpu
from kvplan.units import GIB, MIB

Said = Mapping[tuple[str, ...], str]


@pytest.fixture(autouse=True)
def only_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    monkeypatch.setattr(machine, "DRM", tmp_path)


def tools(monkeypatch: pytest.MonkeyPatch, said: Mapping[str, str]) -> None:
    """What each tool says, by the beginning of its command line."""

    def answer(tool: str, *arguments: str) -> str:
        line = " ".join((tool, *arguments))
        for start, text in said.items():
            if line.startswith(start):
                return text
        raise SilentError("not installed")

    monkeypatch.setattr(machine, "said_by", answer)


def test_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "NVIDIA GeForce RTX 4090, 24564, 580.95.05, 8.9\nNVIDIA GeForce RTX 3090, 24576, 580.95.05, 8.6\n"
    tools(monkeypatch, {"nvidia-smi": rows})
    first, second = seen_gpus()
    assert first == SeenGpu(
        "NVIDIA GeForce RTX 4090", "nvidia", 24564 * MIB, "nvidia-smi", (8, 9), "580.95.05"
    )
    assert second.compute_capability == (8, 6)
    assert first_gpu().slug == "rtx-4090-24gb"
    assert first_gpu().memory_nvml_bytes == 24564 * MIB


def test_under_wsl_all_that_nvidia_smi_shows_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch, {"/usr/lib/wsl/lib/nvidia-smi": "NVIDIA GeForce RTX 4090, 24564, 580.95.05, 8.9\n"})
    kernel = platform.uname()._replace(release="6.6.87.2-microsoft-standard-WSL2")
    monkeypatch.setattr(platform, "uname", lambda: kernel)
    found = first_gpu()
    assert (found.slug, found.memory_total_bytes) == ("rtx-4090-24gb-wsl", 24564 * MIB)
    assert load_gpu(found.slug).memory_total_bytes == found.memory_total_bytes


def test_what_others_hold_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the card that is seen, as it is now: llama.cpp's pool is smaller by it, and the screen says so."""
    row = "NVIDIA GeForce RTX 4090, 24564, 580.95.05, 8.9, [N/A], {}\n"
    pools = []
    for used in (4, 6144):
        tools(monkeypatch, {"nvidia-smi": row.format(used)})
        gpu = first_gpu()
        assert gpu.memory_free_seen == (() if used < 64 else ((24564 - 6144) * MIB,))
        sized = kvplan.size("qwen3-8b", engine="llamacpp", quantization="q4_k_m", gpu=gpu)
        assert sized.budget is not None
        pools.append((sized.budget.kv_pool_bytes, sized.budget.kv_pool_low_bytes))
        lines = {line.name: line.bytes for line in sized.budget.lines}
        assert lines.get(IN_USE, 0) == (0 if used < 64 else 6144 * MIB)
    assert [before - after for before, after in zip(*pools, strict=True)] == [6144 * MIB] * 2


def test_windows_holds_a_part_of_a_card() -> None:
    sized = kvplan.size("qwen3-8b", engine="llamacpp", quantization="q4_k_m", gpu="rtx-5090-wsl")
    assert sized.budget is not None
    (line,) = (one for one in sized.budget.lines if one.name == IN_USE)
    assert (line.low_bytes, line.high_bytes) == (0, 1_760_936_592)


def test_an_old_driver_is_asked_without_the_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(
        monkeypatch,
        {"nvidia-smi --query-gpu=name,memory.total,driver_version --": "Tesla T4, 15360, 470.1\n"},
    )
    (found,) = seen_gpus()
    assert (found.name, found.compute_capability) == ("Tesla T4", None)


@pytest.mark.parametrize(("row", "slug", "memory"), [
    ("NVIDIA GeForce RTX 2080 Ti, 22528, 550.1, 7.5, [N/A]", "rtx-2080-ti-11gb", 22528),  # another memory
    ("NVIDIA L40S, 10240, 550.1, 8.9, [N/A]", "l40s-48gb", 10240),  # a share of it
])  # fmt: skip
def test_a_card_with_another_memory_has_no_published_total(
    monkeypatch: pytest.MonkeyPatch, row: str, slug: str, memory: int
) -> None:
    tools(monkeypatch, {"nvidia-smi": f"{row}\n"})
    found = first_gpu()
    assert (found.slug, found.memory_total_bytes, found.memory_nvml_bytes) == (slug, None, memory * MIB)


@pytest.mark.parametrize("row", [
    "NVIDIA L40S, 46068, 550.1, 8.9, [N/A]", "Tesla T4, 15360, 535.1, 7.5, [N/A]",
    "NVIDIA A100-SXM4-80GB, 81920, 550.1, 8.0, Disabled", "NVIDIA H100 80GB HBM3, 81559, 550, 9.0, Disabled",
    "NVIDIA GeForce RTX 5090, 32607, 580.1, 12.0, [N/A]", "NVIDIA A10G, 23028, 535.1, 8.6, [N/A]",
])  # fmt: skip
def test_a_card_as_it_is_sold_has_its_total(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    tools(monkeypatch, {"nvidia-smi": f"{row}\n"})
    assert first_gpu().memory_total_bytes is not None


def test_a_gpu_in_slices_is_not_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch, {"nvidia-smi": "NVIDIA H100 80GB HBM3, 81559, 550.1, 9.0, Enabled\n"})
    with pytest.raises(CannotRunHere, match="divided into MIG slices"):
        first_gpu()


def test_wsl_has_its_tool_on_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "NVIDIA GeForce RTX 4090, 24564, 580.1, 8.9, [N/A]\n"
    tools(monkeypatch, {"/usr/lib/wsl/lib/nvidia-smi": row})
    assert first_gpu().slug == "rtx-4090-24gb"


def test_unified_memory_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch, {"nvidia-smi": "NVIDIA GB10, [N/A], 580.95.05, 12.1\n"})
    assert seen_gpus()[0].memory_bytes is None
    assert first_gpu().slug == "gb10-128gb"


def test_a_gpu_that_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch, {"nvidia-smi": "NVIDIA Nothing 9000, 12288, 600.1, 13.0\n"})
    found = first_gpu()
    assert (found.slug, found.memory_nvml_bytes, found.compute_capability) == (
        "nvidia-nothing-9000", 12 * GIB, (13, 0),
    )  # fmt: skip


def test_rocm_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    card = '{"VRAM Total Memory (B)": "206141652992", "Card Series": "AMD Instinct MI300X"}'
    text = 'WARNING: low power\n{"card0": ' + card + ', "system": {"Driver version": "6.8"}}'
    tools(monkeypatch, {"rocm-smi": text})
    (found,) = seen_gpus()
    assert (found.vendor, found.memory_bytes) == ("amd", 206141652992)
    assert first_gpu().slug == "mi300x-192gb"
    tools(monkeypatch, {"rocm-smi": "{"})
    with pytest.raises(CannotRunHere) as caught:
        seen_gpus()
    assert "rocm-smi: its answer is no JSON" in caught.value.detail


def test_the_kernels_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools(monkeypatch, {})
    device = tmp_path / "card1" / "device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "mem_info_vram_total").write_text("25753026560\n")
    with pytest.raises(CannotRunHere) as caught:
        first_gpu()
    assert caught.value.code == "no-gpu-name"
    assert "24.0 GiB" in caught.value.message
    (device / "product_name").write_text("AMD Radeon RX 7900 XTX\n")
    assert first_gpu().slug == "rx-7900-xtx-24gb"
    (device / "vendor").write_text("0x8086\n")
    with pytest.raises(CannotRunHere):
        first_gpu()


def test_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    said = {"sysctl -n machdep.cpu.brand_string": "Apple M4 Max\n", "sysctl -n hw.memsize": f"{64 * GIB}\n"}
    tools(monkeypatch, {**said, "sysctl -n iogpu": "0\n"})
    found = first_gpu()
    assert (found.slug, found.memory_marketing, found.memory_total_bytes) == ("m4-max-64gb", "64 GB", None)
    tools(monkeypatch, {**said, "sysctl -n iogpu": "57344\n"})
    assert first_gpu().memory_total_bytes == 56 * GIB
    tools(
        monkeypatch,
        {**said, "sysctl -n machdep": "Apple M9 Nano\n"} | {"sysctl -n machdep.cpu.brand_string": "Apple M9"},
    )
    assert first_gpu().is_unified_memory
    tools(monkeypatch, {"sysctl": "Intel(R) Core(TM)"})
    with pytest.raises(CannotRunHere):
        first_gpu()


def test_nothing_here_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch, {})
    with pytest.raises(CannotRunHere) as caught:
        seen_gpus()
    assert caught.value.exit_code == 3
    assert [line.partition(":")[0] for line in caught.value.detail] == list(machine.PROBES)


def test_a_tool_that_fails_is_silent() -> None:
    import sys

    assert said_by(sys.executable, "-c", "print('so')").strip() == "so"
    with pytest.raises(SilentError, match="no such card"):
        said_by(sys.executable, "-c", "import sys; sys.exit('no such card')")
    with pytest.raises(SilentError, match="not installed"):
        said_by("a-tool-that-is-nowhere")
