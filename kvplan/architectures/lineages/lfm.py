"""LFM2, LFM2 with experts, LFM3 and LFM2-VL: short convolutions beside attention.

Sources: huggingface/transformers 5.23.0 models/{lfm2,lfm2_moe,lfm3}; vllm-project/vllm 0.32
vllm/model_executor/models/lfm2.py, lfm2_moe.py, lfm2_vl.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION, num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe, after_dense
from kvplan.architectures.blocks.parts import (
    LAYER,
    SEPARATE,
    AttentionNames,
    Heads,
    Tensors,
    attention,
    even,
    linear,
    mlp,
    norm,
    norms,
    whole,
)
from kvplan.architectures.blocks.plain import BIAS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import CONV, FULL, SLIDING, Parts, Recipe, by_index, index_list
from kvplan.architectures.blocks.state_space import short_convolution
from kvplan.architectures.blocks.tower import Raw, placed, siglip, tower_layers, vision_view, wrapper_view
from kvplan.architectures.blocks.words import by_word, layer_words
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import ShortConvolution
from kvplan.weights.inventory import Placed


def _conv(view: ConfigView) -> Parts:
    return (ShortConvolution(view.integer("hidden_size"), view.integer("conv_L_cache")),)


def _lfm2(view: ConfigView, count: int) -> list[str]:
    given = index_list(view, "full_attn_idxs")
    return [FULL if given is None or index in given else CONV for index in range(count)]


def _lfm2_moe(view: ConfigView, count: int) -> list[str]:
    raise view.refuse("layer_types", "is needed: the class has no pattern of its own")


_CONV_OR_ATTENTION = {**ATTENTION, CONV: _conv}

LFM2_NAMES = AttentionNames(
    output="self_attn.out_proj", query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm"
)


def lfm2_tensors(view: ConfigView) -> Decoder:
    """Short convolutions and attention, a perceptron whose width may be adjusted."""
    hidden = hidden_size(view)
    words = layer_words(view, "layer_types")
    if words is None:
        attends = view.sequence("full_attn_idxs")
        if attends is None:
            raise view.missing("layer_types")
        words = ["full_attention" if index in attends else "conv" for index in range(view.num_layers())]
    count = int(num_heads(view))
    heads = Heads(count, int(num_kv_heads(view)), hidden // count, hidden // count)
    forward = mlp("feed_forward", hidden, _lfm2_width(view), names=("w1", "w3", "w2"))
    around = norms(("operator_norm", "ffn_norm"), whole("hidden_size", hidden))
    kernel, bias = int(view.integer("conv_L_cache")), view.flag("conv_bias")
    wide = int(view.optional_integer("conv_dim") or hidden)

    def make(word: str) -> Tensors:
        if word == "full_attention":
            return attention(heads, hidden, names=LFM2_NAMES, qk_norm="head") + forward + around
        return short_convolution("conv", wide, kernel, bias=bias) + forward + around

    frame = Frame(final_norm="model.embedding_norm", embed_everywhere=True, tied=True)
    return Decoder(frame, by_word(words, make))


def _lfm2_width(view: ConfigView) -> int:
    """2/3 of intermediate_size, times block_ffn_dim_multiplier, up to a multiple of block_multiple_of."""
    width = int(view.integer("intermediate_size", "block_ff_dim"))
    if view.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = int(view.number("block_ffn_dim_multiplier", default=1, lowest=1e-3, highest=1e3) * width)
        step = int(view.optional_integer("block_multiple_of") or 256)
        width = step * (-(-width // step))
    return width


LFM2_MOE = Moe(
    experts="feed_forward.experts",
    gate="feed_forward.gate",
    layer_is_sparse=after_dense,
    correction="feed_forward.expert_bias",
    correction_if="use_expert_bias",
)


def lfm_more_tensors(view: ConfigView) -> Decoder:
    """LFM2's convolutions and attention with experts after the first layers; LFM3: gates, sandwich norms."""
    hidden, newest = hidden_size(view), view.model_type == "lfm3"
    words = layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    heads = heads_of(view)
    model = whole("hidden_size", hidden)
    around = norms(("operator_norm", "ffn_norm"), model)
    if newest and view.flag("use_sandwich_norm", default=True):
        around += norms(("post_operator_norm", "post_ffn_norm"), model)
    dense = mlp("feed_forward", hidden, int(view.integer("intermediate_size")), names=("w1", "w3", "w2"))
    kernel, bias = int(view.integer("conv_L_cache")), view.flag("conv_bias")
    gated = newest and view.flag("use_attention_gate", default=True)
    attends = newest and view.flag(BIAS)

    @lru_cache(maxsize=8)
    def layer(word: str, sparse: bool) -> Tensors:
        if word == "conv":
            mixer = short_convolution("conv", hidden, kernel, bias=bias)
        elif word in ("full_attention", "sliding_attention"):
            names = SEPARATE if newest else LFM2_NAMES
            mixer = attention(heads, hidden, names=names, qk_norm="head", qkv_bias=attends, o_bias=attends)
            if gated:
                mixer += linear("self_attn.g_proj", even("num_attention_heads", heads.count), model)
        else:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
        return mixer + (LFM2_MOE.tensors(view) if sparse else dense) + around

    layers = tuple(layer(word, not newest and after_dense(view, index)) for index, word in enumerate(words))
    return Decoder(Frame(final_norm="model.embedding_norm", embed_everywhere=True), layers)


def _lfm2_tower(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP 2 over patches, downsampled, then two projections that every rank has whole."""
    vision = vision_view(raw)
    top, hidden = wrapper_view(raw), int(vision.integer("hidden_size"))
    factor, bias = (
        int(top.optional_integer("downsample_factor") or 2),
        top.flag("projector_bias", default=True),
    )
    inner = int(top.optional_integer("projector_hidden_size") or 2560)
    text = whole("hidden_size", hidden_size(view))
    wide, middle = (
        whole("vision width × downsample_factor²", hidden * factor**2),
        whole("projector width", inner),
    )
    made = siglip(vision, tower_layers(vision), patches_as_linear=True)
    if top.flag("projector_use_layernorm", default=True):
        made += norm("multi_modal_projector.layer_norm", wide, kind=LAYER)
    made += linear("multi_modal_projector.linear_1", middle, wide, bias=bias)
    return placed(made + linear("multi_modal_projector.linear_2", text, middle, bias=bias))


lineage("lfm2", layers=Recipe(_CONV_OR_ATTENTION, _lfm2), tensors=lfm2_tensors)
lineage("lfm2_moe", layers=Recipe(_CONV_OR_ATTENTION, _lfm2_moe), tensors=lfm_more_tensors)
lineage("lfm2_vl", tower=_lfm2_tower)
lineage(
    "lfm3",
    layers=Recipe(
        _CONV_OR_ATTENTION,
        by_index(lambda i, n: FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV),
    ),
    tensors=lfm_more_tensors,
)
