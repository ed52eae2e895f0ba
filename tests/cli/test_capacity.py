"""One line a machine: the table says what each question by itself says."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from tests.cli.conftest import Run

LENGTHS = ("8k", "32k")


def table(run: Run, *words: str) -> dict[str, Any]:
    ran = run("size", *words, "--json")
    assert ran.code in (0, 1)
    found: dict[str, Any] = json.loads(ran.out)
    return found


def asked(model: str, tokens: int, **options: Any) -> tuple[int, int]:
    """Requests in the likely and in the safe pool, asked one by one."""
    budget = kvplan.size(model, tokens=tokens, **options).budget
    assert budget is not None
    likely, safe = (
        kvplan.size(model, tokens=tokens, **{**options, "kv_cache_memory": pool}).pool
        for pool in (budget.kv_pool_bytes, budget.kv_pool_low_bytes)
    )
    assert likely is not None
    assert safe is not None
    return likely.max_running, safe.max_running


@pytest.mark.parametrize(
    ("model", "engine", "gpus"),
    [
        ("llama-3.1-8b", "vllm", ("h100", "2xl40s")),
        ("qwen3-8b", "sglang", ("h100", "a100-40gb")),
        ("llama-3.1-8b", "trtllm", ("h100", "2xl40s")),
    ],
)
def test_each_cell_is_the_answer_to_its_question(
    run: Run, model: str, engine: str, gpus: tuple[str, ...]
) -> None:
    found = table(run, model, "-e", engine, "--gpu", ",".join(gpus), "-t", ",".join(LENGTHS))
    assert len(found["machines"]) == len(gpus)
    longest = kvplan.size(model, engine=engine, tokens="32k").settings.get("max_model_len")
    for gpu, row in zip(gpus, found["machines"]):
        started = {} if longest is None else {"max_model_len": 32768}
        for cell in row["requests"]:
            alone = asked(model, cell["tokens"], engine=engine, gpu=gpu, **started)
            assert (cell["likely"], cell["safe"]) == alone


def test_gpus_and_ranks_make_every_pair_that_there_can_be(run: Run) -> None:
    found = table(run, "llama-3.3-70b", "--gpu", "4xh100,8xh100", "--tp", "4,8", "-t", "8k")
    pairs = [(row["gpus"], row["tensor_parallel_size"]) for row in found["machines"]]
    assert pairs == [(4, 4), (8, 4), (8, 8)]
    assert [row["replicas"] for row in found["machines"]] == [1, 2, 1]
    one, two, _ = (row["requests"][0] for row in found["machines"])
    assert (two["likely"], two["safe"]) == (2 * one["likely"], 2 * one["safe"])


def test_longer_requests_are_never_more(run: Run) -> None:
    found = table(run, "qwen3-8b", "--gpu", "4090,3090,h100", "-t", "1k,2k,4k,8k,16k,32k")
    for row in found["machines"]:
        for key in ("likely", "safe"):
            counts = [cell[key] for cell in row["requests"]]
            assert counts == sorted(counts, reverse=True)
        assert all(cell["safe"] <= cell["likely"] for cell in row["requests"])


def test_the_screen_has_a_line_a_machine_and_the_reasons(run: Run) -> None:
    ran = run("size", "llama-3.3-70b", "--gpu", "4xh100,4xrtx-5090,4xm4-max", "-t", "8k,128k")
    text = ran.out
    assert ran.code == 0
    assert "4 × h100-sxm-80gb" in text
    assert "4 × rtx-5090-32gb" in text
    assert "the cache rules of vLLM on Apple M4 Max" in " ".join(text.split())
    ran = run("size", "llama-3.1-8b", "-e", "llamacpp", "-q", "q4_k_m", "--gpu", "3060,2xrtx-3090")
    assert "TP" not in ran.out


def test_what_no_machine_answers_has_a_code_of_its_own(run: Run) -> None:
    assert run("size", "llama-3.1-8b", "--gpu", "tpu-v5e,arc-b580", "-t", "8k").code == 2
    assert run("size", "llama-3.1-8b", "--gpu", "rtx-2080-ti,3060", "-t", "8k").code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("llama-3.1-8b", "qwen3-8b", "--gpu", "h100,a100"),
        ("llama-3.1-8b", "--gpu", "h100,a100", "-n", "1,2"),
        ("llama-3.1-8b", "--gpu", "h100,a100", "-e", "all"),
        ("llama-3.1-8b", "--tp", "1,2"),
        ("llama-3.1-8b", "--gpu", "h100,a100", "--kv-cache-memory", "1GiB", "--show", "lengths"),
    ],
)
def test_what_makes_no_one_table_is_refused(run: Run, words: tuple[str, ...]) -> None:
    ran = run("size", *words)
    assert ran.code == 2
    assert "a table of GPUs takes one model" in " ".join(ran.err.split())


def test_an_unknown_gpu_of_a_list_is_an_error(run: Run) -> None:
    ran = run("size", "llama-3.1-8b", "--gpu", "h100,nope")
    assert ran.code == 2
    assert "unknown-gpu" in ran.err
    with pytest.raises(KvplanError):
        kvplan.size("llama-3.1-8b", gpu="nope")


def test_the_next_question_is_the_one_that_was_asked(run: Run) -> None:
    words = ("llama-3.1-8b", "-t", "8k,32k", "--kv-cache-dtype", "fp8")
    shown = " ".join(run("size", *words, "--gpu", "h100,h200").out.split())
    typed = "-t 8k,32k -g h100 --kv-cache-dtype fp8 --max-model-len 32768"
    assert f"next: kvplan size llama-3.1-8b {typed}" in shown
