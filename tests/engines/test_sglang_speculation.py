"""Speculation in SGLang: drafts that are looked up, what a command leaves unsaid, what excludes what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model, make_settings
from kvplan.engines.sglang.engine import Sglang
from kvplan.engines.sglang.versions import VERSIONS
from kvplan.files.launch.read import launches_of

GIB = 2**30


def size(model: str, version: str = VERSIONS[-1], **options: Any) -> Any:
    asked = make_settings(**{"kv_cache_memory": 20 * GIB, "gpu": "h100-sxm-80gb", **options})
    return Sglang().size(load_model(model), asked, version)


def said(flags: str) -> Any:
    """What a command says of speculation."""
    (launch,) = launches_of(f"python -m sglang.launch_server --model x/y {flags}")
    return launch.serve.get("speculative_config")


@pytest.mark.parametrize(
    ("flags", "method", "tokens"),
    [
        ("--speculative-algorithm NGRAM", "ngram", 11),
        ("--speculative-algorithm ngram --speculative-num-draft-tokens 5", "ngram", 4),
        ("--speculative-algorithm NEXTN", "mtp", 3),
        ("--speculative-algorithm EAGLE", "mtp", 3),
        ("--speculative-algorithm EAGLE --speculative-num-steps 2", "mtp", 2),
        ("--speculative-algorithm STANDALONE --speculative-draft-model-path z/w", "draft_model", 3),
    ],
)
def test_what_a_command_leaves_unsaid(flags: str, method: str, tokens: int) -> None:
    found = said(flags)
    assert (found["method"], found["num_speculative_tokens"]) == (method, tokens)


@pytest.mark.parametrize(
    "flags",
    [
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path z/w",
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 1",
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens many",
    ],
)
def test_what_is_not_known_is_not_said(flags: str) -> None:
    """A head beside Llama gets a tree; one token is no draft."""
    assert said(flags) is None


@given(tokens=st.integers(1, 12), requests=st.integers(1, 400))
def test_looked_up_drafts_take_no_layers(tokens: int, requests: int) -> None:
    """The pool is that without drafts for as many requests; without a number 48 run."""
    drafts: dict[str, Any] = {"speculative_method": "ngram", "num_speculative_tokens": tokens}
    plain = size("llama-3.1-8b", max_num_seqs=requests).settings
    found = size("llama-3.1-8b", max_num_seqs=requests, **drafts).settings
    for name in ("max_total_num_tokens", "max_running_requests", "page_size", "attention_backend"):
        assert found[name] == plain[name]
    assert size("llama-3.1-8b", **drafts).settings["max_running_requests"] == 48


@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_some_drafts_want_attention_in_one_group(method: str) -> None:
    draft: dict[str, Any] = {"speculative_model": "llama-3.2-1b"} if method == "draft_model" else {}
    asked = {"speculative_method": method, "num_speculative_tokens": 3, "tensor_parallel_size": 8, **draft}
    assert size("llama-3.1-8b", **asked).refusal is None
    refusal = size("llama-3.1-8b", **asked, data_parallel_size=2, enable_dp_attention=True).refusal
    assert refusal is not None
    assert refusal.code == "unsupported-setting"
