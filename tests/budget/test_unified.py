"""Memory that the CPU shares: on NVIDIA's the page cache counts, elsewhere the driver's own figure does."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from kvplan.results import SizeResult
from kvplan.units import GIB

UNIFIED = [
    gpu for gpu in list_gpus() if gpu.is_unified_memory and gpu.vendor != "apple" and gpu.memory_total_bytes
]


@pytest.mark.parametrize("gpu", UNIFIED, ids=lambda gpu: gpu.slug)
def test_the_page_cache_counts_where_psutil_is_asked(gpu: Gpu) -> None:
    """vLLM 0.32 utils/mem_utils.py, MemorySnapshot.measure; platforms/rocm.py has no is_integrated_gpu."""
    result: SizeResult = kvplan.size("qwen3-0.6b", gpu=gpu, engine="vllm@0.32", max_model_len=2048)
    assert result.budget is not None
    names = {line.name for line in result.budget.lines}
    assert ("page cache, loaders" in names) == (gpu.vendor == "nvidia")
    assert any("shares its memory" in text for text in result.warnings) == (gpu.vendor == "nvidia")


def test_a_total_that_owners_set_is_an_interval() -> None:
    """Half of the memory by Linux' default; 80 GiB of a Strix Halo held 19.57 GiB of cache for Qwen3.8-27B
    (AIwork4me/Qwen3.8-27B-ROCm, vLLM 0.28)."""
    asked: dict[str, Any] = {"engine": "vllm@0.28", "max_model_len": 262144, "max_num_seqs": 1}
    usual = kvplan.size("Qwen/Qwen3.8-27B", gpu="strix-halo-128gb", **asked)
    assert usual.budget is not None
    assert usual.budget.kv_pool_bytes < int(19.57 * GIB) < usual.budget.kv_pool_high_bytes
    assert usual.verdict is not None
    assert usual.verdict.value == "unlikely"
    limited = kvplan.size("Qwen/Qwen3.8-27B", gpu="strix-halo-128gb 80GiB", **asked)
    assert limited.budget is not None
    assert limited.budget.total_bytes == 80 * GIB
    assert limited.budget.kv_pool_low_bytes < int(19.57 * GIB) < int(21 * GIB)
    assert limited.refusal is None
    with pytest.raises(kvplan.KvplanError, match="unknown GPU"):
        kvplan.size("Qwen/Qwen3.8-27B", gpu="strix-halo-128gb 900GiB", **asked)


def test_sglang_sees_what_the_host_has_left() -> None:
    """srt/utils/common.py, get_available_gpu_memory: psutil on integrated GPUs. Seven starts on GB10 show
    110.0 to 115.4 GiB before the weights; Qwen3.8-27B at 0.80 then has 37.5 GiB."""
    result = kvplan.size(
        "Qwen/Qwen3.8-27B",
        gpu="gb10",
        engine="sglang@0.5.15",
        max_model_len=2048,
        max_num_seqs=32,
        settings={"mem_fraction_static": "0.80", "disable_radix_cache": True},
    )
    budget = result.budget
    assert budget is not None
    before = [line for line in budget.lines if line.name in ("context, buffers", "page cache, loaders")]
    ends = ("high_bytes", "low_bytes")
    free = [budget.total_bytes - sum(getattr(line, end) for line in before) for end in ends]
    assert free[0] < int(110.0 * GIB)
    assert int(115.4 * GIB) < free[1] < int(117 * GIB)
    assert budget.kv_pool_low_bytes < int(37.5 * GIB) < budget.kv_pool_high_bytes
