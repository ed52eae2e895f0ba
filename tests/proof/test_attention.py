"""Attention over pages is attention over the same values in a row, within what the element type allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from kvplan.engines.tensors import Layout
from kvplan.families import FullAttention, MultiHeadLatentAttention, Part, SlidingWindow
from kvplan.model import Layer, LayerRun, Model
from kvplan.proof.validate.attention import AttentionError, attend
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.memory import allocate
from tests.proof.models import OPTIONS, smallest

KINDS: dict[str, tuple[Part, str, str]] = {
    "MHA": (FullAttention(8, 64), "LlamaForCausalLM", "llama"),
    "GQA": (FullAttention(2, 64), "LlamaForCausalLM", "llama"),
    "MQA": (FullAttention(1, 64), "LlamaForCausalLM", "llama"),
    "MLA": (MultiHeadLatentAttention(8, 512, 64, 128, 128), "DeepseekV3ForCausalLM", "deepseek_v3"),
    "MHA window 100": (SlidingWindow(8, 64, 100), "MistralForCausalLM", "mistral"),
    "GQA window 100": (SlidingWindow(2, 64, 100), "MistralForCausalLM", "mistral"),
}


def layout_of_kind(kind: str, engine: str, kv_dtype: str, **options: Any) -> Layout:
    part, architecture, model_type = KINDS[kind]
    model = Model(
        kind, "test", model_type, architecture, (LayerRun(Layer((part,)), 2),), "bfloat16", 4096, 8, 512
    )
    given = {**OPTIONS[engine], "tokens": 300, "kv_cache_dtype": kv_dtype, "gpu": "h100", **options}
    return smallest(model, engine, **given)


def answers(
    layout: Layout, run: Callable[..., tuple[AttentionError, ...]] = attend, device: str = "cpu"
) -> tuple[AttentionError, ...]:
    """With tables whose free blocks lie out of order."""
    with allocate(layout, device) as cache:
        tables = BlockTables(layout)
        held = [tables.admit(40) for _ in range(3)]
        for request in (held[1], held[2], held[0]):
            assert request is not None
            tables.release(request)
        found = run(cache, tables)
        assert all(pool.free == pool.pool.usable for pool in tables.pools)
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_e4m3"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("kind", KINDS)
def test_within_tolerance(kind: str, engine: str, dtype: str) -> None:
    found = answers(layout_of_kind(kind, engine, dtype))
    assert [one.kernel for one in found] == ["sdpa"]
    (one,) = found
    if engine == "vllm":
        assert one.kind == kind
    assert one.dtype == {"bfloat16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}[dtype]
    assert one.tokens == (99 if "window" in one.kind else 300)
    assert 0 <= one.error <= one.tolerance < 1
    assert one.queries >= 3


@pytest.mark.parametrize("kind", ["GQA", "MLA", "GQA window 100"])
@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_e4m3"])
def test_a_wrong_page_is_seen(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages exchanged between writing and reading: an error far beyond the tolerance."""
    from kvplan.proof.validate import attention

    read = attention.Probe._read

    def broken(self: Any, place: Any) -> Any:
        blocks = self.slots.single_blocks
        self.slots.single_blocks = torch.where(blocks == blocks[-1], blocks[-40], blocks)
        try:
            return read(self, place)
        finally:
            self.slots.single_blocks = blocks

    monkeypatch.setattr(attention.Probe, "_read", broken)
    (one,) = answers(layout_of_kind(kind, "vllm", dtype))
    assert not one.ok
    assert one.error > 3 * one.tolerance


def test_a_token_beyond_the_window_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that looks one token too far."""
    from kvplan.proof.validate import attention

    paged = attention.Probe.paged

    def broken(self: Any, queries: Any) -> Any:
        kept = self.visible
        self.visible = self.positions >= self.first - 1
        try:
            return paged(self, queries)
        finally:
            self.visible = kept

    monkeypatch.setattr(attention.Probe, "paged", broken)
    (one,) = answers(layout_of_kind("GQA window 100", "vllm", "bfloat16"))
    assert not one.ok


def test_a_note_is_no_failure_but_no_proof() -> None:
    one = AttentionError("GQA", "bfloat16", "sdpa", 0, 1, 1, 2.0, 1.0)
    assert not one.ok
    assert replace(one, note="not run: RuntimeError").ok
    broken = replace(one, error=float("nan"))
    assert not broken.ok
    assert broken.model_dump()["error"] is None
