"""Logs of SGLang, TensorRT-LLM and llama.cpp: lines of our own with figures that were published.

Published: 26.91 GiB for 220,480 and 16.05 GiB (fp8) for 263,008 tokens of Llama-3.1-8B, 7.31 GiB for 273,792
tokens of 28 layers with 2 heads; gpt-oss in llama.cpp with 131,072 cells.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.api import compare
from kvplan.comparison import Comparison, Verdict
from kvplan.engines import ENGINES
from tests.comparison.logs import observed


def _compare(engine: str, model: str, text: str, **options: Any) -> Comparison:
    found = compare(model, observation=observed(text), **options)
    assert engine in ENGINES
    return found


def _exactly(found: Comparison, *names: str) -> bool:
    return found.verdict is Verdict.AGREES and all(found.row(name).agrees for name in names)


@pytest.mark.parametrize(
    ("model", "gib", "tokens", "dtype"),
    [
        ("llama-3.1-8b", "26.91", 220480, "auto"),
        ("llama-3.1-8b", "16.05", 263008, "fp8"),
        ("qwen2.5-1.5b", "7.31", 273792, "auto"),
    ],
)
def test_tensorrt_llm(model: str, gib: str, tokens: int, dtype: str) -> None:
    text = (
        "[TRT-LLM] [I] Number of tokens per block: 32.\n"
        f"[TRT-LLM] [I] [MemUsageChange] Allocated {gib} GiB for max tokens in paged KV cache ({tokens}).\n"
    )
    assert _exactly(_compare("trtllm", model, text, kv_cache_dtype=dtype), "num_blocks", "kv_tokens")


def _sglang(tokens: int, size: str) -> str:
    prefix = "[2026-01-31 09:00:00] "
    return (
        f"{prefix}server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', tp_size=1, page_size=1)\n"
        f"{prefix}KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {size} GB, "
        f"V size: {size} GB\n"
        f"{prefix}max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=2048, context_len=131072\n"
    )


def test_sglang() -> None:
    # 402,653 tokens and one more page × 65,536 B for K, and as much for V: 24.58 GiB each.
    found = _compare("sglang", "llama-3.1-8b", _sglang(402653, "24.58"))
    assert _exactly(found, "kv_bytes")
    assert found.row("kv_bytes").predicted == (402653 + 1) * 131072
    other = _compare("sglang", "llama-3.1-8b", _sglang(402653, "12.29"))
    assert other.verdict is Verdict.DIFFERS


def _llamacpp(full: str, window: str, cells: int, *, ubatch: int = 512) -> str:
    half = {text: f"{float(text) / 2:.2f}" for text in (full, window)}
    return f"""build: 4321 (abc) with gcc
llama_model_loader: loaded meta data with 30 key-value pairs and 400 tensors from /m/gpt-oss-20b.gguf (version GGUF V3)
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 131072
llama_context: n_ctx_seq     = 131072
llama_context: n_ubatch      = {ubatch}
llama_context: flash_attn    = auto
llama_context: kv_unified    = false
llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache: size = {full} MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): {half[full]} MiB, V (f16): {half[full]} MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = {cells} cells
llama_kv_cache: size = {window} MiB ({cells} cells,  12 layers,  1/1 seqs), K (f16): {half[window]} MiB, V (f16): {half[window]} MiB
"""  # noqa: E501


@pytest.mark.parametrize(("ubatch", "cells", "window"), [(512, 768, "18.00"), (2048, 2304, "54.00")])
def test_llama_cpp(ubatch: int, cells: int, window: str) -> None:
    found = _compare("llamacpp", "gpt-oss-20b", _llamacpp("3072.00", window, cells, ubatch=ubatch))
    assert _exactly(found, "kv_bytes", "kv_tokens", "swa_tokens")
    other = _compare("llamacpp", "gpt-oss-20b", _llamacpp("1536.00", window, cells, ubatch=ubatch))
    assert other.verdict is Verdict.DIFFERS


def test_llama_cpp_with_windows_of_full_size() -> None:
    """What llama-cpp-python does unless told otherwise, and what its log says then."""
    text = _llamacpp("3072.00", "3072.00", 131072)
    first = "llama_kv_cache_iswa: creating non-SWA"
    said = "llama_kv_cache_iswa: using full-size SWA cache (ref: https://github.com/ggml-org/llama.cpp)\n"
    found = _compare("llamacpp", "gpt-oss-20b", text.replace(first, said + first))
    assert _exactly(found, "kv_bytes", "kv_tokens", "swa_tokens")
    assert found.recognised["swa_full"].startswith("True")
    without = _compare("llamacpp", "gpt-oss-20b", text)
    assert not without.row("swa_tokens").agrees
