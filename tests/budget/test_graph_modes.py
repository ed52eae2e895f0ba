"""Which CUDA graphs are captured (`--compilation-config.cudagraph_mode`), and what that leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.observed import Observation
from kvplan.engines.vllm.memory.cuda_graphs import (
    FULL,
    FULL_AND_PIECEWISE,
    FULL_DECODE_ONLY,
    NONE,
    PIECEWISE,
    captured,
)
from kvplan.engines.vllm.options import CUDAGRAPH_MODES
from kvplan.files.logs import parse_log
from kvplan.results import Budget, SizeResult


@given(
    seqs=st.integers(1, 2048),
    tokens=st.integers(1, 65_536),
    drafts=st.integers(0, 7),
    by_request=st.booleans(),
)
def test_the_kinds_are_those_of_the_default(seqs: int, tokens: int, drafts: int, by_request: bool) -> None:
    def made(mode: str, *, uniform: bool = True) -> Any:
        return captured(seqs, tokens, drafts, by_request=by_request, mode=mode, uniform=uniform)

    both = made(FULL_AND_PIECEWISE)
    assert made(NONE).number == 0
    # Sizes are rounded to whole requests for full decode graphs alone.
    assert made(PIECEWISE) == (made(FULL_AND_PIECEWISE, uniform=False) if drafts else (both.piecewise, 0, 0))
    assert made(FULL_DECODE_ONLY) == (0, both.full, both.largest_full)
    assert made(FULL)[:2] == (0, both.piecewise)
    assert made(FULL).largest_full >= both.largest_full
    if drafts:
        # Kernels that take one token a request leave piecewise graphs alone, whatever is asked.
        assert made(FULL_DECODE_ONLY, uniform=False) == made(PIECEWISE, uniform=False)


def budget(model: str, mode: str | None, **asked: Any) -> Budget:
    asked |= {"cudagraph_mode": mode} if mode else {}
    result: SizeResult = kvplan.size(model, **asked)
    assert result.budget is not None
    return result.budget


@pytest.mark.parametrize(
    ("model", "gpu", "engine"),
    [
        ("qwen3-8b", "h100", "vllm@0.29"),
        ("qwen3-8b", "rtx-4090", "vllm@0.33"),
        ("mixtral-8x7b", "2xh200", "vllm@0.22"),
        ("glm-4.7-flash", "h100", "vllm@0.30"),
    ],
)
def test_less_is_captured_more_is_left(model: str, gpu: str, engine: str) -> None:
    pools = {
        mode: budget(model, mode, gpu=gpu, engine=engine, max_model_len=8192).kv_pool_bytes
        for mode in CUDAGRAPH_MODES
    }
    assert (
        pools[FULL_AND_PIECEWISE]
        == budget(model, None, gpu=gpu, engine=engine, max_model_len=8192).kv_pool_bytes
    )
    assert pools[FULL_AND_PIECEWISE] < pools[FULL_DECODE_ONLY] < pools[NONE]
    assert pools[FULL_AND_PIECEWISE] < pools[PIECEWISE] < pools[NONE]
    assert pools[FULL_AND_PIECEWISE] <= pools[FULL] < pools[NONE]


@pytest.mark.parametrize(
    ("model", "gpu", "backend", "every"),
    [
        ("qwen3-8b", "h100", None, True),  # FlashAttention 3
        ("qwen3-8b", "rtx-4090", None, False),  # FlashAttention 2
        ("qwen3-8b", "rtx-4090", "TRITON_ATTN", True),
        ("qwen3-8b", "b200", None, False),  # FlashInfer
        ("glm-4.7-flash", "h100", None, False),  # latents
        ("qwen3.6-27b", "h200", None, False),  # states
    ],
)
def test_full_graphs_of_every_batch_need_kernels_that_take_them(
    model: str, gpu: str, backend: str | None, every: bool
) -> None:
    """Else both kinds are made."""
    asked: dict[str, Any] = {"engine": "vllm@0.29", "gpu": gpu, "max_model_len": 8192, "weights": "15GiB"}
    asked |= {"attention_backend": backend} if backend else {}
    full, both = (budget(model, mode, **asked) for mode in (FULL, FULL_AND_PIECEWISE))
    assert (full != both) is every


CONFIG = (
    "(EngineCore pid=9) INFO 06-08 05:18:58 [core.py:109] Initializing a V1 LLM engine (v0.21.0) with config:"
    " model='Qwen/Qwen3-8B', speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192,"
    " compilation_config={{'mode': <CompilationMode.VLLM_COMPILE: 3>,"
    " 'cudagraph_mode': <CUDAGraphMode.{}>}}\n"
)


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("FULL_DECODE_ONLY: (2, 0)", "FULL_DECODE_ONLY"),
        ("NONE: 0", "NONE"),
        ("FULL_AND_PIECEWISE: (2, 1)", None),
    ],
)
def test_a_log_tells_which(printed: str, read: str | None) -> None:
    """The default is not worth a word."""
    seen: Observation = parse_log([CONFIG.format(printed).encode()])
    assert seen.setting("cudagraph_mode") == read
