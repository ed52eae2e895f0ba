"""llama.cpp's compute buffer as a line of the budget: what the graphs that it reserves take, and how far from
the formula a model may be.

ggml-org/llama.cpp at 0c1e57098: tools/server/server-context.cpp (server_n_outputs_max: logits for a token of
each slot, since pull request 23861; builds before June 2026 reserve them for every token, which is the high
end here), ggml/src/ggml-backend.cpp (ggml_backend_sched_split_graph: a matrix in host memory begins a split
of its own on the GPU, and its copy lies in the compute buffer, as do a layer's keys and values from there).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.config.activation_shape import Shape, shape_of
from kvplan.engines.llamacpp.cache_layout.caches import PAD, Context
from kvplan.engines.llamacpp.cache_layout.pool import context_for, machine_of, streams_of
from kvplan.engines.llamacpp.gguf_file.heads import STATES
from kvplan.engines.llamacpp.memory.graph import COPIES, F32, Copied, mask_bytes, reserve
from kvplan.engines.llamacpp.options import MAX_SLOTS, LlamacppOptions
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.engines.llamacpp.start.drafts import drafts, has_head, layers_in_file, named_draft
from kvplan.engines.llamacpp.start.models import uses_flash
from kvplan.engines.llamacpp.start.trained import own_length
from kvplan.model import Model
from kvplan.results import BudgetLine, SizeResult, exact_number
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
    per_cell, own = exact_number(started.per_gpu.bytes_per_token), options.fit_ctx is not None
    longest = context_for(options, settings.max_model_len or own_length(model, options) or PAD, 1)
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
    gpu: int = 0,
) -> BudgetLine:
    """The graph's reserve; between a context of one micro-batch and one that takes what there is where none
    was given. started: the answer without a pool; free: bytes of the GPU beside the weights, which bound a
    context; hosted: the largest matrix in host memory. gpu: its number; what lies in host memory is copied to
    the first."""
    ends = _contexts(model, options, settings, started, free)
    return line_of_a_gpu(model, shape, options, settings, ends, hosted, gpu)


def _contexts(
    model: Model, options: LlamacppOptions, settings: Serving, started: SizeResult, free: int
) -> list[Context]:
    """The context that was given; else from one of a micro-batch to one that takes what there is."""
    stated = stated_context(options, settings)
    filled = _filled(model, options, settings, started, free)
    flash = uses_flash(model, options.flash_attn)
    if flash and _takes_all(options, settings) and started.per_gpu.bytes_per_token:
        return [filled]
    if stated is not None:
        return [stated]
    return [filled._replace(cells=min(round_up(filled.ubatch, PAD), filled.cells)), filled]


def draft_lines(
    model: Model, shape: Shape, options: LlamacppOptions, settings: Serving, started: SizeResult, free: int
) -> tuple[BudgetLine, ...]:
    """The compute buffer of the draft's own context, on the GPU of the output."""
    if not drafts(settings) and named_draft(settings) is None:
        return ()
    contexts = _contexts(model, options, settings, started, free)
    return (draft_line(model, shape, options, settings, contexts),)


