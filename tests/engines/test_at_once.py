"""How many requests run at once in the engines that charge whole requests: counted by hand."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.cli import main

GIB = 2**30
TOKEN = 2 * 32 * 8 * 128 * 2
"""Bytes of one token of llama-3.1-8b: K and V of 32 layers, 8 heads of 128, two bytes each."""


def at_once(engine: str, tokens: int, answer: int, gibibytes: int = 4) -> int:
    result = kvplan.size(
        "llama-3.1-8b", engine=engine, gpu="h100", kv_cache_memory=gibibytes * GIB, tokens=tokens,
        answer_tokens=answer,
    )  # fmt: skip
    assert result.pool is not None
    return result.pool.max_running


@pytest.mark.parametrize("answer", [7, 1024, 8000])  # SGLang leaves seven tokens to the answer
def test_sglang_holds_whole_requests_whatever_their_answers(answer: int) -> None:
    """4 GiB are 32,768 places of one token: four requests of 8,192, three of 8,193."""
    assert 4 * GIB // TOKEN == 32768
    assert at_once("sglang", 8192, answer) == 4
    assert at_once("sglang", 8193, answer) == 3
    assert at_once("sglang", 5000, min(answer, 4999)) == 32768 // 5000 == 6


@pytest.mark.parametrize("answer", [1, 1024, 8000])
def test_tensorrt_llm_charges_whole_answers_in_blocks(answer: int) -> None:
    """4 GiB are 1,024 blocks of 32 tokens: 8,192 tokens take 256, one token more 257."""
    assert 4 * GIB // TOKEN // 32 == 1024
    assert at_once("trtllm", 8192, answer) == 1024 // 256 == 4
    assert at_once("trtllm", 8193, answer) == 1024 // 257 == 3
    assert at_once("trtllm", 4097, min(answer, 4096)) == 1024 // 129 == 7


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("arrive together", "preempted", "scheduler.py")),
        ("sglang", ("full length", "retracted", "new_token_ratio")),
        ("trtllm", ("whole answer", "GUARANTEED_NO_EVICT", "MAX_UTILIZATION")),
        ("llamacpp", ("a slot a request", "server.cpp")),
    ],
)
def test_explain_names_the_rule(
    engine: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["explain", "llama-3.1-8b", "--engine", engine, "--gpu", "h100", "--kv-cache-memory", "4GiB", "-v"])
    shown = " ".join(capsys.readouterr().out.split())
    assert all(word in shown for word in words)
