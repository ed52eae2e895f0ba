"""TGI 3.3: its warm-up's arithmetic by hand; its rules are read from source, no server was asked."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.logs import parse_log
from kvplan.units import GIB

LLAMA = "llama-3.1-8b"
TOKEN = 32 * 2 * 8 * 128 * 2


def sized(model: str = LLAMA, **options: Any) -> kvplan.SizeResult:
    return kvplan.size(model, engine="tgi", **{"tokens": 4096, **options})


@pytest.mark.parametrize(("attention", "block"), [("flashinfer", 1), ("flashdecoding", 256), ("paged", 16)])
def test_blocks_follow_the_attention(attention: str, block: int) -> None:
    found = sized(kv_cache_memory=10 * GIB, tgi_attention=attention)
    pool = found.pool
    assert pool is not None
    assert pool.bytes_per_block == TOKEN * block
    assert pool.num_blocks == 10 * GIB // (TOKEN * block)
    # Block 0 is for health checks; the last token of an answer has no slot.
    assert pool.requests_that_fit == (pool.num_blocks - 1) // -(-4095 // block)


@pytest.mark.parametrize(
    ("model", "gpu", "attention"),
    [
        (LLAMA, "h100", "flashinfer"),
        (LLAMA, "t4", "flashinfer"),
        ("phi-3-mini-4k", "h100", "flashdecoding"),  # heads of 96
        ("phi-3-mini-4k", "t4", "paged"),
        ("falcon-7b", "h100", "flashdecoding"),
    ],
)
def test_the_attention_of_a_head_and_a_card(model: str, gpu: str, attention: str) -> None:
    assert sized(model, gpu=gpu, tokens=1024).settings["attention"] == attention


def test_a_window_keeps_every_token() -> None:
    short, long = (sized("mistral-7b-v0.1", tokens=count).per_gpu.kv_bytes for count in (4097, 8193))
    assert long == 2 * short


def test_the_pool_is_what_the_share_leaves() -> None:
    """total · fraction · 0.90 - the lines, on the likely figure."""
    for share in ("1", "0.8"):
        budget = sized(gpu="h100", cuda_memory_fraction=share).budget
        assert budget is not None
        usable = budget.total_bytes - budget.unused_bytes
        assert abs(usable - budget.total_bytes * float(share) * 0.9) < 2
        assert budget.kv_pool_bytes == usable - sum(line.bytes for line in budget.lines)
        assert budget.kv_pool_low_bytes < budget.kv_pool_bytes < budget.kv_pool_high_bytes


def test_prefill_tokens_by_compute_positions_and_memory() -> None:
    """900 TFLOPS over what a token costs, within the positions; 4,096 on a card that it does not know."""
    layer = 2 * (2 * 32 + 2 * 8) * 128 * 4096 + 6 * 4096 * 14336
    by_compute = 900 * 10**12 // (layer * 32)
    assert by_compute < 131_072
    assert sized(gpu="h100").settings["max_batch_prefill_tokens"] == by_compute
    assert sized(gpu="rtx-4090").settings["max_batch_prefill_tokens"] == 4096
    assert sized("qwen2.5-vl-7b", gpu="rtx-4090").settings["max_batch_prefill_tokens"] == 10_000
    assert sized(gpu="h100", max_num_batched_tokens=2048).settings["max_batch_prefill_tokens"] == 2048


def test_at_most_as_many_as_it_takes_at_once() -> None:
    assert sized(tokens=16, kv_cache_memory=10 * GIB).pool.max_running == 128  # type: ignore[union-attr]
    few = sized(tokens=16, kv_cache_memory=10 * GIB, max_num_seqs=4).pool
    assert few is not None
    assert few.max_running == 4


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("deepseek-v3", {}, "mla"),
        ("qwen3-next-80b-a3b", {}, "gated_delta_net"),
        (LLAMA, {"tp": 16}, "does not divide"),
        (LLAMA, {"kv_cache_memory": GIB, "tokens": 100_000}, "does not fit"),
        (LLAMA, {"kv_cache_memory": GIB, "max_model_len": 1000}, "max_total_tokens"),
        ("phi-3-mini-4k", {"kv_cache_dtype": "fp8"}, "no fp8 cache"),
    ],
)
def test_what_it_does_not_serve(model: str, options: dict[str, Any], said: str) -> None:
    refusal = sized(model, **options).refusal
    assert refusal is not None
    assert said in refusal.message


def test_a_pipeline_is_refused() -> None:
    with pytest.raises(KvplanError, match="TGI has no pipeline"):
        sized(pp=2)


COMMAND = (
    "text-generation-launcher --model-id meta-llama/Llama-3.1-8B --num-shard 2"
    " --max-batch-prefill-tokens 8192 --cuda-memory-fraction 0.9 --hostname 0.0.0.0 --speculate 2"
)


def test_a_launcher_s_line_is_a_plan_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    from kvplan.cli import main

    assert main(["check", COMMAND, "--gpu", "h100"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--speculate" in shown, "what is not understood is named"
    assert main(["emit", COMMAND, "--gpu", "h100"]) == 0
    written = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    assert "text-generation-launcher --model-id meta-llama/Llama-3.1-8B" in written
    assert "--num-shard 2" in written
    assert "--max-batch-prefill-tokens 8192" in written


def test_the_log_s_blocks_are_compared() -> None:
    """The line of models/flash_causal_lm.py, as its log macro writes it."""
    blocks = 30 * GIB // TOKEN
    log = (
        "2025-11-02T10:00:00.000000Z INFO text_generation_launcher: Using Attention = flashinfer\n"
        f"2025-11-02T10:00:01.000000Z INFO text_generation_launcher: KV-cache blocks: {blocks}, size: 1\n"
    )
    seen = parse_log([log.encode()])
    assert seen.engine == "tgi"
    assert seen.rows[0].num_blocks is not None
    assert seen.rows[0].num_blocks.value == blocks


@pytest.mark.parametrize(("gpu", "said"), [
    ("p100", "compute capability 7.5"), ("v100", "compute capability 7.5"), ("7900xtx", "gfx90a and gfx942"),
    ("gaudi3", "not known"), ("m4-max", "not known"), ("v5e", "not known"),
])  # fmt: skip
def test_where_it_does_not_run(gpu: str, said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        sized(gpu=gpu)
    assert caught.value.code == "engine-gpu"


def test_the_image_for_amd_sets_paged_attention() -> None:
    """Dockerfile_amd: ENV ATTENTION=paged; a word of the user's counts before it."""
    assert sized(gpu="mi300x").settings["attention"] == "paged"
    assert sized(gpu="mi300x", tgi_attention="flashinfer").settings["attention"] == "flashinfer"
