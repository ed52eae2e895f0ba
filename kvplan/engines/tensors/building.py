"""A layout under construction: allocations and views in the order in which an engine makes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvplan.engines.tensors.base import (
    Allocation,
    BlockPool,
    Component,
    Group,
    GroupKind,
    Layout,
    Rank,
    View,
)
from kvplan.engines.tensors.parts import Stored, allocated_bytes
from kvplan.results import Request
from kvplan.units import ceil_div


@dataclass(slots=True)
class Building:
    """``tensor`` adds an allocation, ``window`` a view; groups and pools are added by their index."""

    allocations: list[Allocation] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    pools: list[BlockPool] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, size: int | None = None) -> int:
        """An allocation; its index. size: bytes, where the dtype is no torch dtype."""
        amount = allocated_bytes(shape, dtype) if size is None else size
        self.allocations.append(Allocation(name, shape, dtype, amount))
        return len(self.allocations) - 1

    def window(
        self,
        stored: Stored,
        layer: int,
        group: int,
        allocation: int,
        *,
        blocks: int,
        states: int,
        offset: int = 0,
        block_stride: int | None = None,
        heads_outside: bool = False,
    ) -> None:
        """A view of one term: ``blocks`` pages of ``states`` states, heads within or outside the states."""
        heads, content = stored.heads, stored.content
        head_stride = states * content if heads_outside else content
        state_stride = content if heads_outside else heads * content
        self.views.append(
            View(
                name=f"layer.{layer}.{stored.name}",
                layer=layer,
                group=group,
                allocation=allocation,
                offset=offset,
                blocks=blocks,
                heads=heads,
                states=states,
                content=content,
                block_stride=states * heads * content if block_stride is None else block_stride,
                head_stride=head_stride,
                state_stride=state_stride,
                components=(Component(stored.name, 0, content, stored.dtype),),
            )
        )

    def group(self, group: Group, pool: BlockPool | None = None) -> int:
        """A group, with a pool of its own where one is given; its index."""
        if pool is not None:
            self.pools.append(pool)
        self.groups.append(group)
        return len(self.groups) - 1

    def place(self, name: str, states: int, requests: int) -> int:
        """A group whose blocks hold ``states`` states of one request each; its index."""
        pool = len(self.pools)
        return self.group(
            Group(name, GroupKind.STATE, pool, layers=0, block_size=states, fixed=1),
            BlockPool(name, requests),
        )

    def layout(
        self,
        engine: str,
        version: str,
        rank: Rank,
        request: Request,
        *,
        predicted_bytes: int,
        requests: int,
        max_model_len: int,
        num_attention_heads: int,
    ) -> Layout:
        """The finished layout of one rank. request: the one that was sized."""
        return Layout(
            engine=engine,
            version=version,
            rank=rank,
            allocations=tuple(self.allocations),
            views=tuple(self.views),
            pools=tuple(self.pools),
            groups=tuple(self.groups),
            predicted_bytes=predicted_bytes,
            tokens=request.tokens,
            encoder_tokens=request.encoder_tokens,
            requests=requests,
            max_model_len=max_model_len,
            num_attention_heads=num_attention_heads,
        )


SCALES = {"nvfp4": 16, "fp4_mx_block16": 16, "mxfp8": 32, "mxfp4": 32}
"""Formats whose scales lie in tensors of their own → numbers that share one scale byte."""


def data_and_scales(stored: Stored, width: int) -> tuple[Stored, Stored] | None:
    """The two parts of a format with separate scales: values first; None for other formats."""
    group = SCALES.get(stored.packing.name)
    if group is None or stored.packing.elements == 1:
        return None
    scales = ceil_div(width, group)
    parts = []
    for name, content in ((stored.name, stored.content - scales), (f"{stored.name}_scale", scales)):
        parts.append(
            Stored(name, stored.heads, content, "uint8", stored.packing, (content,)),
        )
    return parts[0], parts[1]
