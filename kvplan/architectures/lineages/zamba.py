"""Zamba and Zamba2: Mamba layers and attention blocks whose weights are shared.

Sources: huggingface/transformers 5.23.0 models/{zamba,zamba2}; vllm-project/vllm 0.32
vllm/model_executor/models/zamba2.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import num_heads, num_kv_heads
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import Tensors, even, keyed, linear, mlp, norm, vector, whole
from kvplan.architectures.blocks.plain import expansion, hidden_size
from kvplan.architectures.blocks.recipe import HYBRID, LINEAR, Recipe
from kvplan.architectures.blocks.state_space import (
    Mamba2Sizes,
    inner_width,
    mamba1_part,
    mamba1_parts,
    mamba2,
)
from kvplan.architectures.blocks.words import by_word, layer_words
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, Mamba2
from kvplan.weights.inventory import Dim, Place, Placed, Split


def _zamba_attention(view: ConfigView) -> FullAttention:
    """The shared block attends over [hidden, embedding]: heads are twice as wide."""
    width = view.optional_integer("attention_head_dim") or derived(
        2 * view.integer("hidden_size") // num_heads(view), "2 * hidden_size // num_attention_heads"
    )
    return FullAttention(num_kv_heads(view), width)


def _zamba_pattern(view: ConfigView, count: int) -> list[str]:
    period = view.integer("attn_layer_period")
    offset = view.integer("attn_layer_offset", lowest=0)
    rest = [HYBRID if index % period == offset else LINEAR for index in range(max(count - 3, 0))]
    return [LINEAR, LINEAR, HYBRID, *rest][:count]


_ZAMBA2_54 = (
    [LINEAR]
    + ([LINEAR] * 5 + [HYBRID]) * 7
    + [LINEAR] * 4
    + [HYBRID]
    + [LINEAR] * 3
    + [HYBRID]
    + [LINEAR] * 2
)


def _zamba2_pattern(view: ConfigView, count: int) -> list[str]:
    if count != len(_ZAMBA2_54):
        raise view.refuse(
            "layers_block_type", f"is needed for {count} layers (the class knows a list of 54 only)"
        )
    return list(_ZAMBA2_54)


def _zamba2_mamba(view: ConfigView) -> Mamba2:
    heads = view.integer("n_mamba_heads")
    width = derived(inner_width(view, "mamba_expand") // heads, "mamba_expand * hidden_size // n_mamba_heads")
    return Mamba2(
        num_heads=heads,
        head_dim=width,
        state_size=view.integer("mamba_d_state"),
        n_groups=view.integer("mamba_ngroups"),
        conv_kernel=view.integer("mamba_d_conv"),
    )


def zamba2_tensors(view: ConfigView) -> Decoder:
    """Mamba-2 layers; hybrid ones also lead through one of num_mem_blocks shared attention blocks."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = [str(word) for word in view.sequence("layers_block_type", "layer_types") or ()]
    if len(words) != count:
        raise view.refuse("layers_block_type", f"{len(words)} entries for {count} layers")
    model = whole("hidden_size", hidden)
    inner = int(expansion(view, "mamba_expand") * hidden)
    heads = int(view.integer("n_mamba_heads"))
    sizes = Mamba2Sizes(
        hidden=hidden,
        inner=inner,
        heads=heads,
        groups=int(view.integer("mamba_ngroups")),
        state=int(view.integer("mamba_d_state")),
        kernel=int(view.integer("mamba_d_conv")),
        bias=view.flag("add_bias_linear"),
        conv_bias=view.flag("use_conv_bias", default=True),
    )
    plain = mamba2("mamba", sizes) + norm("input_layernorm", model)
    hybrid = linear("linear", model, model)
    hybrid += mamba2("mamba_decoder.mamba", sizes) + norm("mamba_decoder.input_layernorm", model)
    mixed = ("hybrid", "hybrid_attention", "hybrid_mamba")
    layers = tuple(hybrid if word in mixed else plain for word in words)
    hybrids = sum(word in mixed for word in words)
    frame = Frame(
        final_norm="model.final_layernorm",
        everywhere=True,
        extra=lambda seen: _zamba2_shared(seen, hidden, hybrids),
    )
    return Decoder(frame, layers)


