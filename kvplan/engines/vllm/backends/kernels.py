"""vLLM's own Triton kernels over pages of a cache: one writer, two readers. Called where vLLM is installed.

Source: vllm-project/vllm 0.32 vllm/v1/attention/ops/{triton_reshape_and_cache_flash,triton_unified_attention,
triton_decode_attention}.py, as v1/attention/backends/triton_attn.py and mla/triton_mla.py call them. Pages
are [blocks, states, heads, width], queries [queries, heads, width]; each query is a request of its own that
sees ``tokens`` tokens through ``table`` ([1, blocks] of int32). Scales are tensors of one float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

NAME, LATENT = "vllm.unified_attention", "vllm.triton_mla"
SPLITS = 4
"""Pieces into which TRITON_MLA divides a request's tokens."""


def are_here() -> bool:
    """Whether vLLM is installed beside kvplan."""
    return find_spec("vllm") is not None


def write(sides: Sequence[Any], pages: Sequence[Any], slots: Any, scales: Sequence[Any]) -> None:
    """Keys and values ([tokens, heads, width] each) into their pages; slot = block · states + place."""
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    triton_reshape_and_cache_flash(*sides, *pages, slots, "fp8" if _is_fp8(pages[0]) else "auto", *scales)


def read(
    asked: Any,
    pages: Sequence[Any],
    table: Any,
    scales: Sequence[Any],
    *,
    tokens: int,
    first: int,
    scale: float,
) -> Any:
    """The queries' output over keys and values from position ``first`` on (0: no window)."""
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    many = int(asked.shape[0])
    out = asked.new_empty(asked.shape)
    shape = (many, int(pages[0].shape[2]))
    factors = [one.expand(shape).contiguous() if _is_fp8(pages[0]) else None for one in scales]
    unified_attention(
        q=asked,
        k=pages[0],
        v=pages[1],
        out=out,
        cu_seqlens_q=(table.new_ones(many + 1).cumsum(0) - 1).to(table.dtype),
        max_seqlen_q=1,
        seqused_k=table.new_full((many,), tokens),
        max_seqlen_k=tokens,
        softmax_scale=scale,
        causal=True,
        window_size=(tokens - 1 - first, 0) if first else (-1, -1),
        block_table=table.expand(many, -1).contiguous(),
        softcap=0.0,
        q_descale=None,
        k_descale=factors[0],
        v_descale=factors[1],
    )
    return out


def read_latent(
    asked: Any, pages: Any, table: Any, latent_scale: Any, *, rank: int, tokens: int, scale: float
) -> Any:
    """MLA: a state's first ``rank`` numbers are the value, all of them the key."""
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    many, heads = asked.shape[:2]
    out = asked.new_empty((many, heads, rank))
    decode_attention_fwd(
        asked,
        pages,
        pages[..., :rank],
        out,
        latent_scale.new_empty((many, heads)),
        table.expand(many, -1).contiguous(),
        table.new_full((many,), tokens),
        latent_scale.new_empty((many, heads, SPLITS, rank + 1)),
        SPLITS,
        scale,
        int(pages.shape[1]),
        k_scale=latent_scale,
        v_scale=latent_scale,
        is_mla=True,
    )
    return out


def _is_fp8(pages: Any) -> bool:
    return int(pages.element_size()) == 1
