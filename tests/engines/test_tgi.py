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
        (LLAMA, {"kv_cache_memory": GIB, "tokens": 100_000}, "max_total_tokens 100,000 is more than 8,192"),
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
    " --max-batch-prefill-tokens 8192 --cuda-memory-fraction 0.9 --hostname 0.0.0.0"
    " --speculate 2 --rope-factor 2"
)


def test_a_launcher_s_line_is_a_plan_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    from kvplan.cli import main

    assert main(["check", COMMAND, "--gpu", "h100"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--rope-factor" in shown, "what is not understood is named"
    assert main(["export", COMMAND, "--gpu", "h100"]) == 0
    written = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    assert "text-generation-launcher --model-id meta-llama/Llama-3.1-8B" in written
    assert "--num-shard 2" in written
    assert "--speculate 2" in written
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


@pytest.mark.parametrize(
    ("word", "form"),
    [("fp8", "fp8"), ("eetq", "int8"), ("bitsandbytes", "bnb-8bit"), ("bitsandbytes-nf4", "bitsandbytes")],
)
def test_quantize_of_a_checkpoint_that_is_not(word: str, form: str) -> None:
    """``--quantize`` in TGI's words; lm_head and embeddings are not quantised."""
    found, plain = sized(gpu="h100", quantization=word).weights, sized(gpu="h100").weights
    same = kvplan.size(LLAMA, engine="vllm", gpu="h100", tokens=4096, quantization=form).weights
    assert found is not None
    assert plain is not None
    assert same is not None
    assert found.total_bytes == same.total_bytes
    kept = 2 * 2 * 128256 * 4096
    matrices = plain.total_bytes - kept
    assert matrices // 4 < found.total_bytes - kept < matrices * 6 // 10


def test_quantize_that_is_not_read_gives_no_pool() -> None:
    for word in ("exl2", "marlin"):
        with pytest.raises(KvplanError, match=f"what {word} checkpoints hold"):
            sized(gpu="h100", quantization=word)
    stored = sized("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", gpu="h100", quantization="awq")
    assert stored.weights == sized("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", gpu="h100").weights


def test_speculation_is_charged_to_each_request() -> None:
    """queue.rs: prompt + answer + speculate - 1 tokens."""
    plain, more = (sized(kv_cache_memory=GIB, speculate=count).per_gpu.kv_bytes for count in (0, 3))
    assert more - plain == 3 * TOKEN


def test_a_length_that_the_blocks_do_not_hold_does_not_start() -> None:
    """backends/v3/src/lib.rs: NotEnoughMemory; without --max-total-tokens it is what the blocks hold."""
    refused = sized(gpu="a10g", max_model_len=100_000, tokens=1024).refusal
    assert refused is not None
    assert refused.largest_max_model_len is not None
    free = kvplan.size(LLAMA, engine="tgi", gpu="a10g")
    assert free.refusal is None
    assert free.request.tokens <= refused.largest_max_model_len


def test_the_launcher_s_words() -> None:
    from kvplan.api.launching import import_launches, launched_plans

    def plan_of(text: str) -> Any:
        return launched_plans(import_launches(text), gpu="a100")[0]

    plan = plan_of(
        "MODEL_ID=meta-llama/Llama-3.1-8B-Instruct QUANTIZE=eetq SPECULATE=2 MAX_BATCH_TOTAL_TOKENS=9000"
        " CUDA_VISIBLE_DEVICES=0,1 MAX_TOTAL_TOKENS=8192 MAX_INPUT_TOKENS=4000"
        " text-generation-launcher --kv-cache-dtype fp8_e4m3fn --cuda-memory-fraction 0.8"
    )
    assert dict(plan.serve) == {
        "quantize": "eetq", "speculate": 2, "max_total_tokens": 8192, "num_shard": 2,
        "kv_cache_dtype": "fp8_e4m3fn", "cuda_memory_fraction": 0.8,
    }  # fmt: skip
    assert not plan.unread
    assert any("MAX_BATCH_TOTAL_TOKENS" in note for note in plan.notes)
    start = "text-generation-launcher --model-id meta-llama/Llama-3.1-8B-Instruct"
    assert plan_of(f"CUDA_VISIBLE_DEVICES=0,1 {start} --sharded false").gpus == 1
    assert "--sharded true" in plan_of(f"{start} --sharded true").unread[0]
    assert plan_of(f"{start} --rope-factor 2").unread == ("--rope-factor 2",)
