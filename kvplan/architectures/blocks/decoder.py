"""The plain decoder: every layer full attention, or windows and chunks by ``layer_types``."""

from __future__ import annotations

from kvplan.architectures.blocks.recipe import (
    CHUNKED,
    FULL,
    SLIDING,
    Parts,
    PartsOf,
    Recipe,
    nothing,
    type_names,
)
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, FullAttention, Part, SlidingWindow
from kvplan.model import Layer
from kvplan.record import replace

# Classes that never read num_key_value_heads: every head has its own K and V.
_ALWAYS_MHA = type_names(
    """
    bert bert-generation big_bird biogpt bloom camembert codegen cpmant ctrl data2vec-text electra
    ernie git gpt2 gpt-sw3 gpt_neo gpt_neox gpt_neox_japanese gptj hrm_text megatron-bert
    modernbert-decoder mpt opt persimmon rembert roberta roberta-prelayernorm roc_bert roformer xglm
    xlm-roberta xlm-roberta-xl xmod
    """
)

# Classes that compute hidden_size // num_attention_heads and never read head_dim.
_FIXED_HEAD_DIM = (_ALWAYS_MHA - {"hrm_text"}) | {
    "falcon", "gpt_bigcode", "mllama_text_model", "stablelm", "unlimited_ocr_text"
}  # fmt: skip


def num_heads(view: ConfigView) -> int:
    return view.integer("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")


def num_kv_heads(view: ConfigView) -> int:
    """num_key_value_heads (or num_kv_heads); without one, every head has its own K and V (MHA)."""
    if view.model_type in _ALWAYS_MHA:
        return derived(int(num_heads(view)), f"num_attention_heads ({view.model_type} has no KV heads: MHA)")
    given = view.optional_integer("num_key_value_heads", "num_kv_heads")
    if given is not None:
        return given
    return derived(int(num_heads(view)), "num_attention_heads (no KV heads stated: MHA)")


def head_dim(view: ConfigView) -> int:
    """head_dim where stated, else hidden_size // num_attention_heads."""
    if view.model_type not in _FIXED_HEAD_DIM:
        given = view.optional_integer("head_dim")
        if given is not None:
            return given
    return hidden_per_head(view)


def hidden_per_head(view: ConfigView) -> int:
    """hidden_size // num_attention_heads."""
    hidden, heads = view.integer("hidden_size", "n_embd", "d_model"), num_heads(view)
    if hidden < heads:
        raise KvplanError(
            "bad-config",
            f"{view.model_type}: hidden_size {hidden:,} is less than the {heads:,} attention heads",
        )
    return derived(hidden // heads, "hidden_size // num_attention_heads")


def window(view: ConfigView, key: str = "sliding_window") -> int:
    """The window of a windowed layer. Raises KvplanError where there is none, as transformers fails."""
    size = view.optional_integer(key)
    if size is None:
        raise view.refuse(key, "the layers are windowed but no window is given")
    return size


def full(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view)),)


def sliding(view: ConfigView) -> Parts:
    return (SlidingWindow(num_kv_heads(view), head_dim(view), window(view)),)


def chunked(view: ConfigView) -> Parts:
    return (ChunkedAttention(num_kv_heads(view), head_dim(view), window(view, "attention_chunk_size")),)


def stray(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view), library_window=stray_window(view)),)


# Full attention in a class without windows whose config states one all the same.
STRAY = "full attention with a stray window"

ATTENTION: dict[str, PartsOf] = {
    STRAY: stray,
    FULL: full,
    SLIDING: sliding,
    CHUNKED: chunked,
    "moe": nothing,
    "mlp": nothing,
}


def stray_window(view: ConfigView) -> int | None:
    """A window in the config of a class that has none: transformers' cache obeys it, the model does not."""
    for key in ("sliding_window", "attention_chunk_size"):
        if not view.known(key) and view.get(key) is not None:
            return window(view, key)
    return None


def one_kind(view: ConfigView, count: int) -> list[str]:
    """All windowed where sliding_window is set, all chunked where attention_chunk_size is, else all full.

    transformers cache_utils.py, get_layer_types_and_kwargs; keys that the class does not have are stray.
    """
    if view.known("sliding_window") and view.get("sliding_window") is not None:
        return [SLIDING] * count
    if view.known("attention_chunk_size") and view.get("attention_chunk_size") is not None:
        return [CHUNKED] * count
    return [FULL if stray_window(view) is None else STRAY] * count


def uniform(view: ConfigView, part: FullAttention, *beside: Part) -> list[Layer]:
    """The same parts in every layer."""
    return [Layer((replace(part, library_window=stray_window(view)), *beside))] * view.num_layers()


def _num_layers(view: ConfigView) -> int:
    return view.num_layers("num_hidden_layers", "n_layer", "n_layers", "num_layers")


PLAIN = Recipe(ATTENTION, one_kind, count=_num_layers)


def plain_decoder(view: ConfigView) -> list[Layer]:
    """Layers by ``layer_types`` where there is one; else all windowed, all chunked or all full."""
    return PLAIN(view)


def with_window(size: PartsOf) -> dict[str, PartsOf]:
    """Attention layers whose windowed kind is made otherwise."""
    return {**ATTENTION, SLIDING: size}
