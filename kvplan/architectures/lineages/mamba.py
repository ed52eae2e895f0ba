"""Mamba, Mamba-2, Falcon-Mamba and Jamba.

Sources: huggingface/transformers 5.23.0 models/{mamba,mamba2,falcon_mamba,jamba}; vllm-project/vllm 0.32
vllm/model_executor/models/ mamba.py, mamba2.py, jamba.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import full
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Tensors, attention, experts, mlp, norm, norms, router, whole
from kvplan.architectures.blocks.plain import expansion, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Recipe
from kvplan.architectures.blocks.state_space import (
    BLOCK_TYPE_KEYS,
    JAMBA_NAMES,
    Mamba2Sizes,
    inner_width,
    mamba1,
    mamba1_parts,
    mamba2,
    mamba_hidden,
    step_rank,
)
from kvplan.architectures.blocks.words import ATTENTION_WORDS, layer_words
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import Mamba1, Mamba2
from kvplan.model import Layer


def mamba_layers(view: ConfigView) -> list[Layer]:
    """d_inner = intermediate_size where the file has it, else expand * hidden_size."""
    inner = view.optional_integer("intermediate_size") or inner_width(view, "expand")
    part = Mamba1(inner, view.integer("state_size"), view.integer("conv_kernel"))
    return [Layer((part,))] * view.num_layers()


def mamba2_layers(view: ConfigView) -> list[Layer]:
    part = Mamba2(
        num_heads=view.integer("num_heads"),
        head_dim=view.integer("head_dim"),
        state_size=view.integer("state_size"),
        n_groups=view.integer("n_groups"),
        conv_kernel=view.integer("conv_kernel"),
    )
    if part.num_heads * part.head_dim != inner_width(view, "expand"):
        raise view.refuse("num_heads", "num_heads * head_dim is not expand * hidden_size")
    return [Layer((part,))] * view.num_layers()


def _jamba(view: ConfigView, count: int) -> list[str]:
    period = view.integer("attn_layer_period")
    offset = view.integer("attn_layer_offset", lowest=0)
    return [FULL if index % period == offset else LINEAR for index in range(count)]


BACKBONE = Frame(
    layers="backbone.layers", embed="backbone.embeddings", final_norm="backbone.norm_f", everywhere=True
)


def pure_mamba_tensors(view: ConfigView) -> Decoder:
    """Mamba-1 layers only; Falcon's inner norms have no weight."""
    hidden = hidden_size(view)
    inner = int(view.optional_integer("intermediate_size") or expansion(view, "expand") * hidden)
    rank = step_rank(view, "time_step_rank")
    layer = mamba1(
        "mixer",
        hidden,
        inner,
        int(view.integer("state_size")),
        int(view.integer("conv_kernel")),
        rank,
        bias=view.flag("use_bias"),
        conv_bias=view.flag("use_conv_bias", default=True),
    ) + norm("norm", whole("hidden_size", hidden))
    return Decoder(BACKBONE, (layer,) * int(view.num_layers()))


def pure_mamba2_tensors(view: ConfigView) -> Decoder:
    """Mamba-2 layers only."""
    hidden = hidden_size(view)
    inner = int(view.optional_integer("intermediate_size") or expansion(view, "expand") * hidden)
    sizes = Mamba2Sizes(
        hidden=hidden,
        inner=inner,
        heads=int(view.integer("num_heads")),
        groups=int(view.integer("n_groups")),
        state=int(view.integer("state_size")),
        kernel=int(view.integer("conv_kernel")),
        bias=view.flag("use_bias"),
        conv_bias=view.flag("use_conv_bias", default=True),
    )
    layer = mamba2("mixer", sizes) + norm("norm", whole("hidden_size", hidden))
    return Decoder(BACKBONE, (layer,) * int(view.num_layers()))


def _every(view: ConfigView, period: str, offset: str, default: tuple[int, int], index: int) -> bool:
    every = view.optional_integer(period, default=default[0]) or default[0]
    start = view.optional_integer(offset, default=default[1], lowest=0)
    return index % every == (default[1] if start is None else int(start))


def jamba_tensors(view: ConfigView) -> Decoder:
    """Attention every attn_layer_period layers, experts every expert_layer_period, Mamba-1 elsewhere."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = layer_words(view, "layers_block_type", "layer_types")
    total, width = int(view.optional_integer("num_experts") or 1), int(view.integer("intermediate_size"))
    heads = heads_of(view)
    around = norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    rank = step_rank(view, "mamba_dt_rank")

    @lru_cache(maxsize=4)
    def layer(attends: bool, sparse: bool) -> Tensors:
        mixer = (
            attention(heads, hidden, names=JAMBA_NAMES)
            if attends
            else mamba1(
                "mamba",
                hidden,
                mamba_hidden(view),
                int(view.integer("mamba_d_state")),
                int(view.integer("mamba_d_conv")),
                rank,
                bias=view.flag("mamba_proj_bias"),
                conv_bias=view.flag("mamba_conv_bias", default=True),
                inner_norms=True,
            )
        )
        forward = mlp("feed_forward", hidden, width)
        if sparse:
            forward = router("feed_forward.router", total, hidden)
            forward += experts("feed_forward.experts", total, hidden, width)
        return mixer + forward + around

    layers = []
    for index in range(count):
        attends = (
            words[index] in ATTENTION_WORDS
            if words
            else _every(view, "attn_layer_period", "attn_layer_offset", (8, 4), index)
        )
        sparse = total > 1 and _every(view, "expert_layer_period", "expert_layer_offset", (2, 1), index)
        layers.append(layer(attends, sparse))
    return Decoder(Frame(final_norm="model.final_layernorm", everywhere=True), tuple(layers))


lineage("mamba", "falcon_mamba", layers=mamba_layers, tensors=pure_mamba_tensors)
lineage("mamba2", layers=mamba2_layers, tensors=pure_mamba2_tensors)
lineage(
    "jamba",
    layers=Recipe({FULL: full, LINEAR: mamba1_parts}, _jamba, keys=BLOCK_TYPE_KEYS),
    tensors=jamba_tensors,
)
