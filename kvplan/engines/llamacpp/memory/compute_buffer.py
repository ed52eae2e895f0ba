"""llama.cpp's compute buffer as a line of the budget: what the graphs that it reserves take, and how far from
the formula a model may be.

ggml-org/llama.cpp at 0c1e57098: tools/server/server-context.cpp (server_n_outputs_max: logits for a token of
each slot, since pull request 23861; builds before June 2026 reserve them for every token, which is the high
end here), ggml/src/ggml-backend.cpp (ggml_backend_sched_split_graph: a matrix in host memory begins a split
of its own on the GPU, and its copy lies in the compute buffer, as do a layer's keys and values from there).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.llamacpp.cache_layout.caches import PAD, Context
from kvplan.engines.llamacpp.cache_layout.pool import context_for, machine_of, streams_of
from kvplan.engines.llamacpp.memory.graph import COPIES, Copied, reserve
from kvplan.engines.llamacpp.options import MAX_SLOTS, LlamacppOptions
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.engines.llamacpp.start.models import uses_flash
from kvplan.model import Model
from kvplan.results import BudgetLine, SizeResult
from kvplan.settings import Serving
from kvplan.units import MIB, round_up

MARGIN = 64 * MIB
"""The compute buffer of a device beyond the graph's: copies of inputs, the alignment of a backend."""
_SHARE = 8
"""An eighth of it: how far experts and unusual layers are from the formula."""


def stated_context(options: LlamacppOptions, settings: Serving) -> Context | None:
    """The context where somebody gave it: the masks have a cell for each of its cells."""
    if options.ctx_size is None and settings.max_model_len is None:
        return None
    return context_for(options, settings.max_model_len or 0, options.parallel or 1)


def _filled(
    model: Model, options: LlamacppOptions, settings: Serving, started: SizeResult, free: int
) -> Context:
    """A context that takes what is free: of as many slots as that are where one cache holds all of them, else
    of the model's own length at most.

    The masks have a cell for each of its cells: with the masks of one slot a full context would not start.
    """
    per_cell, own = started.per_gpu.bytes_per_token, options.fit_ctx is not None
    longest = context_for(options, settings.max_model_len or model.max_model_len or PAD, 1)
    if not per_cell:
        return longest
    slots = 1 if own or not options.kv_unified else options.parallel or MAX_SLOTS
    cells = min(int(max(free, 0) // per_cell) // streams_of(options), slots * longest.cells)
    return longest._replace(cells=round_up(max(cells, 1), PAD))


def _takes_all(options: LlamacppOptions, settings: Serving) -> bool:
    """Whether the context is known to take what there is."""
    own = options.fit_ctx is not None and settings.max_model_len is None
    return (options.kv_unified or own) and options.ctx_size is None


def compute_line(
    model: Model,
    shape: Shape,
    options: LlamacppOptions,
    settings: Serving,
    started: SizeResult,
    free: int,
    hosted: int,
) -> BudgetLine:
    """The graph's reserve; between a context of one micro-batch and one that takes what there is where none
    was given. started: the answer without a pool; free: bytes of the GPU beside the weights, which bound a
    context; hosted: the largest matrix in host memory."""
    stated = stated_context(options, settings)
    filled = _filled(model, options, settings, started, free)
    flash = uses_flash(model, options.flash_attn)
    if flash and _takes_all(options, settings) and started.per_gpu.bytes_per_token:
        ends = [filled]
    elif stated is not None:
        ends = [stated]
    else:
        ends = [filled._replace(cells=min(round_up(filled.ubatch, PAD), filled.cells)), filled]
    copied = [Copied(hosted, _cache_of_a_layer(model, options, settings, context)) for context in ends]
    copies = COPIES if is_pipelined(model, options, settings) else 1
    return graph_interval(model, shape, ends, flash_attn=options.flash_attn, copied=copied, copies=copies)


def is_pipelined(model: Model, options: LlamacppOptions, settings: Serving) -> bool:
    """Several GPUs with all layers, none of whose tensors or caches lie elsewhere, take turns
    (src/llama-context.cpp, pipeline_parallel)."""
    layers = options.n_gpu_layers
    whole = layers is None or layers > model.num_layers
    apart = options.cpu_moe or options.n_cpu_moe or not options.kv_offload
    return settings.pipeline_parallel_size > 1 and whole and not apart


def _cache_of_a_layer(model: Model, options: LlamacppOptions, settings: Serving, context: Context) -> int:
    """Keys and values of the largest cache among layers in host memory; with --no-kv-offload attention is
    computed there as well."""
    if not options.kv_offload:
        return 0
    machine = machine_of(model, store_for(model, settings, options), settings, options)
    hosted = (cache for cache in machine.host if cache.tensor.group != "state")
    return max((cache.tensor.bytes(context) // cache.layers for cache in hosted), default=0)


def graph_interval(
    model: Model,
    shape: Shape,
    contexts: Sequence[Context],
    *,
    flash_attn: bool,
    copied: Sequence[Copied] = (),
    copies: int = 1,
) -> BudgetLine:
    """The reserve of these contexts' graphs, and the interval around the formula. copied: from host memory,
    for each context. copies: of a graph's inputs."""
    flash = uses_flash(model, flash_attn)
    both = list(zip(contexts, copied or [Copied()] * len(contexts), strict=True))
    sizes = [
        reserve(model, shape, context, flash_attn=flash, outputs=context.slots, copied=copy, copies=copies)
        for context, copy in both
    ]
    before = [
        reserve(model, shape, context, flash_attn=flash, copied=copy, copies=copies) for context, copy in both
    ]
    likely, most = sum(sizes) // len(sizes), max(before)
    low, high = min(sizes) - min(sizes) // _SHARE, most + most // _SHARE + MARGIN
    how = "the graph of a micro-batch: the widest layer and its masks, or logits, in f32"
    if copies > 1:
        how += f", the masks {copies} times for GPUs that take turns"
    if any(any(copy) for _, copy in both):
        how += "; copies of what lies in host memory"
    return BudgetLine("compute buffer", likely, low, high, how)
