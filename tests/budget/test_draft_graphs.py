"""CUDA graphs of a draft under vLLM's V2 runner, against an EAGLE-3 start of 0.33 on an H100."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.results import BudgetLine
from kvplan.units import GIB, MIB

MEASURED = 1.86523
"""GiB that h100-033-l31-eagle3-cold estimated, tests/data/measured.yaml."""


def graphs(version: str = "0.33", model: str = "llama-3.1-8b", **more: Any) -> BudgetLine:
    result = kvplan.size(model, engine=f"vllm@{version}", gpu="h100", **more)
    assert result.budget is not None, result.warnings
    return next(line for line in result.budget.lines if line.name == "CUDA graphs")


def drafted(version: str, method: str, tokens: int, **more: Any) -> BudgetLine:
    options: dict[str, Any] = {"weights": "16GiB"} | more
    return graphs(version, speculative_method=method, num_speculative_tokens=tokens, **options)


def test_the_measured_start_lies_in_the_interval() -> None:
    line = drafted("0.33", "eagle3", 3)
    assert line.low_bytes <= MEASURED * GIB <= line.high_bytes
    assert "of the draft's" in line.source


@pytest.mark.parametrize("version", ["0.22", "0.27", "0.28"])
def test_nothing_is_estimated_before_0_29(version: str) -> None:
    found = kvplan.size(
        "llama-3.1-8b", engine=f"vllm@{version}", gpu="h100", weights="16GiB",
        settings={"speculative_method": "eagle3", "num_speculative_tokens": 3, "model_runner": "v2"},
    )  # fmt: skip
    assert found.budget is not None
    assert not any("draft's" in line.source for line in found.budget.lines)


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_a_draft_without_a_model_captures_nothing(method: str) -> None:
    assert "draft's" not in drafted("0.33", method, 3).source


def test_the_first_token_alone_has_fewer_graphs_and_logits() -> None:
    """512 requests of one token each, or 256 of two: half the logits, a third of the graphs less."""
    one, two = (drafted("0.33", "eagle3", count).bytes for count in (1, 2))
    assert two - one > 40 * MIB


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_all_tokens_at_once_have_full_graphs_alone(tokens: int) -> None:
    """gpu/spec_decode/dflash/speculator.py 0.33: full graphs alone, logits of every token."""
    at_once = drafted("0.33", "dflash", tokens, max_num_seqs=16)
    one_by_one = drafted("0.33", "eagle", tokens, max_num_seqs=16)
    assert at_once.bytes < one_by_one.bytes
    wide, narrow = (drafted("0.33", "dflash", tokens, max_num_seqs=seqs).bytes for seqs in (256, 16))
    assert wide > narrow


@given(st.integers(1, 1024), st.integers(1, 8))
def test_more_requests_never_take_less(seqs: int, tokens: int) -> None:
    fewer, more = (
        drafted("0.33", "mtp", tokens, model="qwen3.5-9b", max_num_seqs=count, language_model_only=True).bytes
        for count in (seqs, seqs + 1)
    )
    # Captured are every 16th number of tokens and the most itself: where that is a 16th, one graph less is.
    assert fewer <= more or (seqs + 1) * (tokens + 1) % 16 == 0
