"""The tensors of llama.cpp's caches: entries × cells × streams, and states × slots.

ggml-org/llama.cpp at 0c1e57098: src/llama-context.cpp (n_ctx), src/llama-kv-cache.cpp (K and V of n_embd_gqa ×
cells × streams; no V under MLA; without flash attention every V as wide as the widest), src/llama-kv-cache-iswa.cpp
(windows), src/llama-kv-cache-dsa.cpp and -msa.cpp (index keys in the type of K), src/llama-kv-cache-dsv4.cpp
(DeepSeek-V4), src/llama-memory-recurrent.cpp (states in f32, a row a slot).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from kvplan.dtypes import FLOAT32
from kvplan.engines.base import part_terms
from kvplan.engines.llamacpp.models import CHUNK, INDEX_WITH_V, has_window_cache, name_of
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
    SparseIndexer,
    Store,
)
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.terms import Grows
from kvplan.units import ceil_div, round_up

PAD = 256
"""Cells are padded to this (GGML_PAD in src/llama-context.cpp)."""


@record()
class Context:
    """slots: n_seq_max; streams: 1 when unified, else slots; cells: n_ctx_seq, of one stream."""

    slots: int
    streams: int
    cells: int
    ubatch: int
    swa_full: bool = False

    @property
    def n_ctx(self) -> int:
        return self.cells * self.streams

    def window_cells(self, window: int, *, unified: bool | None = None) -> int:
        """pad256(min(cells, window · (slots if unified else 1) + n_ubatch)); all cells with --swa-full."""
        if self.swa_full:
            return self.cells
        together = self.streams == 1 if unified is None else unified
        return round_up(min(self.cells, window * (self.slots if together else 1) + self.ubatch), PAD)


@record()
class Tensor:
    """``entry_bytes`` × cells × streams; cells 1 for states. group: which cache of the log it belongs to."""

    group: str
    entry_bytes: int
    cells: int
    streams: int

    @property
    def bytes(self) -> int:
        return self.entry_bytes * self.cells * self.streams


@record()
class Layout:
    """What decides a layer's tensors beside the context. widest_v: bytes of the widest V, 0 with flash attention."""

    name: str
    windows: bool
    store: Store
    widest_v: int = 0

    def bytes_of(self, layer: Layer, context: Context) -> int:
        return sum(tensor.bytes for tensor in layer_tensors(self, layer, context))


def layout_of(model: Model, store: Store, *, flash_attn: bool) -> Layout:
    widest = 0
    if not flash_attn:
        widest = max(
            (
                term.entry_bytes
                for layer in model.distinct()
                for part in layer.parts
                for term in part_terms(part, store)
                if term.name == "v" and term.grows is Grows.TOKEN
            ),
            default=0,
        )
    return Layout(name_of(model), has_window_cache(model), store, widest)


@lru_cache(maxsize=8192)
def layer_tensors(layout: Layout, layer: Layer, context: Context) -> tuple[Tensor, ...]:
    """Every tensor of one layer."""
    found: list[Tensor] = []
    for part in layer.parts:
        if isinstance(part, CompressedAttention):
            found += _compressed(part, layout.store, context)
        else:
            found += _plain(part, layout, context)
    if layout.name in INDEX_WITH_V and any(isinstance(part, SparseIndexer) for part in layer.parts):
        found += [
            Tensor("index", _one_head_v(part, layout.store), context.cells, context.streams)
            for part in layer.parts
            if isinstance(part, FullAttention)
        ]
    return tuple(found)


def _plain(part: Part, layout: Layout, context: Context) -> Iterator[Tensor]:
    """K and V, latents, index keys and states; cross attention's K and V are computed anew every step."""
    cells, window = cells_of(part, layout.windows, context)
    group = "index" if isinstance(part, SparseIndexer) else "window" if window else "full"
    for term in part_terms(part, layout.store):
        if term.grows is Grows.TOKEN:
            entry = max(term.entry_bytes, layout.widest_v) if term.name == "v" else term.entry_bytes
            yield Tensor(group, entry, cells, context.streams)
        elif term.grows is Grows.REQUEST:
            yield Tensor("state", term.entry_bytes, 1, context.slots)


def cells_of(part: Part, windows: bool, context: Context) -> tuple[int, bool]:
    """Cells of one stream, and whether they are a window's."""
    window = part.sliding_window if isinstance(part, (SlidingWindow, MultiHeadLatentAttention)) else None
    if isinstance(part, ChunkedAttention):
        window = CHUNK
    if window is None or not windows:
        return context.cells, False
    return context.window_cells(window), True


def _one_head_v(part: FullAttention, store: Store) -> int:
    width = part.v_head_dim or part.head_dim
    return store.kv.value_packing(width).bytes_for(width)


def _compressed(part: CompressedAttention, store: Store, context: Context) -> Iterator[Tensor]:
    """DeepSeek-V4: one latent a cell (K only), never unified, and the compressor's states in f32.

    Ratio 4 (overlapping): 8 rows of 2 · width, twice (value and score), for the latent and for the index
    key; ratio 128: 128 rows of width, twice.
    """
    streams = context.slots
    latent = store.kv.latent_packing(part.head_dim).bytes_for(part.head_dim)
    yield Tensor("window", latent, context.window_cells(part.sliding_window, unified=False), streams)
    rate = part.compress_rate
    if rate is None:
        return
    rows = round_up(max(1, ceil_div(context.cells, rate)), PAD)
    times = 2 if part.overlapping else 1
    yield Tensor("compressed", latent, rows, streams)
    yield Tensor("state", _state(part.head_dim, rate, times), 1, streams)
    if part.index_head_dim:
        width = part.index_head_dim
        yield Tensor("index", store.index_key.key_packing(width).bytes_for(width), rows, streams)
        yield Tensor("state", _state(width, rate, times), 1, streams)


def _state(width: int, rate: int, times: int) -> int:
    """Value and score of times · rate rows of times · width numbers."""
    return 2 * times * rate * times * width * FLOAT32.bytes


def place(layers: int, devices: int, n_gpu_layers: int | None) -> list[int | None]:
    """The device of each of ``layers`` repeating layers (None: host) when all devices get an equal share.

    src/llama-model.cpp (load_tensors): the last n_gpu_layers of layers + 1 (the output layer counts) are dealt
    to the first device whose share of the split lies beyond (i - first) / n_gpu_layers.
    """
    on_gpu = layers + 1 if n_gpu_layers is None else min(n_gpu_layers, layers + 1)
    first = layers + 1 - on_gpu
    return [None if index < first else (index - first) * devices // on_gpu for index in range(layers)]
