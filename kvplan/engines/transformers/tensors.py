"""One flat tensor for continuous batching: sectors of blocks of pages, K before V; else one tensor a term.

huggingface/transformers 5.24.0 generation/continuous_batching/cache_allocators/full_attention.py
(register_cache_tensor), sliding_attention.py, cache.py. A block of a kind begins at its number times its
bytes, whatever kind the sectors before it belong to; within it lies a page of each of its layers.
"""

from __future__ import annotations

from itertools import accumulate

from kvplan.engines.tensors import generic
from kvplan.engines.tensors.base import BlockPool, Component, Group, GroupKind, Layout, Rank, View
from kvplan.engines.tensors.building import Building
from kvplan.engines.tensors.parts import pooled, torch_name
from kvplan.engines.transformers.engine import Transformers
from kvplan.engines.transformers.options import TransformersOptions
from kvplan.engines.transformers.paged import Paged, paged_of
from kvplan.engines.transformers.sectors import TRASH, Geometry, Kind
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.settings import Settings
from kvplan.units import ceil_div


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """The cache of the one device. Raises KvplanError(no-memory, engine-refuses, unknown-rule)."""
    own = TransformersOptions.of(settings)
    if not own.continuous_batching:
        return generic.layout(model, settings, version, rank, "transformers")
    result, pool = pooled(Transformers(), model, settings, version)
    paged = paged_of(model, settings, own)
    geometry, sectors = paged.geometry, pool.num_blocks
    if any(kind.window is not None and kind.window % geometry.page for kind in geometry.kinds):
        raise KvplanError(
            "unknown-rule",
            "rings of a window that is no whole number of pages are not described",
            help="--block-size 128, or another divisor of the window",
        )
    build = Building()
    size = (sectors + TRASH) * geometry.sector_bytes
    build.tensor("cache", (size,), "uint8")
    runs = _runs(geometry, sectors, result.request.tokens, pool.requests_that_fit)
    for kind, (first, last) in zip(geometry.kinds, runs, strict=True):
        _group(build, geometry, kind, first, last)
    _views(build, paged, runs)
    return build.layout(
        "transformers",
        version,
        rank,
        result.request,
        predicted_bytes=size,
        requests=pool.requests_that_fit,
        max_model_len=settings.max_model_len or model.max_model_len or result.request.tokens,
        num_attention_heads=model.num_attention_heads,
    )


def _runs(geometry: Geometry, sectors: int, tokens: int, requests: int) -> list[tuple[int, int]]:
    """The sectors of each kind, from one to another (exclusive). The library hands sectors out as requests
    come; here each kind has one run, long enough for the requests that fit at full length, and the first kind
    gets the remainder. A kind numbers its blocks from the start of its run."""
    counts = [
        ceil_div(requests * kind.blocks(tokens, geometry.page), geometry.blocks_in_sector(kind))
        for kind in geometry.kinds
    ]
    counts[0] += sectors - sum(counts)
    counts[0] += TRASH
    ends = list(accumulate(counts))
    return list(zip([0, *ends], ends, strict=False))


def _group(build: Building, geometry: Geometry, kind: Kind, first: int, last: int) -> None:
    """A window's blocks are a ring that a request keeps until it ends."""
    each, ring = geometry.blocks_in_sector(kind), kind.window is not None
    reserved = 0 if first else TRASH * each
    name = "sliding_attention" if ring else "full_attention"
    build.group(
        Group(
            name,
            GroupKind.WINDOW if ring else GroupKind.FULL,
            len(build.pools),
            kind.layers,
            geometry.page,
            window=kind.window,
            limit=kind.window,
            ring=ring,
        ),
        BlockPool(name, (last - first) * each, first=reserved),
    )


def _views(build: Building, paged: Paged, runs: list[tuple[int, int]]) -> None:
    """K and V of each layer: [blocks, slots of a page, heads, head_dim]."""
    geometry, batch = paged.geometry, paged.batch
    places = [0] * len(geometry.kinds)
    half = geometry.page_bytes // 2
    content = batch.head_dim * paged.element.bytes
    for layer, index in enumerate(paged.order):
        kind, (first, last) = geometry.kinds[index], runs[index]
        begin = first * geometry.sector_bytes + places[index] * geometry.page_bytes
        for side, name in enumerate(("k", "v")):
            build.views.append(
                View(
                    name=f"layer.{layer}.{name}",
                    layer=layer,
                    group=index,
                    allocation=0,
                    offset=begin + side * half,
                    blocks=(last - first) * geometry.blocks_in_sector(kind),
                    heads=batch.num_kv_heads,
                    states=geometry.page,
                    content=content,
                    block_stride=geometry.block_bytes(kind),
                    head_stride=content,
                    state_stride=batch.num_kv_heads * content,
                    components=(Component(name, 0, content, torch_name(paged.element)),),
                )
            )
        places[index] += 1
