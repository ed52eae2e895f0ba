"""llama.cpp's tensors: K [n_embd_k_gqa, cells, streams] and V alike for each layer, states a row a slot.

ggml-org/llama.cpp at 0c1e57098 src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp,
src/llama-memory-recurrent.cpp. A request has a slot; unified caches give it cells of one stream, others a
stream of its own, in which positions of a window wrap around. Without flash attention V is transposed: the
cells of one number lie in a row.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.dtypes import SCALARS
from kvplan.engines.base import part_terms, request_tokens
from kvplan.engines.llamacpp.cache_layout.caches import Context, Tensor, layer_tensors, layout_of
from kvplan.engines.llamacpp.cache_layout.caches import Layout as Rules
from kvplan.engines.llamacpp.cache_layout.pool import context_for, devices_of, machine_of
from kvplan.engines.llamacpp.context import served_context
from kvplan.engines.llamacpp.engine import LlamaCpp
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.engines.tensors.base import BlockPool, Group, GroupKind, Layout, Rank
from kvplan.engines.tensors.building import Building
from kvplan.engines.tensors.parts import PACKED, Stored, element_bytes, stored
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Layer, Model
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.terms import Grows, Term


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """Tensors of one GPU, for as many requests as the memory holds (without memory: as many as asked for)."""
    result = LlamaCpp().size(model, settings, version)
    if result.refusal is not None:
        raise KvplanError("engine-refuses", result.refusal.message, help=result.refusal.help)
    options = options_of(model, settings)
    store = store_for(model, settings, options)
    tokens = request_tokens(model, settings)
    requests = settings.requests if result.pool is None else result.pool.requests_that_fit
    machine = machine_of(model, store, settings, options)
    options = served_context(model, settings, options, machine)
    context = context_for(options, settings.max_model_len or tokens, requests)
    rules = layout_of(model, store, flash_attn=options.flash_attn)
    build = Building()
    slots = build.group(
        Group("slot", GroupKind.STATE, 0, 0, 1, fixed=1), BlockPool("slots", min(requests, context.slots))
    )
    one = _Gpu(build, context, slots, transposed=not options.flash_attn)
    for index, (layer, device) in enumerate(
        zip(model.layers(), devices_of(model, settings, options), strict=False)
    ):
        if device == rank.stage:
            one.layer(rules, layer, index)
    # Where the context is shifted a request never has more than its slot's cells at a time.
    longest = context.cells if options.kv_retention else tokens
    return build.layout(
        "llamacpp",
        version,
        rank,
        replace(result.request, tokens=min(tokens, longest)),
        predicted_bytes=machine.per_gpu(context)[rank.stage],
        requests=requests,
        max_model_len=model.max_model_len or tokens,
        num_attention_heads=model.num_attention_heads,
    )


class _Gpu:
    """The tensors of the layers that lie on one GPU."""

    def __init__(self, build: Building, context: Context, slots: int, *, transposed: bool) -> None:
        self.build, self.context, self.slots, self.transposed = build, context, slots, transposed
        self.groups: dict[Tensor, int] = {}

    def layer(self, rules: Rules, layer: Layer, index: int) -> None:
        terms = _terms(rules, layer)
        for number, tensor in enumerate(layer_tensors(rules, layer)):
            self._tensor(tensor, next(terms, None), index, number)

    def _tensor(self, tensor: Tensor, term: Term | None, layer: int, number: int) -> None:
        """One ggml tensor: rows of entry_bytes, as wide as the widest V without flash attention."""
        one = Stored(f"{tensor.group}.{number}", 1, tensor.entry_bytes, PACKED, SCALARS["float32"], ())
        if term is not None:
            own = stored(term)
            if own.heads * own.content == tensor.entry_bytes:
                one = own
        group = self._group(tensor)
        cells, streams = tensor.cells(self.context), tensor.streams(self.context)
        size = element_bytes(one.dtype)
        shape = (streams, cells, tensor.entry_bytes // size)
        dtype = one.dtype if term is None or one.dtype != PACKED else term.packing.name
        name = f"{tensor.group}.{layer}.{number}"
        allocation = self.build.tensor(name, shape, dtype, tensor.bytes(self.context))
        blocks, states = streams, cells
        if self.build.groups[group].block_size == 1 and tensor.group != "state":
            blocks, states = cells, 1
        if self.transposed and term is not None and term.name == "v":
            self._transposed(term, tensor, layer, group, allocation, streams, cells)
            return
        self.build.window(one, layer, group, allocation, blocks=blocks, states=states)

    def _transposed(
        self, term: Term, tensor: Tensor, layer: int, group: int, allocation: int, streams: int, cells: int
    ) -> None:
        """[stream, number, cell]: every number of V is a head of one element."""
        size = term.packing.bytes
        one = Stored("v_transposed", tensor.entry_bytes // size, size, stored(term).dtype, term.packing, ())
        self.build.window(one, layer, group, allocation, blocks=streams, states=cells, heads_outside=True)
        if self.build.groups[group].block_size == 1:  # a block is a cell
            view = self.build.views[-1]
            self.build.views[-1] = replace(
                view, blocks=cells, states=1, block_stride=size, head_stride=cells * size, state_stride=size
            )

    def _group(self, tensor: Tensor) -> int:
        """The group of tensors with these cells; a pool of its own for each."""
        key = Tensor(tensor.group, 0, tensor.window, tensor.rate, tensor.split)
        if key in self.groups:
            return self.groups[key]
        context, pool = self.context, len(self.build.pools)
        cells, streams = tensor.cells(context), tensor.streams(context)
        window = None if context.swa_full else tensor.window
        kind = GroupKind.FULL if window is None else GroupKind.WINDOW
        name = tensor.group if tensor.window is None else f"{tensor.group} {tensor.window}"
        if tensor.group == "state":
            group = Group(name, GroupKind.STATE, pool, 0, 1, fixed=1)
            found = self.build.group(group, BlockPool(name, streams))
        elif tensor.split or context.streams > 1 or tensor.rate > 1:
            group = Group(name, kind, pool, 0, cells * tensor.rate, window=window, fixed=1, ring=True)
            found = self.build.group(group, BlockPool(name, streams))
        else:
            group = Group(name, kind, pool, 0, 1, window=window, limit=window)
            found = self.build.group(group, BlockPool(name, cells))
        self.groups[key] = found
        return found


def _terms(rules: Rules, layer: Layer) -> Iterator[Term]:
    """The terms behind ``layer_tensors``, in its order; nothing for a layer that is described otherwise."""
    if Kind.COMPRESSED in layer.kinds:
        return
    for part in layer.parts:
        for term in part_terms(part, rules.store):
            if term.grows in (Grows.TOKEN, Grows.REQUEST):
                yield term
