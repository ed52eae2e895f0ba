"""What a log tells without saying it: the model, the GPU, another weight format, and DeepSeek-V4's
concurrency."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.api import compare
from kvplan.comparison import Verdict
from kvplan.errors import KvplanError
from kvplan.files.servers.sightings import gpu_of
from tests.comparison.logs import observed, vllm_log
from tests.live.tiny import MODELS, write_model

V4 = {"model": "/mnt/models/served", "length": 1_000_000, "version": "0.21.0"}
V4_LINES = (
    "INFO 06-07 10:00:00 [utils.py:240] non-default args: {'model': '/mnt/models/served', 'block_size': 256, "
    "'kv_cache_dtype': 'fp8', 'max_num_seqs': 16, 'enable_prefix_caching': True}",
    "INFO 06-07 10:00:00 [model.py:598] Resolved architecture: DeepseekV4ForCausalLM",
    "(Worker_TP0 pid=9) INFO 06-07 10:00:01 [gpu_model_runner.py:4900] Model loading took 201.46 GiB memory",
)


@pytest.mark.parametrize(
    ("pool", "tokens", "concurrency"), [("39.26", "4,103,577", "4.10"), ("40.47", "4,230,092", "4.23")]
)
def test_a_class_and_its_weights_name_the_model(pool: str, tokens: str, concurrency: str) -> None:
    """Two starts of DeepSeek-V4-Pro by vLLM 0.21 on four GPUs: weights, pool, tokens and concurrency as
    printed. Before 0.27 concurrency is counted in blocks of a whole group."""
    text = vllm_log(**V4, pools=(pool,) * 4, tokens=tokens, concurrency=concurrency, lines=V4_LINES)  # type: ignore[arg-type]
    found = compare(observation=observed(text))
    assert found.model is not None
    assert found.model.id == "deepseek-ai/DeepSeek-V4-Pro"
    assert found.row("kv_tokens").agrees
    assert found.row("max_concurrency").agrees
    assert any("DeepseekV4ForCausalLM with weights of 201.46 GiB" in note for note in found.notes)


def test_weights_that_are_no_card_s_name_nothing() -> None:
    lines = tuple(line.replace("201.46", "140.00") for line in V4_LINES)
    with pytest.raises(KvplanError, match="are those of no card"):
        compare(observation=observed(vllm_log(**V4, pools=("39.26",) * 4, lines=lines)))  # type: ignore[arg-type]


@pytest.mark.parametrize("block_size", [64, 128, 256, 512])
@pytest.mark.parametrize("release", ["0.20", "0.21", "0.24", "0.26"])
def test_every_block_size_is_an_answer_or_a_refusal(release: str, block_size: int) -> None:
    engine = f"vllm@{release}"
    found = kvplan.size("deepseek-v4-pro", engine=engine, kv_cache_dtype="fp8", block_size=block_size)
    assert found.refusal is not None or found.per_gpu.kv_bytes_per_request > 0


@pytest.mark.parametrize(
    ("utilization", "equivalent", "graphs", "slug"),
    [
        ("0.92", "0.9052", "4.1", "gb300-288gb"),
        ("0.9", "0.8927", "1.03", "h200-sxm-141gb"),
        ("0.9", "0.8999", "0.01", None),  # open by more than the figure tells
        ("0.9", "0.9000", "0.00", None),
    ],
)
def test_the_share_of_the_estimated_graphs_tells_the_gpu(
    utilization: str, equivalent: str, graphs: str, slug: str | None
) -> None:
    lines = (
        f"INFO 06-07 10:00:00 [gpu_model_runner.py:1] Estimated CUDA graph memory: {graphs} GiB total",
        "INFO 06-07 10:00:00 [cuda.py:416] Using FLASH_ATTN attention backend",
        f"INFO 06-07 10:00:00 [gpu_worker.py:1] The current --gpu-memory-utilization={utilization}00 is "
        f"equivalent to --gpu-memory-utilization={equivalent} without CUDA graph memory profiling.",
    )
    seen = gpu_of(observed(vllm_log(lines=lines)))
    assert (None if seen is None else seen.gpu.slug) == slug


def test_what_is_free_before_the_weights_tells_the_gpu() -> None:
    text = (
        "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-R1', tp_size=8)\n"
        "[2026-05-01 10:00:01 TP0] Init torch distributed ends. elapsed=2.00 s, mem usage=1.23 GB\n"
        "[2026-05-01 10:00:02 TP0] Load weight begin. avail mem=137.97 GB\n"
        "[2026-05-01 10:00:03 TP0] KV Cache is allocated. #tokens: 509157, KV size: 33.32 GB\n"
    )
    seen = gpu_of(observed(text))
    assert seen is not None
    assert seen.gpu.slug == "h200-sxm-141gb"
    assert "free before the weights" in seen.words


def test_a_file_of_llama_cpp_without_a_card_of_its_own() -> None:
    """A name that several cards are near to: they are told apart by the printed weights."""
    text = b"""\
