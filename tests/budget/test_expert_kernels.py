"""MXFP4 experts are kept as the kernel of the GPU and the release wants them; an interval in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.vllm.backends.expert_kernels import MARLIN, kernels_of
from kvplan.engines.vllm.options import MOE_BACKENDS
from kvplan.results import BudgetLine
from kvplan.units import GIB
from kvplan.weights.formats import Kernel

MIB = 2**20
BESIDE = 90 * MIB
"""`Model loading took` counts buffers too: 70 MiB in the logs of both models."""


def line(model: str, **options: Any) -> BudgetLine:
    result = kvplan.size(model, **options)
    assert result.budget is not None, (result.warnings, result.refusal)
    return result.budget.lines[0]


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "release", "printed"),
    [
        # vllm-project/vllm#23278, 0.10.1 without triton_kernels: Marlin.
        ("gpt-oss-120b", "h100", 1, "0.10.1", 65.9651),
        # llm-d-planner's report, #33155: the Triton kernels.
        ("gpt-oss-120b", "h100", 1, "0.14", 64.38),
        # EuroEval and InferenceX logs.
        ("gpt-oss-120b", "a100", 2, "0.22.1", 34.38),
    ],
)
def test_published_starts(model: str, gpu: str, tp: int, release: str, printed: float) -> None:
    """The likely figure is what the log prints, but for the buffers that it counts too."""
    found = line(model, gpu=gpu, tp=tp, engine=f"vllm@{release}")
    assert 0 <= printed * GIB - found.bytes < BESIDE
    assert found.low_bytes <= found.bytes <= found.high_bytes


def test_the_interval_holds_what_may_be_installed() -> None:
    """triton_kernels was not in the wheels before 0.12: Triton, FlashInfer or Marlin; Ampere has Marlin."""
    hopper = line("gpt-oss-120b", gpu="h100", engine="vllm@0.11")
    assert hopper.high_bytes == line("gpt-oss-120b", gpu="a100", engine="vllm@0.11").bytes
    assert hopper.low_bytes < hopper.bytes <= hopper.high_bytes
    assert "Triton" in hopper.source
    assert "Marlin" in hopper.source


@pytest.mark.parametrize("release", ["0.12", "0.14", "0.24", "0.25", "0.31", "0.33"])
@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200", "rtx-5090", "gb10"])
def test_the_release_chooses_since_its_wheel_holds_the_kernels(release: str, gpu: str) -> None:
    found = line("gpt-oss-120b", gpu=gpu, engine=f"vllm@{release}", tp=4)
    assert found.low_bytes == found.bytes == found.high_bytes


@pytest.mark.parametrize("release", ["0.24", "0.25", "0.33"])
def test_the_backend_asked_for_keeps_the_experts(release: str) -> None:
    """marlin on Hopper holds what Ampere holds by itself; a kernel that is not described is an interval."""
    asked = {
        backend: line("gpt-oss-120b", gpu="h100", engine=f"vllm@{release}", moe_backend=backend)
        for backend in ("auto", "triton", "marlin", "flashinfer_cutlass", "humming")
    }
    assert asked["auto"].bytes == asked["triton"].bytes
    assert asked["marlin"].bytes == line("gpt-oss-120b", gpu="a100", engine=f"vllm@{release}").bytes
    wide = asked.pop("humming")
    held = [one.bytes for one in asked.values()]
    assert len(set(held)) == 3
    assert (wide.low_bytes, wide.high_bytes) == (min(held), max(held))
    assert all(one.low_bytes == one.high_bytes for one in asked.values())


def test_scales_are_freed_since_0_25() -> None:
    """36 layers of 128 experts: three tables of 2,880 rows of 90 scales less."""
    older, newer = (
        line("gpt-oss-120b", gpu="h100", engine=f"vllm@{release}") for release in ("0.24", "0.25")
    )
    assert older.bytes - newer.bytes == 36 * 128 * 3 * 2880 * 90


def test_without_mxfp4_nothing_is_uncertain() -> None:
    for model in ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"):
        found = line(model, gpu="h200", tp=8 if model == "deepseek-v3" else 1, engine="vllm@0.14")
        assert found.low_bytes == found.bytes == found.high_bytes
        assert "keeps them" not in found.source


@pytest.mark.parametrize("engine", ["sglang@0.5.14", "trtllm"])
def test_other_engines_have_an_interval(engine: str) -> None:
    found = line("gpt-oss-120b", gpu="h100", engine=engine)
    assert found.low_bytes < found.bytes <= found.high_bytes


@pytest.mark.parametrize("release", ["0.5.15", "0.5.17", "0.5.19", "0.5.23"])
def test_sglang_chooses_by_gpu(release: str) -> None:
    """FlashInfer on 10.x, CUTLASS or Marlin on 12.x, Triton elsewhere; Hopper keeps both tables of scales."""
    found = {
        gpu: line("gpt-oss-20b", gpu=gpu, engine=f"sglang@{release}")
        for gpu in ("a100", "l40s", "h100", "b200", "rtx-5090")
    }
    assert all(one.low_bytes == one.bytes == one.high_bytes for one in found.values())
    assert found["a100"].bytes == found["l40s"].bytes < found["h100"].bytes
    narrow = line("gpt-oss-20b", gpu="b200", engine="sglang").bytes
    wide = line("gpt-oss-20b", gpu="b200", engine="sglang@0.5.15").bytes
    assert found["b200"].bytes == (wide if release == "0.5.15" else narrow)
    assert narrow < wide


def test_hopper_rows_hold_four_scales_since_0_5_19() -> None:
    """90 scales a row become 92 in the rearranged table: 36 layers, 128 experts, rows of both matrices."""
    older, newer = (line("gpt-oss-120b", gpu="h100", engine=f"sglang@0.5.{patch}") for patch in (18, 19))
    rows = 5888 + 3072  # 2 × 2,880 and 2,880, in steps of 256
    assert newer.bytes - older.bytes == 36 * 128 * rows * 2


@pytest.mark.parametrize(
    ("gpu", "whole"), [("h100", True), ("a100", True), ("b200", False), ("rtx-5090", False)]
)
def test_sglang_makes_experts_whole_where_they_are_divided(gpu: str, whole: bool) -> None:
    """upcast_from_mxfp: 24 layers of 32 experts in two bytes a number, as Triton's kernels take one rank."""
    divided = line("gpt-oss-20b", gpu=gpu, engine="sglang", tp=2, ep_size=2)
    together = line("gpt-oss-20b", gpu=gpu, engine="sglang", tp=2)
    experts = 24 * 32 * 3 * 2880 * 2880
    assert (divided.bytes > experts // 2 * 2) is whole
    assert (divided.bytes > 2 * together.bytes) is whole


@given(
    st.tuples(st.integers(5, 12), st.integers(0, 9)),
    st.tuples(st.just(0), st.integers(8, 40)),
    st.sampled_from(["nvidia", "amd"]),
    st.sampled_from(["gpt_oss", "deepseek_v4"]),
    st.booleans(),
    st.sampled_from(MOE_BACKENDS),
)
def test_every_gpu_that_runs_mxfp4_has_a_kernel(
    capability: tuple[int, int],
    release: tuple[int, int],
    vendor: str,
    model_type: str,
    adapters: bool,
    backend: str,
) -> None:
    found = kernels_of(
        model_type,
        vendor=vendor,
        capability=capability,
        release=release,
        adapters=adapters,
        backend=backend,
    )
    runs = vendor == "amd" or capability >= (8, 0)
    assert bool(found) or not runs
    assert len(set(found)) == len(found)
    if adapters and backend == "auto" and MARLIN in found:
        assert found[0] == MARLIN


@given(st.sampled_from(["gpt-oss-20b", "gpt-oss-120b"]), st.sampled_from([1, 2, 4, 8]), st.integers(8, 33))
def test_a_kernel_never_keeps_less_than_is_stored(model: str, tp: int, minor: int) -> None:
    from kvplan.api import load_model
    from kvplan.architectures.weights import sources_of
    from kvplan.dtypes import BFLOAT16
    from kvplan.weights.facts import weights_by_kernel, weights_per_rank
    from kvplan.weights.ranks import Parallel

    sources = sources_of(load_model(model))
    plain = weights_per_rank(sources, Parallel(tp), BFLOAT16)
    kernels = kernels_of("gpt_oss", vendor="nvidia", capability=(9, 0), release=(0, minor), adapters=False)
    kept = weights_by_kernel(sources, Parallel(tp), BFLOAT16, kernels)
    low, high = kept.bounds(0)
    assert plain.bytes_per_gpu <= low <= kept.bytes_per_gpu <= high
    assert weights_by_kernel(sources, Parallel(tp), BFLOAT16, (Kernel("none"),)).bytes_per_gpu == (
        plain.bytes_per_gpu
    )


def test_kernels_need_their_gpu() -> None:
    """get_min_capability of the method: V100 and T4 run no MXFP4, V100 no FP8."""
    for model, gpu, least in (
        ("gpt-oss-120b", "v100-sxm-16gb", "8.0"),
        ("gpt-oss-20b", "t4", "8.0"),
        ("deepseek-v3", "v100-sxm-16gb", "7.5"),
    ):
        refused = kvplan.size(model, gpu=gpu, tp=2)
        assert refused.refusal is not None
        assert refused.refusal.code == "quantization"
        assert f"compute capability {least}" in refused.refusal.message
    allowed = kvplan.size("gpt-oss-20b", gpu="a100")
    assert allowed.refusal is None
    loading = kvplan.size("llama-3.1-8b", gpu="v100-sxm-16gb", quantization="fp8")
    assert loading.refusal is not None
    assert loading.refusal.code == "quantization"
