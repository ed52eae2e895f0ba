"""vLLM's --performance-mode: a batch twice as large, or CUDA graphs of every small size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.launching import started_readings
from kvplan.engines.vllm.memory.cuda_graphs import captured


def settings(**options: Any) -> tuple[int, int]:
    asked: dict[str, Any] = {"engine": "vllm@0.30", "gpu": "a100-sxm-80gb", "max_model_len": 8192, **options}
    found = kvplan.size("qwen3-8b", **asked).settings
    return found["max_num_batched_tokens"], found["max_num_seqs"]


@pytest.mark.parametrize(
    ("asked", "batch"),
    [
        ({}, (2048, 256)),
        ({"performance_mode": "balanced"}, (2048, 256)),
        ({"performance_mode": "interactivity"}, (2048, 256)),
        ({"performance_mode": "throughput"}, (4096, 512)),
        ({"performance_mode": "throughput", "max_num_seqs": 8}, (4096, 8)),
        ({"performance_mode": "throughput", "max_num_batched_tokens": 1024}, (1024, 512)),
        ({"performance_mode": "throughput", "gpu": "h100"}, (16_384, 2048)),
        ({"performance_mode": "throughput", "engine": "vllm@0.16"}, (2048, 256)),
    ],
)
def test_throughput_doubles_what_is_not_given(asked: dict[str, Any], batch: tuple[int, int]) -> None:
    """engine/arg_utils.py, _set_default_max_num_seqs_and_batched_tokens_args."""
    assert settings(**asked) == batch


NUMBERS = st.tuples(st.integers(1, 600), st.integers(1, 9000), st.integers(0, 4), st.integers(0, 600))


@given(NUMBERS)
def test_interactivity_adds_the_small_sizes(numbers: tuple[int, int, int, int]) -> None:
    seqs, tokens, drafts, largest = numbers
    plain, fine = (captured(seqs, tokens, drafts, largest=largest, fine=fine) for fine in (False, True))
    assert fine.piecewise >= plain.piecewise
    assert fine.full >= plain.full
    assert fine.number - plain.number <= 2 * (32 - 7)


def test_every_size_up_to_32_is_captured() -> None:
    """1, 2, 4, 8, 16, 24 and 32 are there anyway."""
    assert captured(256, 8192, 0, fine=True).piecewise == captured(256, 8192, 0).piecewise + 25
    assert captured(8, 8192, 0, fine=True).piecewise == 16


@pytest.mark.parametrize("word", ["balanced", "interactivity", "throughput"])
def test_a_command_says_it(word: str) -> None:
    (reading,) = started_readings(f"vllm serve Qwen/Qwen3-8B --performance-mode {word}", "h100")
    assert reading.plan is not None
    assert reading.plan.settings.own["performance_mode"] == word
    assert not reading.plan.unread


def test_interactivity_leaves_less_for_the_cache() -> None:
    pools = [
        kvplan.size("qwen3-8b", engine="vllm@0.30", gpu="h100", settings={"performance_mode": word}).pool
        for word in ("balanced", "interactivity")
    ]
    assert pools[0] is not None
    assert pools[1] is not None
    assert pools[1].bytes < pools[0].bytes
