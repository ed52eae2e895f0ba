"""Inkling's patch encoder: its folds, as plan_out_scales says them (vllm/models/inkling/common/towers.py)."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.architectures.lineages.inkling import fold_plan
from kvplan.errors import KvplanError


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 4, 3, 3), [(1, 1, 3), (1, 2, 64), (1, 4, 64), (1, 4, 64)]),
        ((2, 14, 4, 3), [(1, 1, 3), (1, 1, 3), (1, 7, 192), (1, 14, 640), (2, 14, 1216)]),
    ],
)
def test_plans(sizes: tuple[int, int, int, int], expected: list[tuple[int, int, int]]) -> None:
    assert fold_plan(*sizes) == expected


@given(st.integers(1, 8), st.integers(2, 64), st.integers(1, 40), st.integers(1, 4))
def test_folds_grow_to_the_whole_patch(frames: int, side: int, layers: int, channels: int) -> None:
    with suppress(KvplanError):
        _check(fold_plan(frames, side, layers, channels), frames, side, layers, channels)


def _check(plan: list[tuple[int, int, int]], frames: int, side: int, layers: int, channels: int) -> None:
    assert len(plan) == layers + 1
    assert plan[0] == (1, 1, channels)
    assert plan[-1][:2] == (frames, side)
    for (t, s, _), (t_next, s_next, width) in pairwise(plan):
        assert t_next % t == 0
        assert s_next % s == 0
        assert width % 64 == 0 or (t_next, s_next, width) == plan[0]
