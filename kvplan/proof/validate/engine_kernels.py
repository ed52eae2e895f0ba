"""The engine's own kernels over kvplan's pages: its slot mapping to write, its block tables to read.

Compared with float64, within `attention`'s tolerance. Where the engine has no such kernels, or is not
importable, nothing else reads the pages in place.
"""

from __future__ import annotations

from typing import Any

from kvplan.engines.folders import part_of
from kvplan.engines.tensors.base import Component, Layout, View
from kvplan.proof.tensor import Tensor
from kvplan.proof.validate.attention import AttentionError, Probe, admitted
from kvplan.proof.validate.blocks import BlockTables, Request
from kvplan.proof.validate.kinds import Heads, probes, scale_of, width_of
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.reasons import reason_of

Place = tuple[View, Component]


class NotRun(Exception):  # noqa: N818 - a reason, not an error
    """Why a kernel cannot be given these pages."""


class WrittenElsewhere(Exception):  # noqa: N818 - what was found, not an error of the program
    """The engine's kernel did not put the bytes where the layout has them."""


def kernels_for(layout: Layout) -> Any | None:
    """The engine's own (its part ``kernels``), where it is installed and has some that run alone on such a
    layout."""
    kernels = part_of(layout.engine, "kernels")
    if kernels is None or not kernels.are_here():
        return None
    takes = getattr(kernels, "takes", None)
    return kernels if takes is None or takes(layout) else None


def attend_with_engine(cache: Cache, tables: BlockTables) -> tuple[AttentionError, ...]:
    """Every kind of layer, none without the engine's kernels; one that cannot run here says why in its note.
    Raises nothing."""
    kernels = kernels_for(cache.layout)
    if kernels is None:
        return ()
    return tuple(_tried(cache, tables, heads, kernels) for heads in probes(cache.layout))


def _tried(cache: Cache, tables: BlockTables, heads: Heads, kernels: Any) -> AttentionError:
    name = _name(heads, kernels)
    note = fault = ""
    try:
        return _attended(cache, tables, heads, kernels, name)
    except NotRun as reason:
        note = f"not run: {reason}"
    except WrittenElsewhere as found:
        fault = str(found)
    except Exception as error:
        note = f"not run: {reason_of(error)}"
    kind, dtype = heads.kind(cache.layout), heads.key[1].dtype
    return AttentionError(kind, dtype, name, heads.view.layer, 0, 0, 0.0, 0.0, note, fault=fault)


def _name(heads: Heads, kernels: Any) -> str:
    """The engine's reader of such a layer."""
    return str(kernels.LATENT if heads.value is None else kernels.NAME)


def _check_taken(heads: Heads) -> None:
    """Raises NotRun for a layer that no such reader takes."""
    if heads.value is None and (heads.rope is None or heads.rope[0] != heads.key[0]):
        raise NotRun("the latent and its rope key lie in tensors of their own")
    if heads.value is not None and width_of(heads.key[1]) != width_of(heads.value[1]):
        raise NotRun("keys and values differ in width")


def _attended(cache: Cache, tables: BlockTables, heads: Heads, kernels: Any, name: str) -> AttentionError:
    """Raises NotRun, WrittenElsewhere, and what the device raises."""
    if heads.key[1].dtype == "float32" and not hasattr(kernels, "Pages"):
        raise NotRun("the kernels multiply float32 in less")
    _check_taken(heads)
    request = admitted(cache.layout, tables, heads)
    if request is None:
        raise NotRun("no room for a request")
    try:
        probe = Probe(cache, tables, request, heads)
        if not bool(probe.visible.any()):
            raise NotRun("no token is visible")
        bound = _bound(probe, request, kernels) if hasattr(kernels, "Pages") else None
        if heads.value is not None:
            _write(probe, kernels, [heads.key, heads.value], bound)
        queries = probe.queries()
        if bound is not None:
            return probe.error(name, _selected(probe, bound, queries), probe.reference(queries), queries)
        output = _read(probe, request, queries, kernels)
        found = probe.error(name, output, probe.reference(queries), queries)
        if cache.device.startswith("cuda"):
            probe.torch.cuda.synchronize(cache.device)
        return found
    finally:
        tables.release(request)


# ------------------------------------------------------------------------------------------------ reading


def pages(cache: Cache, place: Place) -> Tensor:
    """[blocks, states, heads, width] on the pool itself, as engines' kernels take it. Raises NotRun where
    a stride is no whole number of elements."""
    import torch

    view, part = place
    width = part.bytes // width_of(part)
    figures = (view.offset + part.offset, view.block_stride, view.state_stride, view.head_stride)
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


