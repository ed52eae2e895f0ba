"""Architectures with a layout of their own: GPT-OSS, DBRX, Llama 4, Laguna, MiMo-V2, Nemotron-H and -NAS.

Source: vllm-project/vllm vllm/model_executor/models/ (0.32), the file named like the model type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.layers.decoder import head_dim, num_heads, num_kv_heads
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.hybrids import MIXER_NAMES, by_word
from kvplan.architectures.lineages.tensors.moe import Moe, by_types, shared_by_width
from kvplan.architectures.lineages.tensors.parts import (
    Heads,
    Tensors,
    attention,
    even,
    experts,
    fused,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import Mamba2Sizes, mamba2
from kvplan.weights.inventory import ROUTER_FLOAT32, Split


@decoder("gpt_oss")
def gpt_oss(view: ConfigView) -> Decoder:
    """Attention with biases and one sink a head, experts with biases, a router with one."""
    hidden, count = hidden_size(view), int(view.integer("num_local_experts", "num_experts"))
    layer = attention(heads_of(view), hidden, qkv_bias=True, o_bias=True)
    layer += vector("self_attn.sinks", even("num_attention_heads", int(num_heads(view))))
    layer += router("mlp.router", count, hidden, bias=True)
    layer += experts("mlp.experts", count, hidden, int(view.integer("intermediate_size")), bias=True)
    layer += norms(TWO_NORMS, whole("hidden_size", hidden))
    return Decoder(Frame(everywhere=True), (layer,) * int(view.num_layers()))


def _inner(view: ConfigView, key: str) -> Mapping[str, Any]:
    """A nested object of settings, empty where there is none."""
    return view.mapping(key) or {}


@decoder("dbrx")
def dbrx(view: ConfigView) -> Decoder:
    """Attention inside a block with two norms without bias, and experts of ffn_config."""
    hidden, heads = int(view.integer("d_model")), int(view.integer("n_heads"))
    attn, ffn = _inner(view, "attn_config"), _inner(view, "ffn_config")
    kv = check_integer(attn.get("kv_n_heads"), "attn_config.kv_n_heads")
    count = check_integer(ffn.get("moe_num_experts"), "ffn_config.moe_num_experts")
    wide = check_integer(ffn.get("ffn_hidden_size"), "ffn_config.ffn_hidden_size")
    width = hidden // heads
    names = fused("norm_attn_norm.attn", "Wqkv", "out_proj")
    layer = attention(Heads(heads, kv, width, width), hidden, names=names)
    layer += router("ffn.router.layer", count, hidden) + experts("ffn.experts", count, hidden, wide)
    layer += norms(("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"), whole("d_model", hidden))
    frame = Frame(
        layers="transformer.blocks", embed="transformer.wte", final_norm="transformer.norm_f", everywhere=True
    )
    return Decoder(frame, (layer,) * int(view.num_layers("n_layers")))


LLAMA4_MOE = Moe(
    experts="feed_forward.experts",
    gate="feed_forward.router",
    count=("num_local_experts",),
    width=("intermediate_size",),
    shared=shared_by_width("intermediate_size"),
    shared_path="feed_forward.shared_expert",
    shared_split=Split.SHARED_EXPERT,
)


@decoder("llama4_text")
def llama4(view: ConfigView) -> Decoder:
    """Every interleave_moe_layer_step-th layer has experts and a shared one, the others a perceptron."""
    hidden, count = hidden_size(view), int(view.num_layers())
    step = view.optional_integer("interleave_moe_layer_step", default=1, lowest=0) or 0
    mixer = attention(heads_of(view), hidden) + norms(TWO_NORMS, whole("hidden_size", hidden))

    def make(word: str) -> Tensors:
        if word == "experts":
            return mixer + LLAMA4_MOE.tensors(view)
        return mixer + mlp("feed_forward", hidden, int(view.integer("intermediate_size_mlp")))

    words = ["experts" if step and (index + 1) % step == 0 else "dense" for index in range(count)]
    return Decoder(Frame(), by_word(words, make))


LAGUNA_MOE = Moe(
    correction="mlp.experts.e_score_correction_bias",
    shared=shared_by_width("shared_expert_intermediate_size"),
    shared_path="mlp.shared_expert",
)


@decoder("laguna")
def laguna(view: ConfigView) -> Decoder:
    """Heads by layer, a gate by head or by channel, dense and sparse layers by mlp_layer_types."""
    hidden, count = hidden_size(view), int(view.num_layers())
    by_layer = view.sequence("num_attention_heads_per_layer") or [int(num_heads(view))] * count
    gating, width, kv = view.get("gating"), int(head_dim(view)), int(num_kv_heads(view))
    bias, model = view.flag("attention_bias"), whole("hidden_size", hidden)
    around = norms(TWO_NORMS, model)

    @lru_cache(maxsize=64)
    def layer(heads: int, sparse: bool) -> Tensors:
        made = attention(Heads(heads, kv, width, width), hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
        if gating:
            gate = even("num_attention_heads", heads)
            per_head = gating is True or gating == "per-head"
            made += linear("self_attn.g_proj", gate if per_head else (gate, whole("head_dim", width)), model)
        made += (
            LAGUNA_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return made + around

    if len(by_layer) != count:
        raise view.refuse("num_attention_heads_per_layer", f"{len(by_layer)} entries for {count} layers")
    where = f"{view.path}num_attention_heads_per_layer"
    layers = tuple(
        layer(check_integer(heads, where), by_types(view, index)) for index, heads in enumerate(by_layer)
    )
    return Decoder(Frame(), layers)


MIMO_MOE = Moe(
    count=("n_routed_experts",), correction="mlp.gate.e_score_correction_bias", gate_dtype="float32"
)


@decoder("mimo_v2", "mimo_v2_flash")
def mimo_v2(view: ConfigView) -> Decoder:
    """hybrid_layer_pattern 1: windowed, own heads, a sink a head; moe_layer_freq: which have experts."""
    hidden, count = hidden_size(view), int(view.num_layers())
    pattern, freq = view.sequence("hybrid_layer_pattern"), view.sequence("moe_layer_freq")
    for key, values in (("hybrid_layer_pattern", pattern), ("moe_layer_freq", freq)):
        if values is None or len(values) != count:
            raise view.refuse(key, "a list with one entry a layer is needed")
    bias = view.flag("attention_bias")
    around = norms(TWO_NORMS, whole("hidden_size", hidden))

    def heads(prefix: str) -> Heads:
        width = int(view.integer(f"{prefix}head_dim"))
        return Heads(
            int(view.integer(f"{prefix}num_attention_heads")),
            int(view.integer(f"{prefix}num_key_value_heads")),
            width,
            int(view.optional_integer(f"{prefix}v_head_dim") or width),
        )

    @lru_cache(maxsize=4)
    def layer(windowed: bool, sparse: bool) -> Tensors:
        own = heads("swa_" if windowed else "")
        made = attention(own, hidden, qkv_bias=bias)
        if windowed and view.flag("add_swa_attention_sink_bias"):
            made += vector("self_attn.attention_sink_bias", even("num_attention_heads", own.count))
        made += (
            MIMO_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return made + around

    return Decoder(
        Frame(), tuple(layer(kind == 1, bool(moe)) for kind, moe in zip(pattern or (), freq or ()))
    )


NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
# The library's words of today for the same layers.
NEMOTRON_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}


@decoder("nemotron_h")
def nemotron_h(view: ConfigView) -> Decoder:
    """One mixer a layer: Mamba-2, attention, a plain perceptron or experts (behind a latent projection)."""
    pattern = view.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        words = [NEMOTRON_LETTERS.get(letter, letter) for letter in pattern]
    else:
        given = [str(word) for word in view.sequence("layers_block_type", "layer_types") or ()]
        words = [NEMOTRON_WORDS.get(word, word) for word in given]
    if not words:
        raise view.missing("hybrid_override_pattern")
    hidden = hidden_size(view)
    around = norm("norm", whole("hidden_size", hidden))
    bias = view.flag("mlp_bias")

    def make(word: str) -> Tensors:
        if word == "attention":
            return attention(heads_of(view), hidden, names=MIXER_NAMES) + around
        if word == "mlp":
            wide = view.get("intermediate_size")
            if isinstance(wide, list):
                if len(set(wide)) != 1:
                    raise view.refuse("intermediate_size", "a list of different widths")
                wide = wide[0]
            width = check_integer(wide, "intermediate_size")
            return mlp("mixer", hidden, width, gated=False, bias=bias) + around
        if word == "moe":
            return _nemotron_moe(view, hidden, bias=bias) + around
        if word != "mamba":
            raise view.refuse("hybrid_override_pattern", f"unknown layer {word!r}")
        heads = int(view.integer("mamba_num_heads"))
        sizes = Mamba2Sizes(
            hidden=hidden,
            inner=heads * int(view.integer("mamba_head_dim")),
            heads=heads,
            groups=int(view.integer("n_groups")),
            state=int(view.integer("ssm_state_size")),
            kernel=int(view.integer("conv_kernel")),
            bias=view.flag("use_bias"),
            conv_bias=view.flag("use_conv_bias", default=True),
        )
        return mamba2("mixer", sizes) + around

    frame = Frame(
        layers="backbone.layers", embed="backbone.embeddings", final_norm="backbone.norm_f", everywhere=True
    )
    return Decoder(frame, by_word(words, make))


def _nemotron_moe(view: ConfigView, hidden: int, *, bias: bool) -> Tensors:
    count, width = int(view.integer("n_routed_experts")), int(view.integer("moe_intermediate_size"))
    made = router(
        "mixer.gate",
        count,
        hidden,
        dtype=ROUTER_FLOAT32,
        correction="mixer.gate.e_score_correction_bias",
    )
    inner = int(view.optional_integer("moe_latent_size") or hidden)
    if inner != hidden:
        model, latent = whole("hidden_size", hidden), whole("moe_latent_size", inner)
        made += linear("mixer.fc1_latent_proj", latent, model, bias=bias)
        made += linear("mixer.fc2_latent_proj", model, latent, bias=bias)
    made += experts("mixer.experts", count, inner, width, gated=False)
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)
    if shared:
        wide = shared * int(view.integer("moe_shared_expert_intermediate_size"))
        made += mlp("mixer.shared_experts", hidden, wide, gated=False, split=Split.SHARED_EXPERT)
    return made


@decoder("nemotron-nas")
def nemotron_nas(view: ConfigView) -> Decoder:
    """Puzzle: each block says how many query heads share a K and V head and how wide its perceptron is.

    The width is 2/3 × ffn_mult × hidden_size, rounded up to a multiple of 256.
    """
    hidden, count = hidden_size(view), int(num_heads(view))
    width, model = hidden // count, whole("hidden_size", hidden)
    layers = []
    for index, block in enumerate(view.sequence("block_configs") or ()):
        where = f"block_configs[{index}]"
        attn, ffn = (block.get(key) if isinstance(block, Mapping) else None for key in ("attention", "ffn"))
        if not isinstance(attn, Mapping) or not isinstance(ffn, Mapping):
            raise view.refuse(where, "no attention or ffn object")
        if attn.get("replace_with_linear") or ffn.get("replace_with_linear") or attn.get("sparsify"):
            raise view.refuse(where, "the weights of a replaced or sparsified block are not known")
        made: Tensors = ()
        if not attn.get("no_op"):
            group = check_integer(
                attn.get("n_heads_in_group"), f"{where}.attention.n_heads_in_group", 1, count
            )
            heads = Heads(count, count // group, width, width)
            made += attention(heads, hidden) + norm("input_layernorm", model)
        if not ffn.get("no_op"):
            times = ffn.get("ffn_mult")
            if isinstance(times, bool) or not isinstance(times, (int, float)) or not 0 < times < 1000:
                raise view.refuse(f"{where}.ffn.ffn_mult", f"{times!r} is not a factor")
            wide = -(-int(2 * times * hidden / 3) // 256) * 256
            made += mlp("mlp", hidden, wide) + norm("post_attention_layernorm", model)
        layers.append(made)
    if len(layers) != int(view.num_layers()):
        raise view.refuse("block_configs", f"{len(layers)} entries for {view.num_layers()} layers")
    return Decoder(Frame(), tuple(layers))
