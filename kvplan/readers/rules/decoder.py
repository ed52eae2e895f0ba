"""The plain decoder: every layer full attention, or windows and chunks by ``layer_types``."""

from __future__ import annotations

from kvplan.families import ChunkedAttention, FullAttention, NoCache, Part, SlidingWindow
from kvplan.model import Layer
from kvplan.readers.view import ConfigView, derived


def num_heads(view: ConfigView) -> int:
    return view.integer("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")


def num_kv_heads(view: ConfigView) -> int:
    """num_key_value_heads (or num_kv_heads); without one, every head has its own K and V (MHA)."""
    given = view.optional_integer("num_key_value_heads", "num_kv_heads")
    return given if given is not None else derived(int(num_heads(view)), "num_attention_heads (no KV heads stated: MHA)")


def head_dim(view: ConfigView) -> int:
    """head_dim where stated, else hidden_size // num_attention_heads."""
    given = view.optional_integer("head_dim")
    if given is not None:
        return given
    hidden, heads = view.integer("hidden_size", "n_embd", "d_model"), num_heads(view)
    return derived(hidden // heads, "hidden_size // num_attention_heads")


def attention_part(view: ConfigView, kind: str) -> Part:
    """One layer of the given ``layer_types`` word, with the sizes of the whole model."""
    kv, width = num_kv_heads(view), head_dim(view)
    if kind == "full_attention":
        return FullAttention(kv, width)
    if kind == "sliding_attention":
        return SlidingWindow(kv, width, view.integer("sliding_window"))
    if kind == "chunked_attention":
        return ChunkedAttention(kv, width, view.integer("attention_chunk_size"))
    if kind in ("moe", "mlp"):
        return NoCache()
    raise view.refuse("layer_types", f"unknown layer type {kind!r}")


def plain_decoder(view: ConfigView) -> list[Layer]:
    """Layers by ``layer_types`` where there is one; else all windowed, all chunked or all full."""
    count = view.num_layers("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    kinds = view.sequence("layer_types")
    if kinds is None:
        kinds = [_only_kind(view)] * count
    if len(kinds) != count:
        raise view.refuse("layer_types", f"{len(kinds)} entries for {count} layers")
    parts = {kind: attention_part(view, str(kind)) for kind in dict.fromkeys(kinds)}
    return [Layer((parts[kind],)) for kind in kinds]


def _only_kind(view: ConfigView) -> str:
    if view.get("sliding_window"):
        return "sliding_attention"
    if view.get("attention_chunk_size"):
        return "chunked_attention"
    return "full_attention"
