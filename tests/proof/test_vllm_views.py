"""The installed vLLM 0.32 plans its tensors, and kvplan's views must lie on the same bytes (make vllm).

vLLM's planner and its own create_kv_cache_views are asked on torch's meta device, without memory; every
layer's shape, strides and offset must be equal, on every pipeline stage.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_model, make_settings
from kvplan.engines.tensors import Layout, Rank, layout_of
from kvplan.errors import KvplanError
from tests.engines.test_vllm_live import RELEASE
from tests.engines.vllm_cases import Case, cases, question
from tests.engines.vllm_compare import gpu_of, installed

PROGRAM = Path(__file__).parents[1] / "engines" / "vllm_ask.py"
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        RELEASE is None or not RELEASE.startswith("0.32."), reason="vLLM 0.32 is not installed: make vllm"
    ),
]
View = tuple[list[int], list[int], int]


def ours(case: Case, stage: int) -> Layout:
    settings = make_settings(
        gpu=gpu_of(case.gpu), kv_cache_memory=case.memory, **installed(case.gpu), **case.options
    )
    return layout_of(load_model(case.config), "vllm", "0.32", settings, Rank(stage=stage))


def normal(shape: list[int], strides: list[int], offset: int) -> View:
    """An axis of one entry has no stride to speak of."""
    return shape, [stride if size > 1 else 0 for size, stride in zip(shape, strides, strict=False)], offset


def wrong(case: Case, answer: dict[str, Any]) -> str | None:
    if "refused" in answer:
        try:
            ours(case, 0)
        except KvplanError:
            return None
        return f"vLLM refuses: {answer['refused'][:100]}"
    for stage, (name, size, *views) in enumerate(answer["views"]):
        layout = ours(case, stage)
        if layout.bytes != size:
            return f"stage {stage}: {layout.bytes:,} bytes, vLLM allocates {size:,} ({name})"
        theirs = [normal(*view) for view in views]
        mine = [normal(list(view.shape), list(view.strides[:-1]), view.offset) for view in layout.views]
        if mine != theirs:
            place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), -1)
            counts = f"{len(mine)} views, {len(theirs)} of vLLM"
            return f"stage {stage}, view {place} ({counts}): {mine[place]}, vLLM {theirs[place]} ({name})"
    return None


@pytest.mark.parametrize("card", ["h100", "b200"])
def test_views_lie_where_vllm_puts_them(card: str) -> None:
    """Every recorded case of one card, in one process that forks for each."""
    asked = [case for case in cases() if case.gpu == card]
    lines = "\n".join(json.dumps({**question(case), "views": True}) for case in asked)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input=lines, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(asked)
    found = {
        case.name: why for case, answer in zip(asked, answers, strict=True) if (why := wrong(case, answer))
    }
    assert not found, found
    assert sum("views" in answer for answer in answers) > len(asked) // 2
