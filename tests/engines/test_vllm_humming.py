"""Humming's kernels for experts, on GPUs of 9.0 since vLLM 0.32."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.backends.expert_kernels import HUMMING, MARLIN, kernels_of
from kvplan.engines.vllm.memory.expert_workspaces import expert_bytes, expert_run
from tests.budget.test_expert_run import SHAPES

HOPPER = (9, 0)


def kernels(release: tuple[int, int], capability: tuple[int, int] = HOPPER, **asked: Any) -> Any:
    options = {"vendor": "nvidia", "adapters": False, **asked}
    return kernels_of("deepseek_v4", capability=capability, release=release, **options)


def test_humming_before_marlin_on_hopper_since_0_32() -> None:
    assert kernels((0, 31)) == (MARLIN,)
    assert kernels((0, 32)) == kernels((0, 33)) == (HUMMING,)
    assert kernels((0, 33), backend="marlin") == (MARLIN,)
    assert kernels((0, 33), adapters=True)[0] == MARLIN
    for other in ((8, 0), (8, 9), (12, 0)):
        assert HUMMING not in kernels((0, 33), other)


def test_gpt_oss_keeps_tritons() -> None:
    found = kernels_of("gpt_oss", vendor="nvidia", capability=HOPPER, release=(0, 33), adapters=False)
    assert [kernel.name for kernel in found] == ["Triton"]


def test_the_screen_names_it() -> None:
    """Its experts lie in as many bytes as Marlin's: their sizes are multiples of both."""
    asked: dict[str, Any] = {"gpu": "h100", "tp": 8, "max_model_len": 8192}
    found = {}
    for release in ("0.31", "0.32"):
        budget = kvplan.size("deepseek-ai/DeepSeek-V4-Flash-0731", engine=f"vllm@{release}", **asked).budget
        assert budget is not None
        found[release] = budget.lines[0]
    assert "as Humming keeps them" in found["0.32"].source
    assert "as Marlin keeps them" in found["0.31"].source
    assert found["0.31"].bytes == found["0.32"].bytes


@given(
    SHAPES, st.integers(1, 131_072), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["awq", "gptq", "nvfp4"])
)
def test_rows_that_are_not_gathered(shape: Shape, tokens: int, ways: int, stored: str) -> None:
    """Both products stay as wide; the buffer beside them has an expert's width, or one row a token."""
    older, newer = (
        expert_bytes(
            shape,
            expert_run(stored, release, HOPPER, dp=1, expert_parallel=False),
            tokens=tokens,
            ways=ways,
            dp=1,
        )
        for release in ((0, 31), (0, 32))
    )
    width = -(-shape.expert_width // ways)
    rows = tokens * shape.experts_per_token
    products = rows * max(2 * width, shape.hidden_size) * shape.element_bytes
    beside = max(rows * width, tokens * shape.hidden_size) * shape.element_bytes
    assert products + beside <= newer < products + beside + rows * shape.element_bytes
    assert newer <= older
    if width >= shape.hidden_size:
        assert newer == older


@pytest.mark.parametrize(
    ("stored", "release", "capability", "asked"),
    [
        ("awq", (0, 31), HOPPER, {}),
        ("awq", (0, 32), (8, 0), {}),
        ("awq", (0, 32), HOPPER, {"expert_parallel": True}),
        ("awq", (0, 32), HOPPER, {"backend": "marlin"}),
        ("gpt_oss_mxfp4", (0, 32), HOPPER, {}),
        ("fp8", (0, 32), HOPPER, {}),
        (None, (0, 32), HOPPER, {}),
    ],
)
def test_others_gather(
    stored: str | None, release: tuple[int, int], capability: tuple[int, int], asked: dict[str, Any]
) -> None:
    options = {"dp": 1, "expert_parallel": False, **asked}
    assert not expert_run(stored, release, capability, **options).indexed
    options |= {"expert_parallel": False, "backend": "humming"}
    assert expert_run(stored, (0, 32), HOPPER, **options).indexed
