"""More mixtures of experts by model type.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py, against which tests/weights
hold every row. Routers and their correction biases in float32 where vllm-project/vllm 0.32 has the class and
keeps them so (afmoe.py, ernie45_moe.py, lfm2_moe.py).
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.tensors.dense_more import BIAS, ONE_NORM, QK_LAYERNORM, sinks
from kvplan.architectures.lineages.tensors.dense_table import EVERYWHERE, GLM_MOE, STEP_MOE
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.hybrids import LFM2_NAMES, by_word, layer_words
from kvplan.architectures.lineages.tensors.moe import (
    Moe,
    Sparse,
    after_dense,
    by_types_or,
    shared_by_count,
    shared_by_width,
)
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    SEPARATE,
    Tensors,
    attention,
    even,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import FOUR_NORMS, TWO_NORMS, Plain, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import DECODERS, Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import short_convolution
from kvplan.weights.inventory import Dim, Role, Split

FLOAT32 = "float32"
CORRECTION = "mlp.gate.e_score_correction_bias"
MIXTRAL_KEYS = {"count": ("num_local_experts",), "width": ("intermediate_size",)}


def _gate(view: ConfigView) -> Tensors:
    heads = heads_of(view)
    wide = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    return linear("self_attn.gate_proj", wide, whole("hidden_size", hidden_size(view)))


def _gate_and_bias(view: ConfigView) -> Tensors:
    return _gate(view) + vector("self_attn.gate_bias", even("num_attention_heads", heads_of(view).count))


def _interval(view: ConfigView, index: int) -> bool:
    """ERNIE: every moe_layer_interval-th layer between moe_layer_start_index and moe_layer_end_index."""
    every = view.optional_integer("moe_layer_interval", default=1) or 1
    first = view.optional_integer("moe_layer_start_index", default=1, lowest=0) or 0
    last = view.optional_integer("moe_layer_end_index", default=-1, lowest=-1)
    end = int(view.num_layers()) - 1 if last is None or last == -1 else int(last)
    return (index + 1) % every == 0 and first <= index <= end


def _shared(sparse: Sparse, *, correction: str = CORRECTION) -> Moe:
    """Routed experts with a correction bias, shared ones as wide as their number."""
    return Moe(
        layer_is_sparse=sparse,
        correction=correction,
        shared=shared_by_count("num_shared_experts", "n_shared_experts"),
        shared_bias="mlp_bias",
    )


GRANITE_SHARED = Moe(
    experts="block_sparse_moe.experts",
    gate="block_sparse_moe.router",
    shared=shared_by_width("shared_intermediate_size"),
    shared_path="shared_mlp",
    shared_names=("input_linear", "input_linear", "output_linear"),
    **MIXTRAL_KEYS,  # type: ignore[arg-type]
)
MOE: dict[str, Plain] = {
    "solar_open": Plain(qkv_bias=BIAS, qk_norm="head", qk_norm_if="use_qk_norm", moe=GLM_MOE),
    "mellum": Plain(
        frame=EVERYWHERE,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        moe=Moe(layer_is_sparse=STEP_MOE.layer_is_sparse),
    ),
    "flex_olmo": Plain(
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="full",
        moe=Moe(width=("intermediate_size",)),
    ),
    "granitemoe": Plain(qkv_bias=BIAS, o_bias=BIAS, moe=GRANITE_SHARED),
    "granitemoeshared": Plain(qkv_bias=BIAS, o_bias=BIAS, moe=GRANITE_SHARED),
    "granitemoe_swa": Plain(qkv_bias=BIAS, o_bias=BIAS, moe=GRANITE_SHARED, more=sinks),
    "phimoe": Plain(
        frame=Frame(norm=LAYER, head_bias="lm_head_bias"),
        norm=LAYER,
        qkv_bias=BIAS,
        o_bias=BIAS,
        moe=Moe(gate="mlp.router", **MIXTRAL_KEYS),  # type: ignore[arg-type]
    ),
    "aria_text": Plain(
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        moe=Moe(
            gate="mlp.router",
            count=("moe_num_experts",),
            width=("intermediate_size",),
            shared=shared_by_count("moe_num_shared_experts", width="intermediate_size"),
            shared_bias="mlp_bias",
        ),
    ),
    "afmoe": Plain(
        norms=(*TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=_gate,
        moe=Moe(
            gate="mlp.router.gate",
            gate_dtype=FLOAT32,
            layer_is_sparse=after_dense,
            correction="mlp.expert_bias",
            shared=shared_by_count("num_shared_experts"),
        ),
    ),
    "cohere2_moe": Plain(
        frame=EVERYWHERE,
        norms=ONE_NORM,
        qkv_bias=BIAS,
        o_bias=BIAS,
        width=("prefix_dense_intermediate_size",),
        moe=Moe(
            layer_is_sparse=by_types_or(0),
            width=("intermediate_size",),
            shared=shared_by_count("num_shared_experts", width="intermediate_size"),
        ),
    ),
    "ernie4_5_moe": Plain(
        frame=Frame(head_bias="use_bias"),
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        moe=Moe(
            count=("moe_num_experts",),
            gate_dtype=FLOAT32,
            layer_is_sparse=_interval,
            correction="mlp.gate.moe_statics.e_score_correction_bias",
            shared=shared_by_count("moe_num_shared_experts"),
            shared_bias="use_bias",
        ),
    ),
    "exaone_moe": Plain(qkv_bias=BIAS, o_bias=BIAS, qk_norm="head", moe=_shared(by_types_or(1))),
    "hy_v3": Plain(
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        qk_norm="head",
        moe=_shared(by_types_or(1), correction="mlp.e_score_correction_bias"),
    ),
    "beam": Plain(
        norms=FOUR_NORMS,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=_gate_and_bias,
        moe=Moe(layer_is_sparse=by_types_or(3), correction=CORRECTION),
    ),
    "flint": Plain(
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        more=sinks,
        moe=Moe(
            layer_is_sparse=STEP_MOE.layer_is_sparse,
            shared=shared_by_width("shared_expert_intermediate_size"),
            shared_path="mlp.shared_expert",
        ),
    ),
    "kolibri1": Plain(
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        qk_norm="head",
        moe=Moe(
            count=("num_experts", "num_local_experts"),
            correction=CORRECTION,
            shared=shared_by_width("shared_expert_intermediate_size"),
        ),
    ),
    "hunyuan_v1_moe": Plain(
        names=QK_LAYERNORM,
        qkv_bias=BIAS,
        o_bias=BIAS,
        qk_norm="head",
        moe=Moe(
            gate="mlp.gate.wg",
            width=("moe_intermediate_size", "intermediate_size"),
            shared=shared_by_width("intermediate_size"),
            shared_path="mlp.shared_mlp",
        ),
    ),
}
DECODERS.update(MOE)


@decoder("minimax")
def minimax(view: ConfigView) -> Decoder:
    """MiniMax-Text-01 in the library's words: layer_types instead of attn_type_list."""
    hidden = hidden_size(view)
    heads, model = heads_of(view), whole("hidden_size", hidden)
    wide = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    lightning = linear("self_attn.qkv_proj", (whole("query, key and value", 3), *wide), model)
    lightning += linear("self_attn.output_gate", wide, model) + norm("self_attn.norm", *wide)
    lightning += linear("self_attn.out_proj", model, wide)
    forward = Moe(**MIXTRAL_KEYS).tensors(view) + norms(TWO_NORMS, model)  # type: ignore[arg-type]
    mixers = {"linear_attention": lightning, "full_attention": attention(heads, hidden)}
    words = layer_words(view, "layer_types")
    if words is None:
        words = [
            "linear_attention" if (index + 1) % 2 else "full_attention" for index in range(view.num_layers())
        ]
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return Decoder(Frame(), by_word(words, lambda word: mixers[word] + forward))


