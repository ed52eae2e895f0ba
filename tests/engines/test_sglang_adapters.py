"""SGLang's pool of LoRA adapters (lora/mem_pool.py), worked out by hand from the shapes of its buffers."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.results import BudgetLine

LINEAR = "qkv_proj,o_proj,gate_up_proj,down_proj"
LLAMA_8B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv": 8,
    "width": 128,
    "mlp": 14336,
    "vocabulary": 128256,
}


def line_of(**options: Any) -> BudgetLine:
    result = kvplan.size(
        "llama-3.1-8b", engine="sglang", gpu="h100", settings={"enable_lora": True}, **options
    )
    assert result.budget is not None, result.warnings
    (line,) = (line for line in result.budget.lines if line.name == "LoRA adapters")
    return line


def by_hand(tp: int, rank: int, slots: int, *, ends: bool = False) -> int:
    """A: [slots, slices · rank, inputs], B: [slots, outputs, rank], for every layer; two bytes a number."""
    m = LLAMA_8B
    kv = max(m["kv"] // tp, 1)
    qkv = 3 * m["hidden"] + (m["heads"] // tp + 2 * kv) * m["width"]
    out = m["heads"] * m["width"] // tp + m["hidden"]
    gate_up = 2 * m["hidden"] + 2 * m["mlp"] // tp
    down = m["mlp"] // tp + m["hidden"]
    numbers = m["layers"] * (qkv + out + gate_up + down)
    if ends:
        part = m["vocabulary"] // tp  # a multiple of 64 already
        both = (m["vocabulary"] + m["hidden"]) + (m["hidden"] + part)
        numbers += 2 * both  # either name makes buffers of both
    return slots * rank * numbers * 2


@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_linear_modules(tp: int) -> None:
    found = line_of(tp=tp, max_lora_rank=64, lora_target_modules=LINEAR, max_loras_per_batch=4)
    assert found.bytes == by_hand(tp, 64, 4)


def test_names_of_the_checkpoint_are_the_same() -> None:
    parts = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    assert line_of(max_lora_rank=16, lora_target_modules=parts).bytes == by_hand(1, 16, 8)


@pytest.mark.parametrize("tp", [1, 4])
def test_all_has_the_embeddings_twice(tp: int) -> None:
    assert line_of(tp=tp, max_lora_rank=16, lora_target_modules="all").bytes == by_hand(tp, 16, 8, ends=True)


def test_every_stage_has_the_buffers_of_all_layers() -> None:
    one = line_of(max_lora_rank=16, lora_target_modules=LINEAR)
    assert line_of(pp=2, max_lora_rank=16, lora_target_modules=LINEAR).bytes == one.bytes


def test_refusals() -> None:
    with pytest.raises(KvplanError, match="rank and the modules"):
        line_of()
    with pytest.raises(KvplanError, match="all stands alone"):
        line_of(max_lora_rank=16, lora_target_modules="all,q_proj")
    for model in ("deepseek-v2-lite", "qwen3-30b-a3b", "qwen3.5-27b"):
        result = kvplan.size(
            model,
            engine="sglang",
            gpu="h100",
            settings={"enable_lora": True, "max_lora_rank": 16, "lora_target_modules": LINEAR},
        )
        assert result.budget is None
        assert any("adapters" in text for text in result.warnings), result.warnings
    strange = kvplan.size(
        "llama-3.1-8b",
        engine="sglang",
        gpu="h100",
        settings={"enable_lora": True, "max_lora_rank": 16, "lora_target_modules": "wq"},
    )
    assert strange.budget is None
