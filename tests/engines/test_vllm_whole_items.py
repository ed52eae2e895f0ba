"""Items that vLLM schedules whole must fit into a batch (`encoder_profile.whole_items`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.results import SizeResult

GEMMA, WITHOUT = "google/gemma-4-26B-A4B-it", "google/gemma-4-E4B-it"
SMALL, LARGE = "a100-sxm-80gb", "h100-sxm-80gb"
VIDEO, IMAGE = 2496, 280


def _size(version: str, *, model: str = GEMMA, gpu: str = SMALL, **options: Any) -> SizeResult:
    asked = {"max_model_len": 32768, "weights": "15GiB", **options}
    return kvplan.size(model, engine=f"vllm@{version}", gpu=gpu, **asked)


@pytest.mark.parametrize(
    ("version", "tokens", "starts"),
    [("0.19", 2048, True), ("0.20", 2048, False), ("0.21", 2048, False), ("0.22", VIDEO, True)],
)
def test_the_default_of_small_gpus(version: str, tokens: int, starts: bool) -> None:
    """vllm-project/vllm#42687 and recipes#441: an A100 of 80 GB is refused with 0.20; 0.22 raises it."""
    answer = _size(version)
    assert answer.settings["max_num_batched_tokens"] == tokens
    assert (answer.refusal is None) == starts
    if not starts:
        assert answer.refusal is not None
        assert "2,496" in answer.refusal.message
        assert "--max-num-batched-tokens 2496" in answer.refusal.help


@pytest.mark.parametrize("version", ["0.20", "0.21", "0.22", "0.27", "0.31", "0.33"])
def test_large_gpus_and_other_models(version: str) -> None:
    assert _size(version, gpu=LARGE).refusal is None
    assert _size(version, model=WITHOUT, max_num_batched_tokens=512).refusal is None


@pytest.mark.parametrize(
    "options", [{"language_model_only": True}, {"limit_mm_per_prompt": {"image": 0, "video": 0}}]
)
def test_text_alone_is_not_held_to_it(options: dict[str, Any]) -> None:
    assert _size("0.20", **options).refusal is None
    # The default is raised whatever is served: the engine looks at what the class knows.
    assert _size("0.22", **options).settings["max_num_batched_tokens"] == VIDEO


def test_no_start_of_a_radeon_is_refused_before_its_platform_asks() -> None:
    assert _size("0.29", gpu="mi300x-192gb", max_num_batched_tokens=512).refusal is None
    assert _size("0.31", gpu="mi300x-192gb", max_num_batched_tokens=512).refusal is not None


@settings(max_examples=40, deadline=None)
@given(
    version=st.sampled_from(["0.19", "0.20", "0.21", "0.22", "0.29", "0.33"]),
    tokens=st.integers(min_value=256, max_value=4096),
    limits=st.fixed_dictionaries({}, optional={"image": st.integers(0, 2), "video": st.integers(0, 2)}),
)
def test_what_is_asked_starts_where_the_largest_item_fits(
    version: str, tokens: int, limits: dict[str, int]
) -> None:
    served = {kind: size for kind, size in (("image", IMAGE), ("video", VIDEO)) if limits.get(kind) != 0}
    fits = version == "0.19" or tokens >= max(served.values(), default=0)
    answer = _size(
        version, max_num_batched_tokens=tokens, max_num_seqs=64, limit_mm_per_prompt=limits or None
    )
    assert (answer.refusal is None) == fits


@settings(max_examples=20, deadline=None)
@given(frames=st.integers(min_value=1, max_value=40))
def test_fewer_frames_are_a_smaller_item(frames: int) -> None:
    limits = {"video": {"count": 1, "num_frames": frames}}
    answer = _size("0.27", limit_mm_per_prompt=limits, gpu="rtx-3090-24gb", weights="12GiB")
    assert answer.settings["max_num_batched_tokens"] == max(2048, min(frames, 32) * 78)
