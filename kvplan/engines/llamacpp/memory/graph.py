"""llama.cpp's compute buffer: the largest step of the graph that it reserves for a micro-batch.

ggml-org/llama.cpp at 0c1e57098: src/llama-context.cpp (sched_reserve), src/llama-graph.cpp,
ggml/src/ggml-alloc.c (tensors of a graph share one buffer), ggml/src/ggml-cuda/fattn.cu (a cache that is
not f16 is copied to f16 in this buffer, since pull request 23907). Checked against what it reserved on the
CPU for every published config (tests/data/llamacpp.json.gz) and for GPUs (llamacpp_fit.json.gz).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.base import has_kind
from kvplan.engines.llamacpp.cache_layout.caches import Context, window_of
from kvplan.engines.llamacpp.start.models import has_window_cache, name_of
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    Kind,
    Mamba2,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
)
from kvplan.model import Model
from kvplan.named import NamedTuple

F32, F16 = 4, 2


CHOSEN = 2048
"""Tokens that an index chooses (``index_topk`` of every published model)."""
BESIDE = frozenset("falcon gpt_neox gptneox phi phi2 phi_msft refinedweb refinedwebmodel".split())
"""Types whose MLP has no gate and runs beside attention."""
UNGATED = BESIDE | frozenset(
    """
    bloom codeshell gpt2 gpt_bigcode jais mpt nemotron nemotron_h nemotron_h_moe starcoder starcoder2
    """.split()
)
"""Types whose MLP has no gate."""
BIASED = frozenset({"t5", "mt5", "umt5"})
BESIDE_GATED = frozenset({"cohere", "cohere2"})
"""Types whose gated MLP runs beside attention, the output of which waits for it."""
FUSED = frozenset({"phi3"})
"""Types whose gated layers make Q, K and V of one matrix: Q is a part of what it gives."""


class Copied(NamedTuple):
    """Bytes copied from host memory for the GPU to compute with (a micro-batch has 32 tokens or more:
    ggml/src/ggml-backend.cpp, op_offload)."""

    matrix: int = 0
    """the largest: one at a time"""
    cache: int = 0
    """keys and values of one layer"""


NOTHING_COPIED = Copied()
COPIES = 4
"""Micro-batches for which pipelined GPUs (`compute.is_pipelined`) keep a split's inputs: masks and hidden
states (ggml/src/ggml-backend.cpp, GGML_SCHED_MAX_COPIES; unslothai/unsloth#7637 measured it)."""


def reserve(
    model: Model,
    shape: Shape,
    context: Context,
    *,
    flash_attn: bool,
    outputs: int | None = None,
    copied: Copied = NOTHING_COPIED,
    copies: int = 1,
    inputs: int = 2,
    in_f16: bool = True,
    on_host: bool = False,
) -> int:
    """Bytes of the compute buffer of a device that has layers and the output. outputs: tokens of a
    micro-batch that have logits (``n_outputs_max``); None, or a model with an encoder: all. copies: of what a
    split begins with; inputs: hidden states that it begins with, one on the first GPU. in_f16: whether flash
    attention reads the cache as it is. on_host: of the CPU, whose graph begins with the embedding."""
    tokens = min(context.ubatch, context.n_ctx)
    mask = mask_bytes(model, context, tokens, flash_attn=flash_attn)
    parts = _parts(model)
    step = _step(name_of(model), shape, _query(model, parts), mask // (tokens * F32))
    step += shape.hidden_size if on_host else 0
    graph = _Graph(model, shape.hidden_size, context, flash_attn)
    attention = max((NUMBERS_OF[type(part)](graph, part) for part in parts), default=3 * shape.hidden_size)
    inner = max(step * tokens * F32, attention * tokens * F32 + mask + copied.cache)
    if flash_attn and not in_f16:
        query = 2 * _query(model, parts) + 2 * shape.hidden_size
        widened = max((_widened(model, context, part) for part in parts), default=0)
        inner = max(inner, query * tokens * F32 + mask + widened)
    inner += copied.matrix
    logits = tokens if outputs is None or name_of(model) in BIASED else min(outputs, tokens)
    # The output: logits, their norm and the last layer, only of tokens that have logits.
    taken = max((shape.vocab_size + 2 * shape.hidden_size) * logits * F32, inner)
    if copies == 1:
        return taken
    return taken + (copies - 1) * mask + copies * inputs * shape.hidden_size * tokens * F32


def _query(model: Model, parts: tuple[Part, ...]) -> int:
    """Numbers of a token's queries, where they are a tensor of their own."""
    if name_of(model) in FUSED:
        return 0
    return max((QUERY_OF[type(part)](model, part) for part in parts if type(part) in QUERY_OF), default=0)


def _widened(model: Model, context: Context, part: Part) -> int:
    """Bytes of a layer's keys and values in f16, in all cells; of a latent once."""
    numbers = ENTRY_OF.get(type(part))
    if numbers is None:
        return 0
    window = window_of(part) if has_window_cache(model) else None
    cells = context.cells if window is None else context.window_cells(window)
    return cells * context.streams * numbers(part) * F16


def _step(name: str, shape: Shape, query: int, mask: int) -> int:
    """Numbers of a token (f32) in an MLP, or in the experts, and the mask that is alive beside them."""
    hidden, width, used = shape.hidden_size, shape.mlp_width, shape.experts_per_token
    if not used and name in UNGATED:
        # Up and its activation.
        return 2 * width + (hidden + mask if name in BESIDE else max(3 * hidden, hidden + mask))
    if not used:
        # Gate, up and their product; residual, input, and the room of the queries.
        return 3 * width + (3 if name in BESIDE_GATED else 2) * hidden + query + mask
    width = shape.expert_width
    if name in UNGATED:
        return used * width + 9 * hidden + mask
    # What goes back to the hidden width takes the room of gate and up where it fits there.
    back = used * hidden if hidden > 2 * width else 0
    return 3 * used * width + back + 2 * hidden + min(query, 2 * hidden) + mask


class _Graph(NamedTuple):
    """The compute rule of a layer that mixes tokens."""

    model: Model
    hidden: int
    context: Context
    flash_attn: bool

    @property
    def heads(self) -> int:
        return self.model.num_attention_heads

    @property
    def scores(self) -> int:
        """Numbers of a token's scores that are in memory at once."""
        cells = self.context.cells
        if name_of(self.model) in BIASED:  # a bias by distance, for every head and cell
            return 3 * self.heads * cells + 4 * cells
        return 0 if self.flash_attn else self.heads * cells


def _mamba2(graph: _Graph, part: Mamba2) -> int:
    """in_proj gives 2 inner + groups + heads; beside it 2 (inner + groups), 2 inner and hidden."""
    groups = 2 * part.n_groups * part.state_size
    inner = part.num_heads * part.head_dim
    return 6 * inner + 3 * groups + part.num_heads + graph.hidden


def _compressed(graph: _Graph, part: CompressedAttention) -> int:
    """DeepSeek-V4: four streams of hidden states."""
    return 3 * graph.heads * part.head_dim + 13 * graph.hidden // 2 + 3 * graph.context.cells // 2


def _latent(graph: _Graph, part: MultiHeadLatentAttention) -> int:
    """The query as projected, before and after the absorbed matrix, and the output of attention."""
    cells = graph.context.cells
    each = 2 * part.key_width + part.qk_nope_head_dim + part.v_head_dim
    index = 3 * cells // 2 + 64 * min(CHOSEN, cells) if has_kind(graph.model, Kind.INDEXER) else 0
    return (part.num_heads or graph.heads) * each + 4 * graph.hidden + index + graph.scores


def _heads(graph: _Graph, part: FullAttention | SlidingWindow | ChunkedAttention) -> int:
    both = ((graph.heads or part.num_kv_heads) + part.num_kv_heads) * part.head_dim
    return 2 * both + 3 * graph.hidden + graph.scores


NUMBERS_OF: dict[type[Part], Callable[[_Graph, Any], int]] = {
    FullAttention: _heads,
    SlidingWindow: _heads,
    ChunkedAttention: _heads,
    MultiHeadLatentAttention: _latent,
    CompressedAttention: _compressed,
    Mamba2: _mamba2,
}
"""Numbers of a token in a layer that mixes tokens, beside the mask, by its family; others take less."""


def _queries_of_heads(model: Model, part: FullAttention | SlidingWindow | ChunkedAttention) -> int:
    return (model.num_attention_heads or part.num_kv_heads) * part.head_dim


def _queries_of_latent(model: Model, part: MultiHeadLatentAttention) -> int:
    heads = part.num_heads or model.num_attention_heads
    return heads * (part.qk_nope_head_dim + part.qk_rope_head_dim)


def _entry_of_heads(part: FullAttention | SlidingWindow | ChunkedAttention) -> int:
    return part.num_kv_heads * (part.key_width + part.value_width)


def _entry_of_latent(part: MultiHeadLatentAttention) -> int:
    return part.key_width


QUERY_OF: dict[type[Part], Callable[[Model, Any], int]] = {
    FullAttention: _queries_of_heads,
    SlidingWindow: _queries_of_heads,
    ChunkedAttention: _queries_of_heads,
    MultiHeadLatentAttention: _queries_of_latent,
}
"""Numbers of a token's queries, by the layer's family."""
ENTRY_OF: dict[type[Part], Callable[[Any], int]] = {
    FullAttention: _entry_of_heads,
    SlidingWindow: _entry_of_heads,
    ChunkedAttention: _entry_of_heads,
    MultiHeadLatentAttention: _entry_of_latent,
}
"""Numbers of a cell that flash attention reads, by the layer's family."""


def mask_bytes(model: Model, context: Context, tokens: int, *, flash_attn: bool) -> int:
    """The masks of the full layers and of the windows': a row of cells for each token, f16 with flash
    attention and f32 without."""
    cells: set[tuple[bool, int]] = set()
    for part in _parts(model):
        if part.kind is Kind.STATE:
            continue
        window = window_of(part) if has_window_cache(model) else None
        cells.add((window is not None, context.cells if window is None else context.window_cells(window)))
    return sum(count for _, count in cells) * tokens * (F16 if flash_attn else F32)


def _parts(model: Model) -> tuple[Part, ...]:
    return tuple(part for layer in model.distinct() for part in layer.parts if type(part) in NUMBERS_OF)
