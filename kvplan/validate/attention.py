"""Attention over the paged cache beside attention over the same values in a row, in float64.

For one layer of each kind a request is admitted, keys and values from N(0, 1) are written through its slot
mapping, and queries that point at one token of every block (and at the token that has just left a window) are
answered from the gathered pages with torch's scaled_dot_product_attention, and in place by FlexAttention
where the device has a compiler for it. Such a query's answer is nearly that token's value, so a wrong page is
an error of the order of 1.

Tolerance: with unit roundoff u of the computing type (2^-9 for bfloat16, 2^-12 for float16, 2^-24 for
float32), scores up to L rounded once change a probability by at most a factor 1 + 2·L·u; probabilities and
output are rounded once each, sums of n + d terms are kept in float32:
(2·L + 4)·u·max|v| + (n + d)·2^-24·max|v|. An fp8 cache is read with a power of two as scale, which is exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvplan.record import record
from kvplan.validate.blocks import BlockTables, Request
from kvplan.validate.kinds import FLOATS, LARGEST, Heads, probes, scale_of, width_of
from kvplan.validate.layouts.base import Component, Layout, View
from kvplan.validate.memory import Cache
from kvplan.validate.slots import loosened, slots_of, spans

MOST_TOKENS = 2048
MOST_QUERIES = 64
MOST_QUERY_HEADS = 8


@record()
class AttentionError:
    """One kind of layer: largest absolute error, and what is allowed. note: why a kernel was not run."""

    kind: str
    dtype: str
    kernel: str
    layer: int
    tokens: int
    queries: int
    error: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return bool(self.note) or self.error <= self.tolerance


def attend(cache: Cache, tables: BlockTables, *, flex: bool | None = None) -> tuple[AttentionError, ...]:
    """Every probe with every kernel. flex: also in place (None: on a GPU). The tables end as they began."""
    found: list[AttentionError] = []
    in_place = cache.device.startswith("cuda") if flex is None else flex
    for heads in probes(cache.layout):
        request = _admit(cache.layout, tables, heads)
        if request is None:
            continue
        found += _Probe(cache, tables, request, heads).run(in_place)
        tables.release(request)
    return tuple(found)


def _admit(layout: Layout, tables: BlockTables, heads: Heads) -> Request | None:
    """A request long enough to fill several blocks and to leave its window, as far as there is room."""
    group = layout.groups[heads.view.group]
    wanted = max(3 * group.block_size * group.shards, (group.window or 0) + 2 * group.block_size)
    tokens = min(layout.tokens, max(wanted, MOST_TOKENS))
    return tables.admit(tokens, layout.encoder_tokens) if tokens else None


class _Probe:
    """Keys and values of one layer of one request: as written, and as the cache gives them back."""

    def __init__(self, cache: Cache, tables: BlockTables, request: Request, heads: Heads) -> None:
        import torch

        self.torch, self.cache, self.heads = torch, cache, heads
        index, self.states = heads.view.group, heads.view.states
        self.slots = loosened(slots_of(spans(tables, request, index, self.states), self.states, cache.device))
        self.positions = self.slots.single_owner[:, 1]
        self.first = tables.visible(index, request.tokens)
        self.tokens = request.tokens
        self.noise = torch.Generator().manual_seed(20240229)
        self.keys = self._write(heads.key)
        if heads.rope is not None:
            self.keys = torch.cat([self.keys, self._write(heads.rope)], dim=-1)
        width = self.keys.shape[-1]
        self.values = (
            self.keys[..., : width_of(heads.key[1])] if heads.value is None else self._write(heads.value)
        )
        self.scale = float(width) ** -0.5
        self.visible = self.positions >= self.first

    def run(self, in_place: bool) -> list[AttentionError]:
        if not bool(self.visible.any()):
            return []
        queries = self._queries()
        reference = self._reference(queries)
        found = [self._error("sdpa", self._paged(queries), reference, queries)]
        if in_place and self.heads.key[1].dtype not in LARGEST and self.heads.value is not None:
            try:
                output = self._flex(queries)
            except Exception as error:
                note = f"not run: {type(error).__name__}"
                found.append(replace(found[0], kernel="flex_attention", error=0.0, note=note))
            else:
                if output is not None:
                    found.append(self._error("flex_attention", output, reference, queries))
        return found

    # -------------------------------------------------------------------------------------- in and out

    def _write(self, place: tuple[View, Component]) -> Any:
        """Random values through the slot mapping; what they are after rounding, [tokens, heads, width]."""
        torch = self.torch
        view, component = place
        shape = (int(self.slots.single_blocks.numel()), view.heads, width_of(component))
        values = torch.randn(shape, generator=self.noise).to(self.cache.device)
        dtype = getattr(torch, component.dtype)
        payload = (values / scale_of(component)).to(dtype)
        part = slice(component.offset, component.offset + component.bytes)
        target = self.cache.bytes_of(view)[..., part]
        target[self.slots.single_blocks, :, self.slots.single_places] = payload.view(torch.uint8)
        return payload.to(torch.float64) * scale_of(component)

    def _read(self, place: tuple[View, Component]) -> Any:
        """The same values gathered from the pages."""
        torch = self.torch
        view, component = place
        part = slice(component.offset, component.offset + component.bytes)
        found = self.cache.bytes_of(view)[..., part]
        gathered = found[self.slots.single_blocks[self.visible], :, self.slots.single_places[self.visible]]
        read = gathered.contiguous().view(getattr(torch, component.dtype))
        return read.to(self._dtype) * scale_of(component)

    @property
    def _dtype(self) -> Any:
        """What attention computes in: bfloat16 for an fp8 cache."""
        name = self.heads.key[1].dtype
        return getattr(self.torch, "bfloat16" if name in LARGEST else name)

    def _queries(self) -> Any:
        """[heads, queries, width]: the key of one token of each block, and of the last one out of sight."""
        torch = self.torch
        seen = self.visible.nonzero().flatten()
        step = max(1, self.states - 1)
        needles = seen[:: max(step, int(seen.numel()) // MOST_QUERIES)]
        hidden = (self.positions < self.first).nonzero().flatten()[-1:]
        chosen = torch.cat([needles, seen[:1], seen[-1:], hidden])
        group = max(1, min(MOST_QUERY_HEADS, self._query_heads()))
        queries = self.keys[chosen].transpose(0, 1).repeat_interleave(group, 0)
        noise = torch.randn(queries.shape, generator=self.noise).to(queries)
        return (queries + noise / 16).to(self._dtype)

    def _query_heads(self) -> int:
        """Query heads for each head of keys."""
        return self.cache.layout.num_attention_heads // self.heads.view.heads

    # ---------------------------------------------------------------------------------------- attention

    def _reference(self, queries: Any) -> Any:
        """In double precision, one head of keys at a time: all at once would take as much as a pool."""
        torch = self.torch
        group = queries.shape[0] // self.heads.view.heads
        self.largest, found = 0.0, []
        for head, mine in enumerate(queries.split(group)):
            keys, values = (side[self.visible, head] for side in (self.keys, self.values))
            scores = mine.to(torch.float64) @ keys.T * self.scale
            self.largest = max(self.largest, float(scores.abs().max()))
            found.append(torch.softmax(scores, dim=-1) @ values)
        return torch.cat(found)

    def _paged(self, queries: Any) -> Any:
        torch = self.torch
        keys = self._read(self.heads.key)
        values = keys if self.heads.value is None else self._read(self.heads.value)
        if self.heads.rope is not None:
            keys = torch.cat([keys, self._read(self.heads.rope)], dim=-1)
        group = queries.shape[0] // self.heads.view.heads
        keys, values = (side.transpose(0, 1).repeat_interleave(group, 0) for side in (keys, values))
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(queries[None], keys[None], values[None], scale=self.scale)[0]

    def _flex(self, queries: Any) -> Any:
        """FlexAttention over the whole pool of the layer: a mask maps places in memory to positions."""
        torch = self.torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        view = self.heads.view
        assert self.heads.value is not None
        places = [self._in_place(place) for place in (self.heads.key, self.heads.value)]
        if any(place is None for place in places):
            return None
        held = torch.zeros(view.blocks * view.states, dtype=torch.bool, device=self.cache.device)
        slots = self.slots.single_blocks * view.states + self.slots.single_places
        held[slots[self.visible]] = True

        def sees(_batch: Any, _head: Any, _query: Any, place: Any) -> Any:
            return held[place]

        mask = create_block_mask(sees, None, None, queries.shape[1], held.numel(), device=self.cache.device)
        kernel = torch.compile(flex_attention) if self.cache.device.startswith("cuda") else flex_attention
        keys, values = places
        return kernel(queries[None], keys, values, block_mask=mask, scale=self.scale, enable_gqa=True)[0]

    def _in_place(self, place: tuple[View, Component]) -> Any:
        """[1, heads, slots, width] without a copy, or None where pages are not in a row."""
        view, component = place
        if view.block_stride != view.states * view.state_stride:
            return None
        width = component.bytes // width_of(component)
        figures = (view.offset + component.offset, view.head_stride, view.state_stride)
        if any(figure % width for figure in figures):
            return None
        offset, head, state = (figure // width for figure in figures)
        flat = self.cache.words(view.allocation, 1)
        typed = flat[: flat.numel() // width * width].view(self._dtype)
        shape = (1, view.heads, view.blocks * view.states, width_of(component))
        return typed.as_strided(shape, (0, head, state, 1), offset)

    def _error(self, kernel: str, output: Any, reference: Any, queries: Any) -> AttentionError:
        name = self.heads.key[1].dtype
        largest = float(self.values.abs().max())
        count = int(self.visible.sum()) + int(self.keys.shape[-1])
        bound = ((2 * self.largest + 4) * 2.0 ** -FLOATS[name] + count * 2.0**-24) * largest
        return AttentionError(
            kind=self.heads.kind(self.cache.layout),
            dtype=name,
            kernel=kernel,
            layer=self.heads.view.layer,
            tokens=int(self.visible.sum()),
            queries=int(queries.shape[1]),
            error=float((output.to(reference) - reference).abs().max()),
            tolerance=bound,
        )
