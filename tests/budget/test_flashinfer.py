"""What FlashInfer keeps, by release, GPU and runner; held against the graphs that servers estimated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.options import make_settings
from kvplan.engines.vllm.memory.attention_buffers import NONE, WORKSPACE, FlashInfer, flashinfer_of
from kvplan.engines.vllm.memory.cuda_graphs import captured
from kvplan.units import GIB, MIB


def asked(model: str, version: str, **options: Any) -> FlashInfer:
    return flashinfer_of(kvplan.load_model(model), make_settings(**options), version)


@pytest.mark.parametrize(
    ("version", "gpu", "groups", "wrappers"),
    [
        ("0.24", "a100-sxm-80gb", 1, 1),
        ("0.24", "h100", 1, 1),
        ("0.25", "h100", 1, 0),  # XQA decodes
        ("0.27", "rtx-pro-6000", 1, 1),
        ("0.29", "rtx-pro-6000", 1, 0),
        ("0.21", "b200", 1, 0),
    ],
)
def test_kernels_by_release(version: str, gpu: str, groups: int, wrappers: int) -> None:
    found = asked("Qwen/Qwen3-8B", version, gpu=gpu, attention_backend="FLASHINFER", model_runner="v1")
    assert (found.groups, found.wrappers) == (groups, wrappers)


def test_other_backends_and_eager_starts_keep_nothing() -> None:
    assert asked("Qwen/Qwen3-8B", "0.24", gpu="h100") == NONE
    assert asked("Qwen/Qwen3-8B", "0.24", gpu="b200", enforce_eager=True) == NONE
    assert asked("Qwen/Qwen3-8B", "0.24") == NONE


@pytest.mark.parametrize("gpu", ["rtx-5090", "l4", "gb10", "rtx-pro-6000"])
def test_fp8_caches_that_flash_attention_refuses_take_it_before_triton(gpu: str) -> None:
    """Qwen3.6-35B-A3B on an RTX 5090 and a GB10 with fp8_e4m3, 0.20.0: ``Using FLASHINFER``."""
    words: dict[str, Any] = {"gpu": gpu, "model_runner": "v1"}
    assert asked("Qwen/Qwen3.6-35B-A3B", "0.20", kv_cache_dtype="fp8_e4m3", **words).groups
    assert not asked("Qwen/Qwen3.6-35B-A3B", "0.20", kv_cache_dtype="auto", **words).groups
    asked_for = {"attention_backend": "TRITON_ATTN"}
    assert not asked("Qwen/Qwen3.6-35B-A3B", "0.20", kv_cache_dtype="fp8", **asked_for, **words).groups


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai/gpt-oss-20b", "sinks"),
        ("google/gemma-4-26B-A4B-it", "image tokens see each other, heads of 512"),
        ("microsoft/phi-2", "heads of 80"),
    ],
)
def test_layers_that_it_does_not_take_leave_triton(model: str, why: str) -> None:
    assert asked(model, "0.20", gpu="rtx-5090", kv_cache_dtype="fp8_e4m3", model_runner="v1") == NONE, why


@pytest.mark.parametrize(("gpu", "printed"), [("rtx-5090", 0.36), ("gb10", 0.43)])
def test_published_estimates_of_two_graphs(gpu: str, printed: float) -> None:
    """RedHatAI/Qwen3.6-35B-A3B-NVFP4, 0.20.0, one piecewise graph and one full one."""
    asked_for: dict[str, Any] = {
        "max_cudagraph_capture_size": 1,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 8192,
    }
    result = kvplan.size(
        "Qwen/Qwen3.6-35B-A3B", engine="vllm@0.20", gpu=gpu, weights=22 * GIB, max_model_len=65_536,
        kv_cache_dtype="fp8_e4m3", **asked_for,
    )  # fmt: skip
    assert result.budget is not None
    line = next(line for line in result.budget.lines if line.name == "CUDA graphs")
    assert line.bytes == pytest.approx(printed * GIB, abs=0.06 * GIB)


def test_every_group_of_the_cache_has_its_own_under_v1() -> None:
    words = {"gpu": "a100-sxm-80gb", "attention_backend": "FLASHINFER"}
    first = asked("google/gemma-2-9b-it", "0.24", model_runner="v1", **words)
    second = asked("google/gemma-2-9b-it", "0.24", model_runner="v2", **words)
    assert first.groups > 1
    assert (second.groups, second.wrappers) == (1, first.wrappers)


def test_the_workspace_follows_the_batch_since_0_26() -> None:
    plain = FlashInfer(groups=1, query_width=4_096)
    assert plain.kept(65_536, 3) == WORKSPACE
    assert replace(plain, sized=True).kept(65_536, 3) == 65_536 * 4_096 * 16
    assert replace(plain, sized=True).kept(2_048, 3) == WORKSPACE
    assert plain.kept(65_536, 0) == 0


def test_published_estimates() -> None:
    """scb10x/typhoon-ocr-7b, 0.22.0: 0.40 GiB of 3 piecewise and 2 full graphs; gemma-3-1b-it, a build of
    0.23: 4.88 of 51 and 35, where FLASH_ATTN has 0.19 (7 groups)."""
    assert FlashInfer(groups=1, wrappers=1).kept(2_048, 2) == pytest.approx(0.40 * GIB, abs=0.01 * GIB)
    assert FlashInfer(groups=7, wrappers=7).kept(2_048, 35) == pytest.approx(4.69 * GIB, abs=0.15 * GIB)


@given(st.integers(1, 12), st.integers(1, 83))
def test_wrappers_lie_in_segments_as_the_estimate_has_them(wrappers: int, full: int) -> None:
    """Against an allocator that is asked twice, as for an estimate: two of 8 MiB fill 20 MiB."""
    samples: list[int] = []
    slots = taken = 0
    for _ in range(2):
        for _ in range(wrappers):
            if not slots:
                slots, taken = 2, taken + 20 * MIB
            slots -= 1
        samples.append(taken - sum(samples))
    kept = FlashInfer(groups=1, wrappers=wrappers).kept(0, full) - WORKSPACE
    assert kept == samples[0] + (full - 1) * samples[1]


def test_wrappers_of_one_group_are_one_segment() -> None:
    """Qwen3-30B-A3B-GPTQ-Int4 on a 5090, 0.28: an FP8 cache costs 0.21 GiB; a wrapper of each graph were 0.27
    without the workspace."""
    assert FlashInfer(groups=1, wrappers=1).kept(0, 35) == WORKSPACE + 20 * MIB


def test_drafts_leave_piecewise_graphs_alone() -> None:
    """poolside/Laguna-S-2.1 with DFlash: 51 piecewise and no full ones with FLASHINFER, 32 and 32 with
    FLASH_ATTN; Qwen3.8-27B with MTP: 35, and 33 and 17."""
    assert captured(32, 2_048, 15, uniform=False)[:2] == (51, 0)
    assert captured(32, 2_048, 15)[:2] == (32, 32)
    assert captured(32, 2_048, 3, uniform=False)[:2] == (35, 0)
    assert captured(32, 2_048, 3)[:2] == (33, 17)
    assert 394 * MIB == WORKSPACE
