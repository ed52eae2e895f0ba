"""Requests of several lengths at once, and the least of what so many requests need."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.cli.mixed import parts_of
from kvplan.deployment.counts import max_requests
from kvplan.deployment.least import Least, least
from kvplan.deployment.mix import Mix, Part, mixed
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import resolve
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.units import MIB
from tests.cli.conftest import Run


def asked(model: str, engine: str, parts: list[Part], **options: Any) -> Mix:
    return mixed(Question(load_model(model), choose(engine), make_settings(**options)), parts)


@pytest.mark.parametrize(
    ("text", "requests", "found"),
    [
        ("2k,8k:5,32k:1", 20, [(2048, 14), (8192, 5), (32768, 1)]),
        ("2k,8k:5,32k:1", None, [(2048, 1), (8192, 5), (32768, 1)]),
        ("2k:3,8k:5", None, [(2048, 3), (8192, 5)]),
        ("2k:3,8k:5", 8, [(2048, 3), (8192, 5)]),
        ("1k,2k,8k:2", 12, [(1024, 5), (2048, 5), (8192, 2)]),
    ],
)
def test_a_mix_is_read(text: str, requests: int | None, found: list[tuple[int, int]]) -> None:
    assert [tuple(part) for part in parts_of(text, requests)] == found


@pytest.mark.parametrize(
    ("text", "requests"), [("2k,8k:5", 5), ("2k:3,8k:5", 9), ("2k:0,8k:5", None), ("1k,2k,8k:2", 13)]
)
def test_a_mix_that_does_not_add_up_is_refused(text: str, requests: int | None) -> None:
    with pytest.raises(KvplanError) as caught:
        parts_of(text, requests)
    assert caught.value.code == "bad-mix"
    assert parts_of("2k,8k:5,32k:1", 20), "what help suggests works"


@pytest.mark.parametrize(
    ("model", "engine", "gpu"),
    [
        ("llama-3.1-8b", "vllm", "h100"),
        ("gpt-oss-20b", "vllm", "h100"),
        ("deepseek-v3", "sglang", "8xh200"),
        ("llama-3.1-8b", "trtllm", "h100"),
    ],
)
def test_one_length_is_what_size_says_or_a_little_less(model: str, engine: str, gpu: str) -> None:
    """A sum of shares never says more than the engine's own count."""
    found = asked(model, engine, [Part(8192, 10)], gpu=gpu)
    alone = kvplan.size(model, engine=engine, gpu=gpu, tokens=8192, max_model_len=8192).pool
    assert alone is not None
    assert alone.max_running * 9 // 10 <= found.likely.most <= alone.max_running


