"""Memory that the CPU shares: on NVIDIA's the page cache counts, elsewhere the driver's own figure does."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from kvplan.results import SizeResult

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