def draft_line(
    model: Model, shape: Shape, options: LlamacppOptions, settings: Serving, contexts: Sequence[Context]
) -> BudgetLine:
    """Of a draft model its whole graph. Of prediction layers one layer and the output: nothing needs the mask
    once its attention is done; at most what the target takes."""
    if (named := named_draft(settings)) is not None:
        line = graph_interval(named, shape_of(named, 2), contexts, flash_attn=options.flash_attn)
        # A head's other graph takes hidden states of the model and gives one of its own width.
        states = STATES * model.hidden_size + named.hidden_size if has_head(settings) else 0
        least = min(context.ubatch for context in contexts) * states * F32
        likely, high = max(line.bytes, least), max(line.high_bytes, least + MARGIN)
        return BudgetLine("draft's compute", likely, max(line.low_bytes, least), high, line.source)
    flash = uses_flash(model, options.flash_attn)
    sizes, most = [], 0
    for context in contexts:
        whole = reserve(model, shape, context, flash_attn=flash, outputs=context.slots)
        mask = mask_bytes(model, context, min(context.ubatch, context.n_ctx), flash_attn=flash)
        rest = whole - mask
        sizes.append(max(rest, mask + rest * 2 // 3))
        most = max(most, whole)
    likely = sum(sizes) // len(sizes)
    low = min(sizes) - min(sizes) // _SHARE
    how = "the graph of the prediction layers, which have a context of their own"
    return BudgetLine("draft's compute", likely, low, max(most + most // _SHARE, likely), how)


def line_of_a_gpu(
    model: Model,
    shape: Shape,
    options: LlamacppOptions,
    settings: Serving,
    contexts: Sequence[Context],
    hosted: int,
    gpu: int,
) -> BudgetLine:
    """The reserve of these contexts on a GPU, by its number. hosted: as in `compute_line`."""
    cache = 0 if gpu else 1
    copied = [
        Copied(hosted, cache * _cache_of_a_layer(model, options, settings, context)) for context in contexts
    ]
    store = store_for(model, settings, options)
    line = graph_interval(
        model,
        shape,
        contexts,
        flash_attn=options.flash_attn,
        copied=copied,
        copies=COPIES if is_pipelined(model, options, settings) else 1,
        inputs=2 if gpu else 1,
        in_f16=store.kv.name in _F16,
    )
    return _with_states(line, model, settings, contexts) if has_head(settings) else line


def _with_states(
    line: BudgetLine, model: Model, settings: Serving, contexts: Sequence[Context]
) -> BudgetLine:
    """The inputs of the layers that a head reads are outputs of the graph, whose room nothing else takes
    (src/llama-graph.cpp, set_outputs). Over several GPUs each is on that of its layer."""
    kept = STATES * model.hidden_size * min(context.ubatch for context in contexts) * F32
    least = kept if settings.pipeline_parallel_size == 1 else 0
    return BudgetLine(
        line.name, line.bytes + kept, line.low_bytes + least, line.high_bytes + kept,
        f"{line.source}; hidden states for the head",
    )  # fmt: skip


_F16 = ("float16", "float16/float16")
"""Caches that flash attention reads as they are."""


def is_pipelined(model: Model, options: LlamacppOptions, settings: Serving) -> bool:
    """Several GPUs with all layers, none of whose tensors or caches lie elsewhere, take turns
    (src/llama-context.cpp, pipeline_parallel)."""
    layers = options.n_gpu_layers
    whole = layers is None or layers > layers_in_file(model)
    apart = options.cpu_moe or options.n_cpu_moe or options.override_tensor or not options.kv_offload
    return settings.pipeline_parallel_size > 1 and whole and not apart


def taken_over_bytes(model: Model, options: LlamacppOptions, settings: Serving) -> int:
    """Of hidden states that a GPU behind the first begins with beyond what that one does."""
    if not is_pipelined(model, options, settings):
        return 0
    hidden = shape_of(model, 2).hidden_size * options.ubatch_size * F32
    return COPIES * hidden * (_SHARE + 1) // _SHARE


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
    inputs: int = 2,
    in_f16: bool = True,
) -> BudgetLine:
    """The reserve of these contexts' graphs, and the interval around the formula. copied: from host memory,
    for each context. copies, inputs, in_f16: as `reserve` takes them.

    The low end is of backends that read a quantised cache as it is. The high end is of builds before June
    2026, where that is more: logits for every token (pull request 23861), and beside the masks in f16 the
    same in f32 (23764); a quantised cache was copied outside this buffer (23907)."""
    flash = uses_flash(model, flash_attn)
    both = list(zip(contexts, copied or [Copied()] * len(contexts), strict=True))

    def sizes(outputs: bool, as_they_are: bool) -> list[int]:
        return [
            reserve(
                model, shape, context, flash_attn=flash, outputs=context.slots if outputs else None,
                copied=copy, copies=copies, inputs=inputs, in_f16=as_they_are,
            )
            for context, copy in both
        ]  # fmt: skip

    likely, least = sizes(True, in_f16), sizes(True, True)
    masks = [
        mask_bytes(model, context, min(context.ubatch, context.n_ctx), flash_attn=flash)
        for context in contexts
    ]
    before = [
        size + (copies * 2 * mask if flash else 0)
        for size, mask in zip(sizes(False, True), masks, strict=True)
    ]
    most = max(*before, *likely)
    low, high = min(least) - min(least) // _SHARE, most + most // _SHARE + MARGIN
    how = "the graph of a micro-batch: the widest layer and its masks, or logits, in f32"
    if likely != least:
        how += "; a layer's cache in f16, which flash attention reads on CUDA"
    if copies > 1:
        how += f", the masks {copies} times for GPUs that take turns"
    if any(any(copy) for _, copy in both):
        how += "; copies of what lies in host memory"
    return BudgetLine("compute buffer", sum(likely) // len(likely), low, high, how)
