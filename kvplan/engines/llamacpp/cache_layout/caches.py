"""The tensors of llama.cpp's caches: entries × cells × streams, and states × slots.

ggml-org/llama.cpp at 0c1e57098: src/llama-context.cpp (n_ctx), src/llama-kv-cache.cpp (K and V of n_embd_gqa
× cells × streams; no V under MLA; without flash attention every V as wide as the widest),
src/llama-kv-cache-iswa.cpp (windows), src/llama-kv-cache-dsa.cpp and -msa.cpp (index keys in the type of K),
src/llama-kv-cache-dsv4.cpp (DeepSeek-V4), src/llama-memory-recurrent.cpp (states in f32, a row a slot).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import accumulate

from kvplan.dtypes import FLOAT32
from kvplan.engines.base import part_terms
from kvplan.engines.llamacpp.start.models import CHUNK, INDEX_WITH_V, has_window_cache, name_of
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    Kind,
    Part,
    Storage,
)
from kvplan.model import Layer, Model
from kvplan.named import NamedTuple
from kvplan.record import record
from kvplan.terms import Grows
from kvplan.units import ceil_div, round_up

PAD = 256
"""Cells are padded to this (GGML_PAD in src/llama-context.cpp)."""


class Context(NamedTuple):
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
    """``entry_bytes`` × cells × streams; a state's cells are 1. group: which cache of the log it belongs to.

    window: tokens of a window's cache; rate: one cell for so many tokens (DeepSeek-V4). split: a stream for
    each slot even when unified.
    """

    group: str
    entry_bytes: int
    window: int | None = None
    rate: int = 1
    split: bool = False

    def cells(self, context: Context) -> int:
        if self.group == "state":
            return 1
        if self.window is not None:
            return context.window_cells(self.window, unified=False if self.split else None)
        if self.rate > 1:
            return round_up(max(1, ceil_div(context.cells, self.rate)), PAD)
        return context.cells

    def streams(self, context: Context) -> int:
        return context.slots if self.split or self.group == "state" else context.streams

    def bytes(self, context: Context) -> int:
        return self.entry_bytes * self.cells(context) * self.streams(context)

    def growth(self, tokens: int, context: Context) -> Fraction:
        """Bytes that one more token of context adds, padding aside: nothing in a window that is full."""
        if self.group == "state":
            return Fraction(0)
        if self.window is not None and tokens >= self.window and not context.swa_full:
            return Fraction(0)
        return Fraction(self.entry_bytes, self.rate)


@record()
class Cache:
    """Equal tensors of several layers as one: entry_bytes is their sum."""

    tensor: Tensor
    layers: int


@record()
class Layout:
    """The inputs that decide a layer's tensors. widest_v: bytes of the widest V, 0 with flash attention."""

    name: str
    windows: bool
    store: Storage
    widest_v: int = 0


def layout_of(model: Model, store: Storage, *, flash_attn: bool) -> Layout:
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


def caches_of(layout: Layout, layers: Mapping[Layer, int]) -> tuple[Cache, ...]:
    """The caches of these layers (each with its number): tensors of one kind are added up."""
    found: dict[tuple[str, int | None, int, bool], list[int]] = {}
    for layer, count in layers.items():
        own: dict[tuple[str, int | None, int, bool], int] = {}
        for one in layer_tensors(layout, layer):
            key = (one.group, one.window, one.rate, one.split)
            own[key] = own.get(key, 0) + one.entry_bytes
        for key, size in own.items():
            entry = found.setdefault(key, [0, 0])
            entry[0] += size * count
            entry[1] += count
    return tuple(
        Cache(Tensor(group, size, window, rate, split), count)
        for (group, window, rate, split), (size, count) in found.items()
    )


def layer_tensors(layout: Layout, layer: Layer) -> Iterator[Tensor]:
    """Every tensor of one layer."""
    for part in layer.parts:
        if part.kind is Kind.COMPRESSED:
            yield from _compressed(part, layout.store)
        else:
            yield from _plain(part, layout)
    if layout.name in INDEX_WITH_V and Kind.INDEXER in layer.kinds:
        for part in layer.parts:
            if part.kind is Kind.FULL:
                yield Tensor("index", _one_head_v(part, layout.store))


def _plain(part: Part, layout: Layout) -> Iterator[Tensor]:
    """K and V, latents, index keys and states; cross attention's K and V are computed anew every step."""
    window = window_of(part) if layout.windows else None
    group = "index" if part.kind is Kind.INDEXER else "full" if window is None else "window"
    for term in part_terms(part, layout.store):
        if term.grows is Grows.TOKEN:
            entry = max(term.entry_bytes, layout.widest_v) if term.name == "v" else term.entry_bytes
            yield Tensor(group, entry, window)
        elif term.grows is Grows.REQUEST:
            yield Tensor("state", term.entry_bytes)


def window_of(part: Part) -> int | None:
    """Tokens of a layer's window; of a chunk as many for every model."""
    return CHUNK if part.kind is Kind.CHUNKED else part.window


def _one_head_v(part: FullAttention, store: Storage) -> int:
    return store.kv.value_packing(part.value_width).bytes_for(part.value_width)


def _compressed(part: CompressedAttention, store: Storage) -> Iterator[Tensor]:
    """DeepSeek-V4: one latent a cell (K only), never unified, and the compressor's states in f32.

    Ratio 4 (overlapping): 8 rows of 2 · width, twice (value and score), for the latent and for the index
    key; ratio 128: 128 rows of width, twice.
    """
    latent = store.kv.latent_packing(part.head_dim).bytes_for(part.head_dim)
    yield Tensor("window", latent, part.sliding_window, split=True)
    rate = part.compress_rate
    if rate is None:
        return
    times = 2 if part.overlapping else 1
    yield Tensor("compressed", latent, rate=rate, split=True)
    yield Tensor("state", _state(part.head_dim, rate, times))
    if part.index_head_dim:
        width = part.index_head_dim
        yield Tensor("index", store.index_key.key_packing(width).bytes_for(width), rate=rate, split=True)
        yield Tensor("state", _state(width, rate, times))


def _state(width: int, rate: int, times: int) -> int:
    """Value and score of times · rate rows of times · width numbers."""
    return 2 * times * rate * times * width * FLOAT32.bytes


def place(
    layers: int, devices: int, n_gpu_layers: int | None, split: tuple[int, ...] = ()
) -> list[int | None]:
    """The device of each of ``layers`` repeating layers (None: host).

    split: the proportions of --tensor-split; none: each device has an equal share.
    src/llama-model.cpp (load_tensors): the last n_gpu_layers of layers + 1 (the output layer counts) are
    dealt to the first device whose share of the split lies beyond (i - first) / n_gpu_layers.
    """
    on_gpu = layers + 1 if n_gpu_layers is None else min(n_gpu_layers, layers + 1)
    first = layers + 1 - on_gpu
    ends = list(accumulate(split or (1,) * devices))

    def device(number: int) -> int:
        return next(at for at, end in enumerate(ends) if end * on_gpu > number * ends[-1])

    return [None if index < first else device(index - first) for index in range(layers)]
