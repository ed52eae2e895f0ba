"""What a GPU keeps for its multiprocessors: from 0.20 on, beside torch, in every kind of start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.vllm.memory.coefficients import vllm_coefficients
from kvplan.engines.vllm.memory.profile_peak import H100_MULTIPROCESSORS
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from kvplan.results import SizeResult
from scripts.field_rows import read_rows
from scripts.fitting.late import fit_late
from scripts.fitting.late_rows import late_rows
from tests.recorded import DATA

CARDS = tuple(
    gpu
    for gpu in list_gpus()
    if gpu.vendor == "nvidia" and gpu.memory_total_bytes and not gpu.is_mig_slice  # which take no ranks
)
STARTS: tuple[dict[str, Any], ...] = (
    {"tensor_parallel_size": 1},
    {"tensor_parallel_size": 2},
    {"pipeline_parallel_size": 2},
    {"tensor_parallel_size": 1, "enforce_eager": True},
)


def kept(gpu: Gpu, version: str, **options: Any) -> int:
    """The non-torch line."""
    settings = {"engine": f"vllm@{version}", "gpu": gpu, "max_model_len": 2048, **options}
    answer: SizeResult = kvplan.size("qwen3-0.6b", **settings)
    assert answer.budget is not None
    return next(line.bytes for line in answer.budget.lines if line.name == "non-torch memory")


@given(
    st.sampled_from(CARDS),
    st.sampled_from(("0.20", "0.24", "0.26", "0.27", "0.29", "0.33")),
    st.sampled_from(STARTS),
    st.integers(1, 256),
)
def test_every_multiprocessor_keeps_as_much(
    gpu: Gpu, version: str, options: dict[str, Any], count: int
) -> None:
    release = tuple(int(part) for part in version.split("."))
    each = vllm_coefficients(release).multiprocessor_bytes
    assert each > 0
    alike = kept(replace(gpu, multiprocessors=H100_MULTIPROCESSORS), version, **options)
    own = kept(replace(gpu, multiprocessors=count), version, **options)
    assert own == max(0, alike + each * (count - H100_MULTIPROCESSORS))
    assert kept(replace(gpu, multiprocessors=None), version, **options) == alike


@pytest.mark.parametrize("version", ["0.11", "0.19.0"])
def test_older_releases_keep_what_their_logs_print(version: str) -> None:
    gpu = load_gpu("rtx-4050-laptop-6gb")
    assert kept(gpu, version) == kept(replace(gpu, multiprocessors=H100_MULTIPROCESSORS), version)


def test_every_nvidia_gpu_that_was_counted_says_how_many() -> None:
    unknown = {gpu.slug for gpu in list_gpus() if gpu.vendor == "nvidia" and not gpu.multiprocessors}
    assert unknown == {"b100-192gb", *(gpu.slug for gpu in list_gpus() if gpu.is_announced)} & unknown


def test_a_slice_has_no_more_than_its_gpu() -> None:
    slices = [gpu for gpu in list_gpus() if gpu.mig_parent is not None]
    assert slices
    for gpu in slices:
        assert gpu.mig_parent is not None
        whole = load_gpu(gpu.mig_parent).multiprocessors
        assert whole is not None
        assert gpu.multiprocessors is not None
        assert 0 < gpu.multiprocessors <= whole


def test_the_fit_finds_what_a_multiprocessor_keeps() -> None:
    """Rows whose GPUs are given more of them by a rule that the fit does not know."""
    rows = late_rows(read_rows(*map(Path, (DATA / "more_start_ups.yaml", DATA / "measured.yaml")))[0])
    fitted = fit_late(rows)
    assert fitted.multiprocessor > 0
    for row in rows:
        row.left += 3_000_000 * row.multiprocessors
    moved = fit_late(rows).multiprocessor - fitted.multiprocessor
    told = [row for row in rows if row.row.raw["non_torch_gib"] is not None and row.release >= (0, 27)]
    assert all(row.multiprocessors == H100_MULTIPROCESSORS for row in told), "their own figure is taken"
    assert abs(moved - 3_000_000) <= 1
