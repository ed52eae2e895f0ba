"""Cross attention beside a decoder's own: put there, taken away, and BART's stack.

Key names are those of transformers 5.23.0, src/transformers/models/<type>/configuration_<type>.py.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.families import CrossAttention, FullAttention, Kind, SlidingWindow
from kvplan.model import EncoderInput, Layer


def with_cross(layers: list[Layer]) -> list[Layer]:
    """Each layer with cross attention of the same heads, where it has none yet (T5Gemma, composites)."""
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            seen[layer] = _crossed(layer)
    return [seen[layer] for layer in layers]


def _crossed(layer: Layer) -> Layer:
    if any(part.kind is Kind.CROSS for part in layer.parts):
        return layer
    for part in layer.parts:
        if isinstance(part, (FullAttention, SlidingWindow)):
            return Layer((*layer.parts, CrossAttention(part.num_kv_heads, part.head_dim)))
    return layer


def without_cross(layers: list[Layer]) -> list[Layer]:
    """The layers of a decoder that stands alone: no cross attention, no cache for it."""
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            kept = tuple(part for part in layer.parts if part.kind is not Kind.CROSS)
            seen[layer] = Layer(kept) if kept else layer
    return [seen[layer] for layer in layers]


def stack(count: int, part: FullAttention, cross: CrossAttention | None = None) -> list[Layer]:
    beside = cross or CrossAttention(part.num_kv_heads, part.head_dim)
    return [Layer((part, beside))] * count


def per_head(view: ConfigView, heads: int, *widths: str) -> int:
    return derived(int(view.integer(*widths)) // int(heads) or 1, f"{widths[0]} // decoder heads")


def bart_like_layers(view: ConfigView) -> list[Layer]:
    """decoder_layers × decoder_attention_heads × (d_model // decoder_attention_heads).

    ``num_hidden_layers`` and ``num_attention_heads`` are other names of the ENCODER's numbers here (of the
    decoder's in seamless and trocr): the aliases of the class decide.
    """
    heads = view.integer("decoder_attention_heads")
    width = per_head(view, heads, "d_model", "hidden_size")
    return stack(view.num_layers("decoder_layers"), FullAttention(heads, width))


TEXT, AUDIO, IMAGE = EncoderInput.TEXT, EncoderInput.AUDIO, EncoderInput.IMAGE
