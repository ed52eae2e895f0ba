"""FlexAttention over the pages themselves, without gathering: reported beside a proof, never part of it.

A fault of an optional kernel makes every later call on the device fail: this runs when everything else is
measured, waits for the device inside the ``try``, and nothing that it meets ends the run.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from kvplan.engines.tensors.base import Component, View
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.attention import AttentionError, Probe, admitted
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.kinds import LARGEST, Heads, probes, width_of
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.reasons import reason_of

KERNEL = "flex_attention"
MOST_NUMBERS = 2**31
"""A slice, from the lowest to the highest block of one request, has fewer: the main template of torch 2.11
multiplies a 32-bit place by the stride, whatever type it indexes with (pytorch/pytorch
torch/_inductor/kernel/flex/templates/flex_attention.py.jinja)."""
MAIN_TEMPLATE = {"FORCE_USE_FLEX_ATTENTION": True}
"""Not the decoding template, which torch takes for fewer than 128 queries: its block of queries is as long as
they are times the heads that share a key, and where that is over the 128 of the mask's blocks, no
configuration is left (torch/_inductor/kernel/flex/flex_decoding.py, `SPARSE_Q_BLOCK_SIZE % BLOCK_M`)."""


class NotRun(Exception):  # noqa: N818 - a reason, not an error
    """Why the kernel cannot be given these pages."""


def attend_in_place(cache: Cache, tables: BlockTables) -> tuple[AttentionError, ...]:
    """Every kind of layer; what does not run says why in its note. Raises nothing that the device does."""
    os.environ.setdefault(
        "TORCHINDUCTOR_COMPILE_THREADS", "1"
    )  # one kernel: workers cost more than they save
    return tuple(_tried(cache, tables, heads) for heads in probes(cache.layout))


def _tried(cache: Cache, tables: BlockTables, heads: Heads) -> AttentionError:
    try:
        return _attended(cache, tables, heads)
    except NotRun as reason:
        note = f"not run: {reason}"
    except Exception as error:
        note = f"not run: {reason_of(error)}"
    kind, dtype = heads.kind(cache.layout), heads.key[1].dtype
    return AttentionError(kind, dtype, KERNEL, heads.view.layer, 0, 0, 0.0, 0.0, note, decides=False)


def _attended(cache: Cache, tables: BlockTables, heads: Heads) -> AttentionError:
    request = admitted(cache.layout, tables, heads)
    if request is None:
        raise NotRun("no room for a request")
    try:
        return _compared(Probe(cache, tables, request, heads))
    finally:
        tables.release(request)


def _compared(probe: Probe) -> AttentionError:
    if not bool(probe.visible.any()):
        raise NotRun("no token is visible")
    queries = probe.queries()
    reference = probe.reference(queries)
    found = probe.error(KERNEL, _flex(probe, queries), reference, queries, decides=False)
    if probe.cache.device.startswith("cuda"):
        probe.torch.cuda.synchronize(probe.cache.device)
    return found


def _flex(probe: Probe, queries: Tensor) -> Tensor:
    """A mask maps places in memory to positions."""
    heads, view, torch = probe.heads, probe.heads.view, probe.torch
    if heads.key[1].dtype in LARGEST:
        raise NotRun("an 8-bit cache is read with a scale")
    if heads.value is None:
        raise NotRun("keys and values are one latent")
    low, high = (int(end(probe.slots.single_blocks)) for end in (torch.min, torch.max))
    many = high - low + 1
    keys, values = (_slice(probe, place, low, many) for place in (heads.key, heads.value))
    held = torch.zeros(many * view.states, dtype=torch.bool, device=probe.cache.device)
    places = (probe.slots.single_blocks - low) * view.states + probe.slots.single_places
    held[places[probe.visible]] = True

    def sees(_batch: Tensor, _head: Tensor, _query: Tensor, place: Tensor) -> Tensor:
        return held[place]

    from torch.nn.attention.flex_attention import create_block_mask

    mask = create_block_mask(sees, None, None, queries.shape[1], held.numel(), device=probe.cache.device)
    kernel = _kernel(compiled=probe.cache.device.startswith("cuda"))
    return kernel(
        queries[None],
        keys,
        values,
        block_mask=mask,
        scale=probe.scale,
        enable_gqa=True,
        kernel_options=MAIN_TEMPLATE,
    )[0]


@lru_cache(maxsize=2)
def _kernel(*, compiled: bool) -> Any:
    """One for all kinds of layer: the compiler's start takes longer than the kernel."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention


def _slice(probe: Probe, place: tuple[View, Component], first: int, blocks: int) -> Tensor:
    """[1, heads, slots, width] of ``blocks`` blocks without a copy. Raises NotRun where that cannot be."""
    view, component = place
    if view.block_stride != view.states * view.state_stride:
        raise NotRun("the tokens of two blocks are not evenly apart")
    width = component.bytes // width_of(component)
    figures = (
        view.offset + first * view.block_stride + component.offset,
        view.head_stride,
        view.state_stride,
    )
    if any(figure % width for figure in figures):
        raise NotRun("a token does not begin at a whole number")
    offset, head, state = (figure // width for figure in figures)
    shape = (1, view.heads, blocks * view.states, width_of(component))
    numbers = (shape[1] - 1) * head + (shape[2] - 1) * state + shape[3]
    if numbers >= MOST_NUMBERS:
        raise NotRun(f"the request's blocks lie over {numbers:,} numbers")
    flat = probe.cache.words(view.allocation, 1)
    typed = flat[: flat.numel() // width * width].view(probe.dtype)
    return typed.as_strided(shape, (0, head, state, 1), offset)
