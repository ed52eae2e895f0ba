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
from kvplan.engines.llamacpp.graph import Copied, reserve
from kvplan.engines.llamacpp.memory import PAD, Context
from kvplan.engines.llamacpp.models import uses_flash
from kvplan.engines.llamacpp.options import MAX_SLOTS
from kvplan.engines.llamacpp.pool import context_for, machine_of
from kvplan.engines.llamacpp.store import store_for
from kvplan.engines.options import Options
from kvplan.model import Model
from kvplan.results import BudgetLine, SizeResult
from kvplan.settings import Serving
from kvplan.units import MIB, round_up

MARGIN = 64 * MIB
"""What the compute buffer of a device has beside the graph's: copies of inputs, the alignment of a
backend."""
_SHARE = 8
"""An eighth of it: how far experts and unusual layers are from the formula."""


def stated_context(options: Options, settings: Serving) -> Context | None:
    """The context where somebody gave it: the masks have a cell for each of its cells."""
    if options.count("ctx_size") is None and settings.max_model_len is None:
        return None
    return context_for(options, settings.max_model_len or 0, options.count("parallel") or 1)


def _cells_at_most(
    model: Model, options: Options, settings: Serving, started: SizeResult, total: int
) -> int | None:
    """Cells of a unified cache whose slots are as many as the memory holds; None where it does not decide.

    The masks have a cell for each of them: with the masks of one slot a full context would not start.
    """
    per_cell = started.per_gpu.bytes_per_token
    if not options.flag("kv_unified") or options.count("ctx_size") is not None or not per_cell:
        return None
    if not uses_flash(model, options.flag("flash_attn")):
        return None
    slots = options.count("parallel") or MAX_SLOTS
    length = settings.max_model_len or model.max_model_len or PAD
    return round_up(min(int(total // per_cell), slots * length), PAD)


def compute_line(
    model: Model,
    shape: Shape,
    options: Options,
    settings: Serving,
    started: SizeResult,
    total: int,
    hosted: int,
) -> BudgetLine:
    """The graph's reserve; between a context of one micro-batch and the model's own length where none was
    given. started: the answer without a pool; total: bytes of the GPU, which bound a context that takes what
    there is; hosted: the largest matrix in host memory."""
    stated = stated_context(options, settings)
    longest = context_for(options, model.max_model_len or PAD, 1)
    filled = _cells_at_most(model, options, settings, started, total)
    if filled is not None:
        ends = [longest._replace(cells=filled)]
    elif stated is not None:
        ends = [stated]
    else:
        ends = [longest._replace(cells=round_up(longest.ubatch, PAD)), longest]
    copied = [Copied(hosted, _cache_of_a_layer(model, options, settings, context)) for context in ends]
    return graph_interval(model, shape, ends, flash_attn=options.flag("flash_attn"), copied=copied)


def _cache_of_a_layer(model: Model, options: Options, settings: Serving, context: Context) -> int:
    """Keys and values of the largest cache among layers in host memory; with --no-kv-offload attention is
    computed there as well."""
    if not options.flag("kv_offload"):
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
) -> BudgetLine:
    """What the graphs of these contexts reserve, and how far from the formula a model may be. copied: from
    host memory, for each context."""
    flash = uses_flash(model, flash_attn)
    copies = copied or [Copied()] * len(contexts)
    both = list(zip(contexts, copies, strict=True))
    sizes = [
        reserve(model, shape, context, flash_attn=flash, outputs=context.slots, copied=copy)
        for context, copy in both
    ]
    before = [reserve(model, shape, context, flash_attn=flash, copied=copy) for context, copy in both]
    likely, most = sum(sizes) // len(sizes), max(before)
    low, high = min(sizes) - min(sizes) // _SHARE, most + most // _SHARE + MARGIN
    how = "the graph of a micro-batch: the widest layer and its masks, or logits, in f32"
    if any(any(copy) for copy in copies):
        how += "; copies of what lies in host memory"
    return BudgetLine("compute buffer", likely, low, high, how)
