"""Wrong answers that the laws of one answer found (tests/laws/test_one_answer.py), each once by itself."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import kvplan
from kvplan.results import Verdict
from tests.laws.doors import plan_file, ran
from tests.laws.questions import Asked

FALCON = "falcon-h1-7b -e vllm@0.32 --tp 1 --gpu l4 -t 6000"


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        # a ladder and a mix said 0 where nothing was counted
        ("size command-r7b -e trtllm --gpu 3xrtx-3090 -t 6000 --show lengths", 2, "is not known"),
        # llama-server cuts every slot to the model's training
        ("size phi-4 -e llamacpp -q q5_k_m --gpu l40s,h100 -t 20000", 1, "none of these holds"),
        ("size phi-4 -e llamacpp -q q5_k_m --gpu l40s,h100 -t 16000", 0, "16,000"),
        # suggestions of a mix and a ladder were not tried
        ("size qwen3-30b-a3b -e sglang@0.5.12 --gpu h200 --max-num-seqs 1 -t 16k:3,1k:2", 1, "do not fit"),
        # the least for a request that the engine refuses
        ("size phi-4 -e trtllm --gpu h100 -t 20000 -n 8 --show least", 1, "longer than"),
        # a checkpoint's refusals were those of the first checkpoint with the same layers
        ("plan qwen3-30b-a3b -e vllm@0.27 -t 16k -n 16 --tp 4 --gpu l4-24gb", 0, "bfloat16"),
        ("plan qwen3-next-80b-a3b -e vllm --tp 4 --gpu l40s --kv-cache-dtype fp8_e5m2 -t 2k", 0, "l40s"),
        # fewer blocks than sequences with states
        (f"plan {FALCON} --max-num-seqs 256 --pool likely", 0, "pp 2"),
        # more requests than llama.cpp has slots
        ("size llama-3.1-8b -e llamacpp -q iq4_xs --gpu h100 -t 1000 -n 300", 1, "holds only 256"),
        # a model without a length of its own: no suggestion looks beyond the one that was asked for
        ("size mamba-1.4b -e llamacpp -q q8_0 --gpu rtx-4090 -t 32768 -n 282", 1, "holds only 256"),
        ("size mamba-1.4b -e vllm --gpu rtx-4090 -t 32768 --show lengths", 0, "1 32,768"),
        ("size mamba-130m -e llamacpp --gpu rtx-4090 -t 32768 --show lengths", 0, "1 32,768"),
        # what a mix of one length takes is what the engine counts
        ("size gemma-3-12b -e vllm@0.27 --gpu 2xb200 -t 20000:165", 0, "165"),
    ],
)
def test_a_command_answers(typed: str, code: int, said: str) -> None:
    found = ran(*shlex.split(typed))
    assert found.code == code, found.out + found.err
    assert said in " ".join((found.out + found.err).split())


def test_the_least_says_when_only_its_own_number_of_sequences_helps() -> None:
    data = ran(*shlex.split(f"size {FALCON} -n 1 --show least --json")).data
    assert data["gpus"] == {"likely": 2, "safe": 2}, "one GPU starts with fewer sequences only"


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_the_largest_pool_is_not_too_large_for_the_gpu(engine: str) -> None:
    """What is left where everything else is small is more than what is left as a rule: it may start."""
    first = kvplan.size("llama-3.1-8b", engine=engine, gpu="h100", tokens=1024)
    assert first.capacity is not None
    asked = first.capacity.requests + 1
    found = kvplan.size("llama-3.1-8b", engine=engine, gpu="h100", tokens=1024, requests=asked)
    assert found.verdict is Verdict.UNLIKELY


def test_states_are_in_the_bytes_of_all_requests() -> None:
    """SGLang keeps them in the pool, beside its blocks."""
    found = kvplan.size("nemotron-nano-9b-v2", engine="sglang", gpu="h100", tokens=16384)
    assert found.capacity is not None
    asked = found.capacity.requests
    full = kvplan.size("nemotron-nano-9b-v2", engine="sglang", gpu="h100", tokens=16384, requests=asked)
    assert full.pool is not None
    assert full.pool.bytes * 0.9 < full.per_gpu.kv_bytes <= full.pool.bytes


SPILLED = Asked(
    "gemma-3-12b",
    "llamacpp",
    {"quantization": "q4_k_m", "gpu": "rtx-4060-ti-16gb", "kv_cache_dtype": "q8_0",
     "tokens": 8192, "requests": 68},
)  # fmt: skip


def test_explain_leaves_out_layers_in_host_memory() -> None:
    told = ran("explain", *SPILLED.words, "--json").data
    sized = ran("size", *SPILLED.words, "--json").data
    assert sized["settings"]["layers_on_host"]
    assert told["per_gpu"] == sized["per_gpu"]


@pytest.mark.parametrize("cache", ["q8_0", "q4_0"])
def test_a_plan_of_the_page_has_the_cache_of_llama_cpp(cache: str, tmp_path: Path) -> None:
    asked = SPILLED.asking(kv_cache_dtype=cache, requests=2)
    path = plan_file(asked, tmp_path)
    assert f"cache_type_k: {cache}" in path.read_text(encoding="utf-8")
    assert ran("check", str(path)).code == 0
    assert ran("validate", str(path), "--dry-run", "--device", "cpu").code == 0


def test_a_layer_moves_before_a_request_is_only_likely() -> None:
    """Where --fit sees no need to move and the safe pool is too small, one layer more lies on the host."""
    for requests in (5, 4, 3):
        found = kvplan.size(
            "llama-3.3-70b", engine="llamacpp", quantization="q5_k_m", gpu="2xrtx-5090", tokens=8192,
            requests=requests,
        )  # fmt: skip
        assert found.verdict is Verdict.YES