llama_model_loader: loaded meta data with 30 key-value pairs and 339 tensors from \
/models/qwen2.5-coder-7b-instruct-q8_0.gguf (version GGUF V3)
print_info: file type   = Q8_0
load_tensors: offloaded 29/29 layers to GPU
load_tensors:        CUDA0 model buffer size =  7165.44 MiB
llama_context: constructing llama_context
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 32768
llama_context: n_ctx_seq     = 32768
llama_context: n_batch       = 512
llama_context: n_ubatch      = 512
llama_kv_cache:      CUDA0 KV buffer size =  1792.00 MiB
llama_kv_cache: size = 1792.00 MiB ( 32768 cells,  28 layers,  1/1 seqs), \
K (f16):  896.00 MiB, V (f16):  896.00 MiB
"""
    found = compare(log=[text])
    assert found.model is not None
    assert "Qwen2.5" in found.model.id
    assert found.row("kv_tokens").agrees


def test_a_checkpoint_of_another_format_decides_the_cache_s() -> None:
    """What ``auto`` is follows from the tokens where the card is not the checkpoint's own."""
    lines = ("INFO 08-03 10:00:01 [gpu_model_runner.py:5306] Model loading took 5.70 GiB memory",)
    config = ", quantization=compressed-tensors, kv_cache_dtype=auto"
    text = vllm_log(
        model="someone/Llama-3.1-8B-NVFP4", tokens="262,144", concurrency="2.00", config=config, lines=lines
    )
    found = compare(observation=observed(text))
    assert any("other weights" in note for note in found.notes)
    assert found.row("kv_tokens").agrees
    assert "a cache in fp8" in str(found.row("kv_tokens").explanation)


def test_a_refusal_of_a_cache_that_is_not_counted_whole() -> None:
    """DFlash's layers lie in the same pool: what a request needs is no prediction without them."""
    lines = (
        "INFO 08-03 10:00:01 [gpu_model_runner.py:5306] Model loading took 95.46 GiB memory",
        "ERROR 08-03 10:00:09 [core.py:1231] ValueError: To serve at least one request with the"
        " model's max seq len (262144), (18.35 GiB KV cache is needed, which is larger than the available KV"
        " cache memory (8.72 GiB). Based on the available memory, the estimated maximum model length"
        " is 121840.",
    )
    config = ", speculative_config=SpeculativeConfig(method='dflash', model='x/y', num_spec_tokens=15)"
    text = vllm_log(
        version="0.25.1",
        model="poolside/Laguna-S-2.1-FP8",
        length=262_144,
        pools=("8.72",),
        tokens=None,
        concurrency=None,
        config=config,
        lines=lines,
    )
    row = compare(observation=observed(text)).row("needed_kv_bytes")
    assert row.predicted is None
    assert "dflash" in str(row.explanation)


@pytest.mark.parametrize(
    ("reset", "tokens", "concurrency"), [(False, "883,011", "215.58"), (True, "762,600", "186.18")]
)
def test_states_of_a_cpu_build_are_float32_where_its_log_says_so(
    reset: bool, tokens: str, concurrency: str, tmp_path: Path
) -> None:
    """vLLM 0.32's CPU build keeps recurrent states in float32 on CPUs with bfloat16 dot products alone
    (platforms/cpu.py): both lines were printed by a server, on two machines."""
    write_model(tmp_path, MODELS["gated-delta"])
    lines = (
        "INFO 11-27 03:20:11 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        f"model='{tmp_path}', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, "
        "pipeline_parallel_size=1, enforce_eager=True, kv_cache_dtype=auto, device_config=cpu, "
        "enable_prefix_caching=True",
        *(
            ["WARNING 11-27 03:20:11 [cpu.py:317] Reset SSM cache type to float32 for accelerated GDN mamba "
             "backend 'gdn'."] if reset else []
        ),
        "INFO 11-27 03:20:29 [cpu_worker.py:260] Explicitly set (1.0/19.34) GiB for KV cache on node 0.",
        f"INFO 11-27 03:20:29 [kv_cache_utils.py:2327] CPU KV cache size: {tokens} tokens, "
        f"Maximum concurrency for 4,096 tokens per request: {concurrency}x",
    )  # fmt: skip
    found = compare(tmp_path, observation=observed("\n".join(lines)))
    assert found.verdict is Verdict.AGREES, found.model_dump()
