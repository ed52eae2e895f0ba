"""Decoders that mix attention with state-space layers or convolutions.

Source: vllm-project/vllm vllm/model_executor/models/ (0.32): jamba.py, bamba.py, granitemoehybrid.py,
falcon_h1.py, nemotron_h.py, lfm2.py, mamba.py, mamba2.py, qwen3_next.py, qwen3_5.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads, num_kv_heads
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.moe import Moe, shared_by_width
from kvplan.architectures.lineages.tensors.parts import (
    AttentionNames,
    Heads,
    Tensors,
    attention,
    experts,
    mlp,
    norm,
    norms,
    router,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, expansion, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import (
    Mamba2Sizes,
    mamba1,
    mamba2,
    short_convolution,
)

JAMBA_NAMES = AttentionNames("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MIXER_NAMES = AttentionNames("mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj")
LFM2_NAMES = AttentionNames(
    output="self_attn.out_proj", query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm"
)
BACKBONE = Frame(
    layers="backbone.layers", embed="backbone.embeddings", final_norm="backbone.norm_f", everywhere=True
)
ATTENTION_WORDS = ("attention", "full_attention")


def layer_words(view: ConfigView, *keys: str) -> list[str] | None:
    """The list of layer kinds under the first of these keys, checked against the number of layers."""
    words = view.sequence(*keys)
    if words is None:
        return None
    if len(words) != int(view.num_layers()):
        raise view.refuse(keys[0], f"{len(words)} entries for {view.num_layers()} layers")
    return [str(word) for word in words]


def by_word(words: list[str], make: Callable[[str], Tensors]) -> tuple[Tensors, ...]:
    """Each kind of layer made once."""
    made = {word: make(word) for word in dict.fromkeys(words)}
    return tuple(made[word] for word in words)


def _step_rank(view: ConfigView, key: str) -> int:
    """The rank of the time step's projection; "auto": hidden_size / 16, rounded up."""
    if view.get(key, default="auto") == "auto":
        return -(-hidden_size(view) // 16)
    return int(view.integer(key))


def _mamba_hidden(view: ConfigView) -> int:
    """mamba_expand × hidden_size."""
    return int(expansion(view, "mamba_expand") * view.integer("hidden_size"))


def bamba_mixer(view: ConfigView, inner: int, path: str = "mamba") -> Tensors:
    """Mamba-2 under the keys of Bamba, Granite and Falcon-H1."""
    return mamba2(
        path,
        Mamba2Sizes(
            hidden=hidden_size(view),
            inner=inner,
            heads=int(view.integer("mamba_n_heads")),
            groups=int(view.integer("mamba_n_groups")),
            state=int(view.integer("mamba_d_state")),
            kernel=int(view.integer("mamba_d_conv")),
            bias=view.flag("mamba_proj_bias"),
            conv_bias=view.flag("mamba_conv_bias", default=True),
            norm=view.flag("mamba_rms_norm", default=True),
        ),
    )


@decoder("mamba", "falcon_mamba")
def pure_mamba(view: ConfigView) -> Decoder:
    """Mamba-1 layers only; Falcon's inner norms have no weight."""
    hidden = hidden_size(view)
    inner = int(view.optional_integer("intermediate_size") or expansion(view, "expand") * hidden)
    rank = _step_rank(view, "time_step_rank")
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


@decoder("mamba2")
def pure_mamba2(view: ConfigView) -> Decoder:
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


@decoder("jamba")
def jamba(view: ConfigView) -> Decoder:
    """Attention every attn_layer_period layers, experts every expert_layer_period, Mamba-1 elsewhere."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = layer_words(view, "layers_block_type", "layer_types")
    total, width = int(view.optional_integer("num_experts") or 1), int(view.integer("intermediate_size"))
    heads = Heads(
        int(num_heads(view)),
        int(num_kv_heads(view)),
        hidden // int(num_heads(view)),
        hidden // int(num_heads(view)),
    )
    around = norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    rank = _step_rank(view, "mamba_dt_rank")

    @lru_cache(maxsize=4)
    def layer(attends: bool, sparse: bool) -> Tensors:
        mixer = (
            attention(heads, hidden, names=JAMBA_NAMES)
            if attends
            else mamba1(
                "mamba",
                hidden,
                _mamba_hidden(view),
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


GRANITE_MOE = Moe(
    experts="block_sparse_moe.experts",
    gate="block_sparse_moe.gate",
    count=("num_local_experts",),
    width=("intermediate_size",),
)


@decoder("granitemoehybrid")
def granite(view: ConfigView) -> Decoder:
    """Mamba-2 or attention, then experts and a shared perceptron."""
    hidden = hidden_size(view)
    words = layer_words(view, "layers_block_type", "layer_types")
    if words is None:
        raise view.missing("layer_types")
    beside = shared_by_width("shared_intermediate_size")(view)
    forward: Tensors = ()
    if view.optional_integer("num_local_experts", default=0, lowest=0):
        forward += GRANITE_MOE.tensors(view)
    if beside:
        names = ("input_linear", "input_linear", "output_linear")
        forward += mlp("shared_mlp", hidden, beside, names=names)
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    bias = view.flag("attention_bias")

    def make(word: str) -> Tensors:
        mixer = (
            attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
            if word in ATTENTION_WORDS
            else bamba_mixer(view, _mamba_hidden(view))
        )
        return mixer + forward + around

    return Decoder(Frame(everywhere=True), by_word(words, make))


@decoder("bamba")
def bamba(view: ConfigView) -> Decoder:
    """Mamba-2, attention at attn_layer_indices, a perceptron in every layer."""
    hidden, count = hidden_size(view), int(view.num_layers())
    attends = set(view.sequence("attn_layer_indices") or ())
    words = ["attention" if index in attends else "mamba" for index in range(count)]
    forward = mlp("feed_forward", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    around = norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    bias = view.flag("attention_bias")

    def make(word: str) -> Tensors:
        mixer = (
            attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
            if word == "attention"
            else bamba_mixer(view, _mamba_hidden(view))
        )
        return mixer + forward + around

    return Decoder(Frame(final_norm="model.final_layernorm"), by_word(words, make))


@decoder("falcon_h1")
def falcon_h1(view: ConfigView) -> Decoder:
    """Attention and Mamba-2 side by side in every layer."""
    hidden = hidden_size(view)
    inner = view.optional_integer("mamba_d_ssm")
    bias = view.flag("attention_bias")
    layer = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
    layer += bamba_mixer(view, int(inner) if inner is not None else _mamba_hidden(view))
    layer += mlp("feed_forward", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    layer += norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    frame = Frame(final_norm="model.final_layernorm")
    return Decoder(frame, (layer,) * int(view.num_layers()))


@decoder("lfm2")
def lfm2(view: ConfigView) -> Decoder:
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
