"""llama.cpp's compute buffer: the largest step of the graph that it reserves for a micro-batch.

ggml-org/llama.cpp at 0c1e57098: src/llama-context.cpp (sched_reserve: a graph of n_ubatch tokens with logits
for each), src/llama-graph.cpp (build_attn, build_ffn, build_moe_ffn), ggml/src/ggml-alloc.c (tensors of a
graph share one buffer; the largest sum of those alive is reserved). Every activation is f32; a mask has a row
of cells for each token, f16 with flash attention and f32 without. Alive at once, in numbers for each token:

    output     vocabulary + 2 hidden                           the logits, their norm and the last layer
    dense      3 mlp + 4 hidden + mask                         gate, up and their product, residual and norm
    experts    3 used · expert + 4 hidden + mask; where hidden > 2 expert: 3 used · expert + (used + 3.5)
    hidden attention  2 queries + 2 keys and values + 3 hidden + mask [+ heads · cells without flash
    attention]

Held against llama-cpp-python 0.3.36 by the live tests, and against what it reserved for fourteen shapes.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.llamacpp.memory import Context
from kvplan.engines.llamacpp.models import CHUNK, has_window_cache
from kvplan.families import (
    ChunkedAttention,
    FullAttention,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
)
from kvplan.model import Model

F32, F16 = 4, 2


class Attention(NamedTuple):
    """Widths of one layer's attention: queries, and keys or values."""

    queries: int
    keys: int


def reserve(model: Model, shape: Shape, context: Context, *, flash_attn: bool) -> int:
    """Bytes of the compute buffer of a device that has layers and the output."""
    tokens, hidden = min(context.ubatch, context.n_ctx), shape.hidden_size
    masks = mask_bytes(model, context, tokens, flash_attn=flash_attn)
    width = shape.mlp_width
    step = 3 * width + 4 * hidden
    if shape.experts_per_token:
        used, width = shape.experts_per_token, shape.expert_width
        # What goes back to the hidden width takes the room of gate and up where it fits there.
        wider = hidden > 2 * width
        step = 3 * used * width + (used * hidden + 7 * hidden // 2 if wider else 4 * hidden)
    scores = 0 if flash_attn else model.num_attention_heads * context.cells
    attention = max(
        (2 * one.queries + 2 * one.keys + 3 * hidden for one in _attentions(model)), default=3 * hidden
    )
    output = shape.vocab_size + 2 * hidden
    inner = max(step, attention + scores) * tokens * F32 + masks
    return max(output * tokens * F32, inner)


def mask_bytes(model: Model, context: Context, tokens: int, *, flash_attn: bool) -> int:
    """The masks of the full layers and of the windows', a cell for each token and cell of a cache."""
    cells: set[tuple[bool, int]] = set()
    for part in _parts(model):
        window = _window(part) if has_window_cache(model) else None
        cells.add((window is not None, context.cells if window is None else context.window_cells(window)))
    return sum(count for _, count in cells) * tokens * (F16 if flash_attn else F32)


def _parts(model: Model) -> tuple[Part, ...]:
    attentions = (FullAttention, SlidingWindow, ChunkedAttention, MultiHeadLatentAttention)
    return tuple(part for layer in model.distinct() for part in layer.parts if isinstance(part, attentions))


def _window(part: Part) -> int | None:
    if isinstance(part, ChunkedAttention):
        return CHUNK
    return part.sliding_window if isinstance(part, (SlidingWindow, MultiHeadLatentAttention)) else None


def _attentions(model: Model) -> list[Attention]:
    """The widths of every kind of layer; latents are queried as wide as they are stored."""
    found = []
    for part in _parts(model):
        if isinstance(part, MultiHeadLatentAttention):
            latent = part.kv_lora_rank + part.qk_rope_head_dim
            found.append(Attention((part.num_heads or model.num_attention_heads) * latent, latent))
        elif isinstance(part, (FullAttention, SlidingWindow, ChunkedAttention)):
            heads = model.num_attention_heads or part.num_kv_heads
            found.append(Attention(heads * part.head_dim, part.num_kv_heads * part.head_dim))
    return found