def _zamba2_shared(view: ConfigView, hidden: int, hybrids: int) -> list[Placed]:
    """The shared blocks, each counted once, and an adapter of its own for every hybrid layer."""
    blocks = int(view.optional_integer("num_mem_blocks") or 1)
    wide = int(view.optional_integer("attention_hidden_size") or 2 * hidden)
    heads, width = (
        int(num_heads(view)),
        int(view.optional_integer("attention_head_dim") or wide // int(num_heads(view))),
    )
    inner, rank = int(view.integer("intermediate_size")), int(view.integer("adapter_rank"))
    low, bias = even("adapter_rank", rank), view.flag("add_bias_linear")
    made: Tensors = ()
    for block in range(blocks):
        path = f"model.shared_transformer.{block}"
        both, into = (
            (even("num_attention_heads", heads), whole("attention_head_dim", width)),
            whole("attention_hidden_size", wide),
        )
        for name in ("q_proj", "k_proj", "v_proj"):
            made += linear(f"{path}.self_attn.{name}", both, into)
        made += linear(f"{path}.self_attn.o_proj", whole("hidden_size", hidden), both)
        names = ("gate_up_proj", "gate_up_proj", "down_proj")
        made += mlp(f"{path}.feed_forward", hidden, inner, bias=bias, names=names)
        made += norm(f"{path}.input_layernorm", into) + norm(
            f"{path}.pre_ff_layernorm", whole("hidden_size", hidden)
        )
    for index in range(hybrids):
        wider = (whole("gate and up", 2), even("intermediate_size", inner))
        adapters = [("feed_forward.gate_up_proj_adapter_list", hidden, wider)]
        if view.flag("use_shared_attention_adapter"):
            out_of = (whole("one", 1), even("attention_hidden_size", wide))
            adapters += [(f"self_attn.linear_{name}_adapter_list", wide, out_of) for name in "qkv"]
        for name, into_width, out in adapters:
            made += linear(f"model.{name}.{index}.A", low, whole("input width", into_width))
            made += linear(f"model.{name}.{index}.B", out, whole("adapter_rank", rank))
    return at(Place.EVERY, made)


def zamba_tensors(view: ConfigView) -> Decoder:
    """Mamba layers by head; hybrid ones lead through one attention block that all of them share."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    words = layer_words(view, "layers_block_type", "layer_types")
    if words is None:
        raise view.missing("layers_block_type")
    number = int(view.integer("n_mamba_heads"))
    inner = int(view.factor("mamba_expand", 2) * hidden)
    heads, width = even("n_mamba_heads", number), whole("mamba head width", inner // number)
    state, rank = keyed(view, "mamba_d_state"), view.get("mamba_dt_rank", default="auto")
    low = whole("mamba_dt_rank", -(-hidden // 16) if rank == "auto" else int(view.integer("mamba_dt_rank")))
    both = whole("mamba_dt_rank + 2 × mamba_d_state", low.value + 2 * state.value)
    bias = view.flag("mamba_proj_bias")

    def mixer(path: str) -> Tensors:
        made = linear(f"{path}.in_proj", (whole("gate and input", 2), heads, width), model, bias=bias)
        made += vector(f"{path}.conv1d", heads, width, keyed(view, "mamba_d_conv"))
        if view.flag("mamba_conv_bias", default=True):
            made += vector(f"{path}.conv1d.bias", heads, width)
        made += vector(f"{path}.x_proj_weight", heads, both, width)
        made += vector(f"{path}.dt_proj_weight", heads, width, low) + vector(
            f"{path}.dt_proj_bias", heads, width
        )
        made += vector(f"{path}.A_log", heads, width, state, dtype="float32") + vector(
            f"{path}.D", heads, width
        )
        return made + linear(f"{path}.out_proj", model, (heads, width), bias=bias)

    plain = mixer("mamba") + norm("input_layernorm", model)
    hybrid = mixer("mamba_decoder.mamba") + norm("mamba_decoder.input_layernorm", model)
    hybrid += linear("linear", model, model)
    layers = by_word(words, lambda word: hybrid if word == "hybrid" else plain)
    shared = _zamba_shared(view, hidden) if "hybrid" in words else []
    return Decoder(Frame(final_norm="model.final_layernorm", everywhere=True, extra=lambda _: shared), layers)


def _zamba_shared(view: ConfigView, hidden: int) -> list[Placed]:
    heads, kv = int(num_heads(view)), int(view.integer("num_key_value_heads"))
    wide = int(view.optional_integer("attention_hidden_size") or 2 * hidden)
    width = whole("attention_head_dim", int(view.optional_integer("attention_head_dim") or wide // heads))
    query, into = (even("num_attention_heads", heads), width), whole("attention_hidden_size", wide)
    pair = (Dim("num_key_value_heads", kv, Split.HEADS_KEPT), width)
    path = "model.shared_transf"
    made: Tensors = ()
    for name, rows in (("q_proj", query), ("k_proj", pair), ("v_proj", pair)):
        made += linear(f"{path}.self_attn.{name}", rows, into)
    made += linear(f"{path}.self_attn.o_proj", whole("hidden_size", hidden), query)
    made += mlp(f"{path}.feed_forward", hidden, int(view.integer("intermediate_size")))
    made += norm(f"{path}.input_layernorm", into) + norm(
        f"{path}.pre_ff_layernorm", whole("hidden_size", hidden)
    )
    return at(Place.EVERY, made)


lineage(
    "zamba",
    layers=Recipe(
        {LINEAR: mamba1_parts, HYBRID: lambda view: (_zamba_attention(view), mamba1_part(view))},
        _zamba_pattern,
        keys=("layers_block_type",),
    ),
    tensors=zamba_tensors,
)
lineage(
    "zamba2",
    layers=Recipe(
        {
            LINEAR: lambda view: (_zamba2_mamba(view),),
            HYBRID: lambda view: (_zamba_attention(view), _zamba2_mamba(view)),
        },
        _zamba2_pattern,
        keys=("layers_block_type",),
    ),
    tensors=zamba2_tensors,
)
