"""A second reader of the pages: a Triton kernel of kvplan's own walks the block table, and gathers nothing.

It is slow and plain on purpose: one program a query and head, a page of tokens at a time, sums in float32.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from kvplan.engines.tensors.base import Component, View
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.attention import Probe
from kvplan.proof.validate.blocks import Request
from kvplan.proof.validate.kinds import scale_of, width_of
from kvplan.proof.validate.memory import Cache


class NotRun(Exception):  # noqa: N818 - a reason, not an error
    """Why a kernel cannot be given these pages."""


def pages(cache: Cache, place: tuple[View, Component]) -> Tensor:
    """[blocks, states, heads, width] on the pool itself, as engines' kernels take it. Raises NotRun where
    a stride is no whole number of elements."""
    import torch

    view, part = place
    width = part.bytes // width_of(part)
    figures = (
        view.offset + part.offset,
        view.block_stride,
        view.state_stride,
        view.head_stride,
    )
    if any(figure % width for figure in figures):
        raise NotRun("a token does not begin at a whole number")
    offset, *strides = (figure // width for figure in figures)
    flat = cache.words(view.allocation, 1)
    typed = flat[: flat.numel() // width * width].view(getattr(torch, part.dtype))
    shape = (view.blocks, view.states, view.heads, width_of(part))
    return typed.as_strided(shape, (*strides, 1), offset)


def table_of(probe: Probe, request: Request) -> Tensor:
    """[1, logical blocks] of int32: the request's blocks in order; those given back are 0, the null block.
    Raises NotRun where tokens are dealt over ranks, lie in a ring or share a state."""
    group = probe.cache.layout.groups[probe.heads.view.group]
    if group.shards > 1 or group.ring:
        raise NotRun("the request's tokens do not follow each other in its block table")
    if group.block_size != probe.states:
        raise NotRun("a state stands for several tokens")
    table = request.tables[probe.heads.view.group]
    blocks = [0] * table.first + list(table.blocks)
    torch = probe.torch
    return torch.tensor([blocks], dtype=torch.int32, device=probe.cache.device)


def attend_with_own(probe: Probe, request: Request, queries: Tensor) -> Tensor:
    """[heads, queries, width of a value] in float32. Raises NotRun."""
    if find_spec("triton") is None:
        raise NotRun("Triton is not installed")
    torch, heads = probe.torch, probe.heads
    keys = pages(probe.cache, heads.key)
    rope = keys if heads.rope is None else pages(probe.cache, heads.rope)
    value = heads.key if heads.value is None else heads.value
    values = pages(probe.cache, value)
    table = table_of(probe, request)
    width, rope_width = keys.shape[3], 0 if heads.rope is None else rope.shape[3]
    out = torch.empty((*queries.shape[:2], values.shape[3]), dtype=torch.float32, device=queries.device)
    _kernel()[(queries.shape[0], queries.shape[1])](
        queries.contiguous(), keys, rope, values, table, out,
        probe.scale * scale_of(heads.key[1]), _rope_scale(heads.rope, heads.key), scale_of(value[1]),
        probe.first, probe.tokens, probe.states, queries.shape[0] // heads.view.heads, queries.shape[1],
        keys.stride(0), keys.stride(1), keys.stride(2),
        rope.stride(0), rope.stride(1), rope.stride(2),
        values.stride(0), values.stride(1), values.stride(2),
        width, rope_width, values.shape[3],
        TOKENS=16, K=_power(width), R=_power(rope_width), V=_power(values.shape[3]),
    )  # fmt: skip
    return out


def _rope_scale(rope: tuple[View, Component] | None, key: tuple[View, Component]) -> float:
    """The factor of a product with the rope key, besides the key's own scale."""
    return 1.0 if rope is None else scale_of(rope[1]) / scale_of(key[1])


def _power(number: int) -> int:
    """The least power of two that is not smaller, and 16 at least: what a Triton block may be wide."""
    return max(16, 1 << (number - 1).bit_length()) if number else 16


@lru_cache(maxsize=1)
def _kernel() -> Any:
    import triton

    from kvplan.proof.validate.triton_kernel import attend_paged

    return triton.jit(attend_paged)
