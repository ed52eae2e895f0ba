"""Attention over the paged cache beside attention over the same values in a row, in float64.

For one layer of each kind a request is admitted, keys and values from N(0, 1) are written through its slot
mapping, and queries that point at one token of every block (and at the token that has just left a window) are
answered from the gathered pages with torch's scaled_dot_product_attention. Such a query's answer is nearly
that token's value, so a wrong page is an error of the order of 1. Without gathering: `engine_kernels`.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from kvplan.engines.tensors.base import Component, Layout, View
from kvplan.proof.tensor import Dtype, Tensor
from kvplan.proof.validate.blocks import BlockTables, Request
from kvplan.proof.validate.kinds import FLOATS, LARGEST, Heads, probes, scale_of, width_of
from kvplan.proof.validate.memory import Cache
from kvplan.proof.validate.slots import loosened, slots_of, spans
from kvplan.record import record

MOST_TOKENS = 2048
MOST_QUERIES = 64
MOST_QUERY_HEADS = 8


@record()
class AttentionError:
    """One kind of layer under one kernel: largest absolute error, and what is allowed.

    note: why the kernel was not run, which proves nothing either way. fault: what is wrong that is no
    distance (bytes written elsewhere).
    """

    kind: str
    dtype: str
    kernel: str
    layer: int
    tokens: int
    queries: int
    error: float
    tolerance: float
    note: str = ""
    fault: str = ""

    @property
    def ran(self) -> bool:
        return not self.note

    @property
    def ok(self) -> bool:
        """Within what is allowed, or nothing that could be out of it."""
        return not self.ran or (not self.fault and self.error <= self.tolerance)

    def model_dump(self) -> dict[str, Any]:
        """As a receipt has it; an error that is no number is null."""
        return {
            "kind": self.kind,
            "dtype": self.dtype,
            "kernel": self.kernel,
            "layer": self.layer,
            "tokens": self.tokens,
            "queries": self.queries,
            "error": self.error if self.ran and isfinite(self.error) else None,
            "tolerance": self.tolerance if self.ran and isfinite(self.tolerance) else None,
            "note": self.note,
            "decides": True,
            **({"fault": self.fault} if self.fault else {}),
        }


def attend(cache: Cache, tables: BlockTables) -> tuple[AttentionError, ...]:
    """Every kind of layer, from gathered pages. The tables end as they began."""
    found: list[AttentionError] = []
    for heads in probes(cache.layout):
        request = admitted(cache.layout, tables, heads)
        if request is None:
            continue
        probe = Probe(cache, tables, request, heads)
        if bool(probe.visible.any()):
            queries = probe.queries()
            found.append(probe.error("sdpa", probe.paged(queries), probe.reference(queries), queries))
        tables.release(request)
    return tuple(found)


def admitted(layout: Layout, tables: BlockTables, heads: Heads) -> Request | None:
    """A request long enough to fill several blocks and to leave its window, as far as there is room."""
    group = layout.groups[heads.view.group]
    wanted = max(3 * group.block_size * group.shards, (group.window or 0) + 2 * group.block_size)
    tokens = min(layout.tokens, max(wanted, MOST_TOKENS))
    return tables.admit(tokens, layout.encoder_tokens) if tokens else None


class Probe:
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

    # -------------------------------------------------------------------------------------- in and out

    def _write(self, place: tuple[View, Component]) -> Tensor:
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

    def _read(self, place: tuple[View, Component]) -> Tensor:
        """The same values gathered from the pages; the scale of an fp8 cache is a power of two, which is
        exact."""
        torch = self.torch
        view, component = place
        part = slice(component.offset, component.offset + component.bytes)
        found = self.cache.bytes_of(view)[..., part]
        gathered = found[self.slots.single_blocks[self.visible], :, self.slots.single_places[self.visible]]
        read = gathered.contiguous().view(getattr(torch, component.dtype))
        return read.to(self.dtype) * scale_of(component)

    @property
    def dtype(self) -> Dtype:
        """The dtype in which attention computes: bfloat16 for an fp8 cache."""
        name = self.heads.key[1].dtype
        return getattr(self.torch, "bfloat16" if name in LARGEST else name)

    def queries(self) -> Tensor:
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
        return (queries + noise / 16).to(self.dtype)

    def _query_heads(self) -> int:
        """Query heads for each head of keys."""
        return self.cache.layout.num_attention_heads // self.heads.view.heads

    # ---------------------------------------------------------------------------------------- attention

    def reference(self, queries: Tensor) -> Tensor:
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

    def paged(self, queries: Tensor) -> Tensor:
        torch = self.torch
        keys = self._read(self.heads.key)
        values = keys if self.heads.value is None else self._read(self.heads.value)
        if self.heads.rope is not None:
            keys = torch.cat([keys, self._read(self.heads.rope)], dim=-1)
        group = queries.shape[0] // self.heads.view.heads
        keys, values = (side.transpose(0, 1).repeat_interleave(group, 0) for side in (keys, values))
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(queries[None], keys[None], values[None], scale=self.scale)[0]

    def error(self, kernel: str, output: Tensor, reference: Tensor, queries: Tensor) -> AttentionError:
        """The largest error, and the tolerance (2·L + 4)·u·max|v| + (n + d)·2^-24·max|v|.

        u: the computing type's unit roundoff. Scores up to L rounded once change a probability by at most a
        factor 1 + 2·L·u; probabilities and output are rounded once each, sums of n + d terms kept in float32.
        """
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