@decoder("jetmoe")
def jetmoe(view: ConfigView) -> Decoder:
    """Experts of attention (query and output by expert, one key and value for all) and of perceptrons."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    kv, width = int(view.integer("num_key_value_heads")), int(view.integer("kv_channels"))
    count, inner = int(view.integer("num_local_experts")), int(view.integer("intermediate_size"))
    stack = Dim("num_local_experts", count, Split.EXPERTS)
    heads = (Dim("num_key_value_heads", kv, Split.EXPERT_WIDTH), whole("kv_channels", width))
    path = "self_attention.experts"
    layer = linear(f"{path}.input_linear", heads, model, role=Role.EXPERT, stack=stack)
    layer += linear(f"{path}.output_linear", model, heads, role=Role.EXPERT, stack=stack)
    layer += router(f"{path}.router.layer", count, hidden) + vector(f"{path}.bias", model)
    both = (
        whole("key and value", 2),
        Dim("num_key_value_heads", kv, Split.HEADS_KEPT),
        whole("kv_channels", width),
    )
    layer += linear("self_attention.kv_proj", both, model)
    layer += experts("mlp", count, hidden, inner)
    layer += router("mlp.router.layer", count, hidden) + vector("mlp.bias", model)
    return Decoder(Frame(), (layer + norms(TWO_NORMS, model),) * int(view.num_layers()))


LFM2_MOE = Moe(
    experts="feed_forward.experts",
    gate="feed_forward.gate",
    layer_is_sparse=after_dense,
    correction="feed_forward.expert_bias",
    correction_if="use_expert_bias",
)


@decoder("lfm2_moe", "lfm3")
def lfm_more(view: ConfigView) -> Decoder:
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
