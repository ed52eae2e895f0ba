"""Memory that the CPU shares: on NVIDIA's the page cache counts, elsewhere the driver's own figure does."""

from __future__ import annotations

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
