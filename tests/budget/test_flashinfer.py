"""What FlashInfer keeps, by release, GPU and runner; held against the graphs that servers estimated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kvplan
from kvplan.api.options import make_settings
from kvplan.engines.vllm.flashinfer import NONE, WORKSPACE, FlashInfer, flashinfer_of
from kvplan.engines.vllm.graphs import captured
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


def test_drafts_leave_piecewise_graphs_alone() -> None:
    """poolside/Laguna-S-2.1 with DFlash: 51 piecewise and no full ones with FLASHINFER, 32 and 32 with
    FLASH_ATTN; Qwen3.8-27B with MTP: 35, and 33 and 17."""
    assert captured(32, 2_048, 15, uniform=False) == (51, 0)
    assert captured(32, 2_048, 15) == (32, 32)
    assert captured(32, 2_048, 3, uniform=False) == (35, 0)
    assert captured(32, 2_048, 3) == (33, 17)
    assert 394 * MIB == WORKSPACE