def _read(probe: Probe, request: Request, queries: Tensor, kernels: Any) -> Tensor:
    """[heads, queries, width] as the engine's reader answers; each query is a request of its own that sees
    the request's tokens, a window is the kernel's own. Raises NotRun."""
    heads, table = probe.heads, table_of(probe, request)
    asked = queries.transpose(0, 1).contiguous()
    if heads.value is not None:
        places = (heads.key, heads.value)
        out = kernels.read(
            asked,
            [pages(probe.cache, place) for place in places],
            table,
            [_scale(probe, part) for _view, part in places],
            tokens=probe.tokens,
            first=probe.first,
            scale=probe.scale,
        )
        return out.transpose(0, 1)
    if probe.first:
        raise NotRun("the kernel has no window")
    latent = heads.key[1]
    whole = pages(probe.cache, (heads.view, _with_rope(heads)))
    out = kernels.read_latent(
        asked,
        whole,
        table,
        _scale(probe, latent),
        rank=width_of(latent),
        tokens=probe.tokens,
        scale=probe.scale,
    )
    return out.transpose(0, 1)


def _bound(probe: Probe, request: Request, kernels: Any) -> Any:
    """The library's allocator over the pool, which writes and reads by indices, on a CPU as on a GPU, with
    the request's blocks."""
    view = probe.heads.view
    group, table = probe.cache.layout.groups[view.group], request.tables[view.group]
    if table.first and not group.ring:
        raise NotRun("the request's tokens do not follow each other in its block table")
    raw = probe.cache.raw[view.allocation]
    return kernels.Pages(raw, view, group, probe.dtype, list(table.blocks))


def _selected(probe: Probe, bound: Any, queries: Tensor) -> Any:
    """[heads, queries, width]: attention over what the library's indices select. A window's oldest token goes
    with the token that comes."""
    last = [side[-1:].to(probe.dtype) for side in (probe.keys, probe.values)]
    seen = int(probe.visible.sum())
    sides = [side[-seen:] for side in bound.read(*last, tokens=probe.tokens)]
    group = queries.shape[0] // probe.heads.view.heads
    keys, values = (side.transpose(0, 1).repeat_interleave(group, 0) for side in sides)
    attention = probe.torch.nn.functional.scaled_dot_product_attention
    return attention(queries[None], keys[None], values[None], scale=probe.scale)[0]


def _scale(probe: Probe, part: Component) -> Tensor:
    """The factor of a number of the part, as kernels take it."""
    return probe.torch.tensor(scale_of(part), dtype=probe.torch.float32, device=probe.cache.device)


def _with_rope(heads: Heads) -> Component:
    """The latent and the rope key behind it as one. Raises NotRun where they are two."""
    assert heads.rope is not None
    latent, rope = heads.key[1], heads.rope[1]
    if rope.offset != latent.offset + latent.bytes or rope.dtype != latent.dtype:
        raise NotRun("the rope key does not follow its latent")
    return Component(latent.name, latent.offset, latent.bytes + rope.bytes, latent.dtype)


# ------------------------------------------------------------------------------------------------ writing


def _write(probe: Probe, kernels: Any, places: list[Place], bound: Any) -> None:
    """The engine's kernel writes the probe's values into a cleared pool. Raises WrittenElsewhere, NotRun."""
    wanted = [_stored(probe, place).clone() for place in places]
    for raw in probe.cache.raw:
        raw.zero_()
    sides = [side.to(probe.dtype) for side in (probe.keys, probe.values)]
    if bound is not None:
        bound.write(*sides, past=int(probe.positions[0]))
    else:
        _write_slots(probe, kernels, places, sides)
    for place, mine in zip(places, wanted, strict=True):
        theirs = _stored(probe, place)
        wrong = int((theirs != mine).flatten(1).any(dim=1).sum())
        if wrong:
            raise WrittenElsewhere(f"{wrong:,} of {mine.shape[0]:,} tokens are not where they belong")
    _check_nothing_else(probe, places)


def _write_slots(probe: Probe, kernels: Any, places: list[Place], sides: list[Any]) -> None:
    kernels.write(
        sides,
        [pages(probe.cache, place) for place in places],
        probe.slots.single_blocks * probe.states + probe.slots.single_places,
        [_scale(probe, part) for _view, part in places],
    )


def _check_nothing_else(probe: Probe, places: list[Place]) -> None:
    """The pool without the request's own bytes is as clear as it was; they are put back."""
    kept = [_stored(probe, place).clone() for place in places]
    for place, mine in zip(places, kept, strict=True):
        _put(probe, place, probe.torch.zeros_like(mine))
    stray = any(bool(raw.reshape(-1).view(probe.torch.uint8).any()) for raw in probe.cache.raw)
    for place, mine in zip(places, kept, strict=True):
        _put(probe, place, mine)
    if stray:
        raise WrittenElsewhere("bytes outside the request's slots were written")


def _stored(probe: Probe, place: Place) -> Tensor:
    """[tokens, heads, bytes] of the request's slots, through the layout's view."""
    return _content(probe, place)[probe.slots.single_blocks, :, probe.slots.single_places]


def _put(probe: Probe, place: Place, payload: Tensor) -> None:
    _content(probe, place)[probe.slots.single_blocks, :, probe.slots.single_places] = payload


def _content(probe: Probe, place: Place) -> Tensor:
    view, part = place
    return probe.cache.bytes_of(view)[..., part.offset : part.offset + part.bytes]