LENGTHS = st.sampled_from([512, 2048, 5000, 8192, 30000])
PARTS = st.lists(st.builds(Part, LENGTHS, st.integers(1, 40)), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(parts=PARTS, more=st.builds(Part, LENGTHS, st.integers(1, 5)))
def test_more_requests_take_more_and_their_order_nothing(parts: list[Part], more: Part) -> None:
    options = {"gpu": "h100", "max_model_len": 32768}
    found = asked("llama-3.1-8b", "vllm", parts, **options)
    assert asked("llama-3.1-8b", "vllm", parts[::-1], **options).likely == found.likely
    larger = asked("llama-3.1-8b", "vllm", [*parts, more], **options)
    assert found.likely.share is not None
    assert larger.likely.share is not None
    assert larger.likely.share > found.likely.share
    assert found.safe.share is not None
    assert found.safe.share >= found.likely.share
    assert found.held_in(found.likely) == (
        found.likely.share <= 1 and found.requests <= (found.limit or 10**9)
    )


def test_two_parts_of_one_length_are_one() -> None:
    one = asked("llama-3.1-8b", "vllm", [Part(4096, 7)], gpu="h100")
    two = asked("llama-3.1-8b", "vllm", [Part(4096, 3), Part(4096, 4)], gpu="h100")
    assert one.likely == two.likely


def test_a_slot_of_llamacpp_is_as_long_as_the_longest() -> None:
    options = {"gpu": "rtx-3090", "quantization": "q4_k_m"}
    mix = asked("llama-3.1-8b", "llamacpp", [Part(2048, 5), Part(16384, 1)], **options)
    long = asked("llama-3.1-8b", "llamacpp", [Part(16384, 6)], **options)
    assert mix.likely == long.likely


def test_the_screen_and_the_code(run: Run) -> None:
    ran = run("size", "llama-3.1-8b", "--gpu", "h100", "-n", "20", "-t", "2k,8k:5,32k:1")
    assert ran.code == 0
    assert "20 requests" in ran.out
    assert "vLLM 0.33, fit." in " ".join(ran.out.split())
    ran = run("size", "llama-3.1-8b", "--gpu", "rtx-4090", "-n", "20", "-t", "2k,8k:5,32k:1", "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert found["mix"][0] == {"tokens": 2048, "requests": 14}
    assert found["likely"]["fits"] is False
    assert run("size", "llama-3.1-8b", "-n", "20", "-t", "2k,8k:5").code == 2
    assert run("size", "llama-3.1-8b", "qwen3-8b", "--gpu", "h100", "-t", "2k,8k:5").code == 2
    shown = run("size", "llama-3.1-8b", "--gpu", "h100", "-t", "2k,8k:5", "--show", "least")
    assert (shown.code, shown.out) == (2, "")


def needs(model: str, engine: str, **options: Any) -> Least:
    return least(resolve(Question(load_model(model), choose(engine), make_settings(**options))))


@pytest.mark.parametrize(
    ("model", "engine", "gpu", "requests", "tokens"),
    [
        ("llama-3.1-8b", "vllm", "h100", 50, 8192),
        ("gpt-oss-20b", "vllm", "rtx-4090", 4, 16384),
        ("qwen3-8b", "sglang", "rtx-4090", 5, 8192),
        ("llama-3.1-8b", "trtllm", "l40s", 10, 8192),
    ],
)
def test_the_least_is_enough_and_less_is_not(
    model: str, engine: str, gpu: str, requests: int, tokens: int
) -> None:
    found = needs(model, engine, gpu=gpu, requests=requests, tokens=tokens)

    def holds(**options: Any) -> bool:
        try:
            pool = kvplan.size(
                model, engine=engine, tokens=tokens, max_model_len=tokens, **{"gpu": gpu, **options}
            ).pool
        except KvplanError:
            return False
        return pool is not None and pool.max_running >= requests

    assert found.memory is not None
    assert holds(kv_cache_memory=found.memory)
    assert not holds(kv_cache_memory=found.memory * 9 // 10)
    setting = (found.flag or "").removeprefix("--").replace("-", "_")
    assert found.share is not None
    assert found.share.likely is not None
    assert found.share.safe is None or found.share.safe >= found.share.likely
    assert holds(**{setting: str(float(found.share.likely))})
    assert not holds(**{setting: str(float(found.share.likely) - 0.01)})
    assert found.gpus is not None
    assert found.gpus.likely is not None
    assert holds(gpu=f"{found.gpus.likely}x{gpu}")


@settings(max_examples=25)
@given(
    st.sampled_from(["llama-3.1-8b", "qwen3-8b", "gpt-oss-20b", "gemma-3-27b", "deepseek-v2-lite"]),
    st.sampled_from(["vllm", "sglang", "trtllm", "llamacpp", "tgi", "generic"]),
    st.integers(1, 60),
    st.sampled_from([1, 100, 4096, 8000, 20000]),
)
def test_one_mib_less_than_the_least_is_too_little(
    model: str, engine: str, requests: int, tokens: int
) -> None:
    """The inverse answer against the forward one: it holds them, and a MiB less does not."""
    try:
        found = needs(model, engine, requests=requests, tokens=tokens)
    except KvplanError:
        return
    if found.memory is None:
        return
    loaded, choice = load_model(model), choose(engine)
    asked = make_settings(requests=requests, tokens=tokens, max_model_len=tokens)

    def holds(memory: int) -> bool:
        return max_requests(loaded, choice, replace(asked, kv_cache_memory=memory)) >= requests

    assert found.memory % MIB == 0
    assert holds(found.memory)
    assert found.memory == MIB or not holds(found.memory - MIB)


def test_what_keeps_the_gpus_part_from_an_answer_is_said(run: Run) -> None:
    """Not ``none``, which says that no number of GPUs is enough."""
    ran = run(
        "size", "qwen3-8b-awq", "-e", "llamacpp", "-g", "h100", "-n", "4", "-t", "8k", "--show", "least"
    )
    assert "no pool was computed: Qwen/Qwen3-8B-AWQ is stored as awq" in " ".join(ran.out.split())
    assert "none" not in ran.out


def test_a_mix_in_host_memory_is_as_slow_as_its_longest_alone(run: Run) -> None:
    words = "llama-3.3-70b -q q4_k_m -e llamacpp -g rtx-4090 --host-memory 64GiB".split()
    for lengths in (["8k", "-n", "2"], ["4k:1,8k:1"]):
        ran = run("size", *words, "-t", *lengths)
        assert ran.out.startswith("Yes, slow: ")
        assert "44 of 80 layers in host memory" in " ".join(ran.out.split())


def test_the_least_gpus_are_named_with_their_ranks(run: Run) -> None:
    """Four GPUs hold them as one server of four, and not as the two of two that were asked for."""
    words = "nemotron-h-4b-base-8k -e sglang --gpu 4xrtx-4090 -t 512 -n 58".split()
    assert "4 · TP 4" in run("size", *words, "--tp", "2", "--show", "least").out
    assert [run("size", *words, "--tp", width).code for width in ("2", "4")] == [1, 0]


def test_the_least_on_the_screen(run: Run) -> None:
    ran = run("size", "llama-3.1-8b", "--gpu", "h100", "-n", "50", "-t", "8k", "--show", "least")
    assert ran.code == 0
    for word in ("--kv-cache-memory", "--gpu-memory-utilization", "GPUs", "--max-num-seqs"):
        assert word in ran.out
    ran = run("size", "llama-3.3-70b", "--gpu", "h100", "-n", "20", "-t", "32k", "--show", "least", "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert found["gpus"] == {"likely": 8, "safe": 8}
    assert found["tensor_parallel_size"] == {"likely": 4, "safe": 4}
    assert found["share"] == {"likely": None, "safe": None}
    assert run("size", "llama-3.1-8b", "-n", "1,2", "--show", "least").code == 2
    assert run("size", "llama-3.1-8b", "-e", "llamacpp", "-n", "2", "-t", "8k", "--show", "least").code == 0
