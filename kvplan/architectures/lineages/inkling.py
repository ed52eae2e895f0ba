"""Inkling 1 and 2.

Source: huggingface/transformers 5.23.0 models/{inkling,inkling2}.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    Heads,
    Tensors,
    attention,
    even,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import HYBRID, HYBRID_SLIDING, Parts, Recipe, by_index, index_list
from kvplan.architectures.blocks.words import layer_words
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, KvConvolution, SlidingWindow
from kvplan.weights.inventory import Dim, Place, Split


def _inkling_state(view: ConfigView, kv: int, width: int) -> KvConvolution:
    return KvConvolution(kv, width, view.integer("hidden_size"), view.integer("conv_kernel_size"))


def _inkling(view: ConfigView) -> Parts:
    kv, width = num_kv_heads(view), head_dim(view)
    return (FullAttention(kv, width), _inkling_state(view, kv, width))


def _inkling_sliding(view: ConfigView) -> Parts:
    """Windowed layers have KV heads and a width of their own: the swa_ keys."""
    kv, width = view.integer("swa_num_key_value_heads"), view.integer("swa_head_dim")
    return (SlidingWindow(kv, width, window(view)), _inkling_state(view, kv, width))


def _inkling_pattern(view: ConfigView, count: int) -> list[str]:
    local = index_list(view, "local_layer_ids")
    if local is None:
        local = [index for index in range(count) if (index + 1) % 6]
    return [HYBRID_SLIDING if index in local else HYBRID for index in range(count)]


_INKLING = {HYBRID: _inkling, HYBRID_SLIDING: _inkling_sliding}


def _inkling_heads(view: ConfigView, word: str) -> Heads:
    prefix = "swa_" if word == "hybrid_sliding" else ""
    count = int(view.optional_integer(f"{prefix}num_attention_heads") or view.integer("num_attention_heads"))
    kv = int(view.optional_integer(f"{prefix}num_key_value_heads") or view.integer("num_key_value_heads"))
    width = int(view.optional_integer(f"{prefix}head_dim") or view.integer("head_dim"))
    return Heads(count, kv, width, width)


def _inkling_words(view: ConfigView) -> list[str]:
    words = layer_words(view, "layer_types")
    if words is not None:
        return words
    count, local = int(view.num_layers()), view.sequence("local_layer_ids")
    ids = set(local) if local is not None else {index for index in range(count) if (index + 1) % 6}
    return ["hybrid_sliding" if index in ids else "hybrid" for index in range(count)]


def inkling_tensors(view: ConfigView) -> Decoder:
    """Learnt relative positions, four short convolutions, experts that share the router with shared ones."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    kernel, own = keyed(view, "conv_kernel_size"), view.sequence("mlp_layer_types")
    words = _inkling_words(view)
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)
    count, narrow = int(view.integer("n_routed_experts")), view.optional_integer("moe_intermediate_size")
    dense_wide = view.optional_integer("dense_intermediate_size")
    expert = int(view.integer("intermediate_size") if dense_wide or narrow is None else narrow)
    if own is None:
        first = int(view.optional_integer("dense_mlp_idx", default=0, lowest=0) or 0)
        own = ["dense" if index < first else "sparse" for index in range(len(words))]

    def mixer(word: str) -> Tensors:
        heads = _inkling_heads(view, word)
        made = attention(heads, hidden, qk_norm="head")
        rel = (even("num_attention_heads", heads.count), keyed(view, "d_rel"))
        made += linear("self_attn.r_proj", rel, model)
        kv = (Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT), whole("head_dim", heads.width))
        for name in ("k_sconv", "v_sconv"):
            made += vector(f"self_attn.{name}.conv1d", *kv, kernel)
        extent = "sliding_window_size" if word == "hybrid_sliding" else "rel_extent"
        made += vector("self_attn.rel_logits_proj.proj", keyed(view, "d_rel"), keyed(view, extent))
        for name in ("attn_sconv", "mlp_sconv"):
            made += vector(f"{name}.conv1d", model, kernel)
        return made + norms(TWO_NORMS, model)

    @lru_cache(maxsize=8)
    def layer(word: str, kind: str) -> Tensors:
        if kind != "sparse":
            wide = int(dense_wide or view.integer("intermediate_size"))
            return mixer(word) + mlp("mlp", hidden, wide) + vector("mlp.global_scale", whole("one", 1))
        made = router("mlp.gate", count + shared, hidden) + vector("mlp.gate.global_scale", whole("one", 1))
        made += vector("mlp.gate.e_score_correction_bias", whole("n_routed_experts", count), dtype="float32")
        made += experts("mlp.experts", count, hidden, expert)
        if shared:
            made += experts("mlp.shared_experts", shared, hidden, expert)
        return mixer(word) + made

    norm_of_table = norm("model.embed_tokens.embed_norm", model)
    frame = Frame(extra=lambda _: at(Place.FIRST, norm_of_table))
    return Decoder(frame, tuple(layer(word, str(kind)) for word, kind in zip(words, own)))


lineage("inkling_text", layers=Recipe(_INKLING, _inkling_pattern), tensors=inkling_tensors)
lineage(
    "inkling2_text", layers=Recipe(_INKLING, by_index(lambda i, n: HYBRID_SLIDING if (i + 1) % 6 else HYBRID))
)
