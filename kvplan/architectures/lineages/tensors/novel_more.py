"""More layouts that no other file has: Doge, HRM, Zaya, xLSTM, RWKV, Zamba, OLMo Hybrid, Inkling, Qwen4-Exp.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py, against which tests/weights
hold every rule. No engine of kvplan's has a class of its own for most of them; heads and widths are divided
as engines divide every decoder's.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.tensors.delta_nets import TOKEN_MOE
from kvplan.architectures.lineages.tensors.dense_more import BIAS, NONE
from kvplan.architectures.lineages.tensors.dense_table import all_heads
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.hybrids import by_word, layer_words
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
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
from kvplan.architectures.lineages.tensors.plain import AFTER_NORMS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.architectures.lineages.tensors.state_space import gated_delta_net
from kvplan.weights.inventory import Dim, Place, Placed, Split

FULL, LINEAR = "full_attention", "linear_attention"


@decoder("doge")
def doge(view: ConfigView) -> Decoder:
    """Attention with a learnt mask by KV head, weighted residuals; is_moe: experts of one neuron each."""
    hidden, heads, bias = hidden_size(view), heads_of(view), view.flag(BIAS)
    model = whole("hidden_size", hidden)
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    layer = attention(heads, hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
    layer += vector("self_attn.A", kv)
    layer += linear("self_attn.dt_proj", kv, (kv, whole("head_dim", heads.width)), bias=bias)
    layer += vector("input_residual", model) + vector("post_attention_residual", model)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    if view.flag("is_moe"):
        number = int(view.integer("num_experts"))
        layer += router("mlp.router_gate", 2 * isqrt(number), hidden)
        for name in ("mlp.down_embed", "mlp.up_embed"):
            layer += vector(name, whole("num_experts", number), model)
    return Decoder(Frame(), (layer + norms(TWO_NORMS, model),) * int(view.num_layers()))


@decoder("hrm_text")
def hrm_text(view: ConfigView) -> Decoder:
    """Two stacks of layers that run again and again: cache for every pass, weights once.

    The layers of both stacks stand outside the layers that a pipeline divides, which a recurrence forbids.
    """
    hidden, bias = hidden_size(view), view.flag(BIAS)
    heads, model = all_heads(view), whole("hidden_size", hidden)
    width = int(view.optional_integer("head_dim") or heads.width)
    layer = attention(Heads(heads.count, heads.count, width, width), hidden, qkv_bias=bias, o_bias=bias)
    gate = (even("num_attention_heads", heads.count), whole("head_dim", width))
    layer += linear("self_attn.gate_proj", gate, model, bias=bias)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    passes = int(view.num_layers())
    stack = view.optional_integer("num_layers_per_stack")
    if stack is None:
        stack = passes
        passes = stack * int(view.integer("H_cycles")) * (int(view.integer("L_cycles")) + 1)
    once = 2 * int(stack)
    frame = Frame(norm=NONE, extra=lambda _: at(Place.EVERY, vector("model.z_L_init", model)))
    return Decoder(frame, (layer,) * once + ((),) * (passes - once))


@decoder("zaya")
def zaya(view: ConfigView) -> Decoder:
    """Convolved query and key, values of two tokens, a router of its own width, scales of the residual."""
    hidden, count = hidden_size(view), int(view.num_layers())
    heads, model = heads_of(view), whole("hidden_size", hidden)
    bias = view.flag(BIAS)
    query = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    kv = Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT)
    wide, half = whole("head_dim", heads.width), whole("head_dim / 2", heads.width // 2)
    path = "self_attn.qkv_proj"
    made = linear(f"{path}.q_proj", query, model, bias=bias)
    made += linear(f"{path}.k_proj", (kv, wide), model, bias=bias)
    for name in ("v_proj_current", "v_proj_delayed"):
        made += linear(f"{path}.{name}", (kv, half), model, bias=bias)
    first, second = keyed(view, "cca_time0"), keyed(view, "cca_time1")
    for rows in (query, (kv, wide)):
        made += vector(f"{path}.conv_qk_depthwise", *rows, first)
        made += vector(f"{path}.conv_qk_depthwise.bias", *rows)
        made += vector(f"{path}.conv_qk_grouped", *rows, wide, second)
        made += vector(f"{path}.conv_qk_grouped.bias", *rows)
    made += vector("self_attn.qk_norm.temp", kv) + linear("self_attn.o_proj", model, query, bias=bias)
    number, inner = int(view.integer("num_experts")), keyed(view, "router_hidden_size")
    classes = whole("num_experts and none", number + 1)
    made += vector("mlp.gate.down_proj", inner, model) + vector("mlp.gate.down_proj.bias", inner)
    made += norm("mlp.gate.router_mlp.norm", inner)
    for name in ("fc1", "fc2"):
        made += vector(f"mlp.gate.router_mlp.{name}", inner, inner)
        made += vector(f"mlp.gate.router_mlp.{name}.bias", inner)
    made += vector("mlp.gate.router_mlp.out_proj", classes, inner)
    made += vector("mlp.gate.balancing_biases", classes, dtype="float32")
    made += experts("mlp.experts", number, hidden, int(view.integer("moe_intermediate_size")))
    made += norms(TWO_NORMS, model)
    for place in ("post_attention_residual_scale", "post_mlp_residual_scale"):
        for name in ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias"):
            made += vector(f"{place}.{name}", model)
    rest = made + vector("mlp.gate.router_states_scale", inner)
    scales = vector("model.input_hidden_states_scale", model) + vector(
        "model.input_hidden_states_bias", model
    )
    frame = Frame(head_bias="lm_head_bias", extra=lambda _: at(Place.FIRST, scales))
    return Decoder(frame, (made,) + (rest,) * (count - 1))


def _up_to(value: float, step: int) -> int:
    """The next multiple, as the class computes it from a float."""
    return int(((value + step - 1) // step) * step)


@decoder("xlstm")
def xlstm(view: ConfigView) -> Decoder:
    """Matrix LSTM: query, key, value and output gate, two gates a head, a gated perceptron."""
    hidden, count = hidden_size(view), int(view.integer("num_heads", "num_attention_heads"))
    bias, model = view.flag("use_bias"), whole("hidden_size", hidden)
    heads = even("num_heads", count)
    keys = (heads, whole("key width", _up_to(hidden * view.get("qk_dim_factor", default=0.5), 64) // count))
    values = (
        heads,
        whole("value width", _up_to(hidden * view.get("v_dim_factor", default=1.0), 64) // count),
    )
    path = "mlstm_layer"
    layer: Tensors = ()
    for name, rows in (("q", keys), ("k", keys), ("v", values), ("ogate_preact", values)):
        layer += linear(f"{path}.{name}", rows, model, bias=bias)
    for name in ("igate_preact", "fgate_preact"):
        layer += linear(f"{path}.{name}", heads, model, bias=True)
    kind = LAYER if bias else "rms"
    layer += norm(f"{path}.multihead_norm", *values, kind=kind)
    layer += linear(f"{path}.out_proj", model, values, bias=bias)
    step = int(view.integer("ffn_round_up_to_multiple_of"))
    inner = _up_to(hidden * view.get("ffn_proj_factor", default=2.667), step)
    layer += mlp("ffn", hidden, inner, bias=bias, names=("proj_up_gate", "proj_up", "proj_down"))
    layer += norms(("norm_mlstm", "norm_ffn"), model, kind)
    frame = Frame(
        layers="backbone.blocks",
        embed="backbone.embeddings",
        final_norm="backbone.out_norm",
        tied=False,
        final_norm_if=lambda seen: seen.flag("add_out_norm", default=True),
    )
    return Decoder(frame, (layer,) * int(view.num_layers("num_blocks", "num_hidden_layers")))


@decoder("rwkv")
def rwkv(view: ConfigView) -> Decoder:
    """RWKV-4: time mixing over attention_hidden_size, channel mixing over intermediate_size."""
    hidden = hidden_size(view)
    model, inner = (
        whole("hidden_size", hidden),
        even("attention_hidden_size", int(view.optional_integer("attention_hidden_size") or hidden)),
    )
    layer: Tensors = ()
    for name in ("time_decay", "time_first"):
        layer += vector(f"attention.{name}", inner)
    for name in ("attention.time_mix_key", "attention.time_mix_value", "attention.time_mix_receptance"):
        layer += vector(name, model)
    for name in ("key", "value", "receptance"):
        layer += linear(f"attention.{name}", inner, model)
    layer += linear("attention.output", model, inner)
    layer += vector("feed_forward.time_mix_key", model) + vector("feed_forward.time_mix_receptance", model)
    wide = even("intermediate_size", int(view.optional_integer("intermediate_size") or 4 * hidden))
    layer += linear("feed_forward.key", wide, model) + linear("feed_forward.value", model, wide)
    layer += linear("feed_forward.receptance", model, model) + norms(("ln1", "ln2"), model, LAYER)
    first = layer + norm("pre_ln", model, kind=LAYER)
    frame = Frame(
        layers="rwkv.blocks", embed="rwkv.embeddings", final_norm="rwkv.ln_out", head="head", norm=LAYER
    )
    return Decoder(frame, (first,) + (layer,) * (int(view.num_layers()) - 1))


@decoder("zamba")
def zamba(view: ConfigView) -> Decoder:
    """Mamba layers by head; hybrid ones lead through one attention block that all of them share."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    words = layer_words(view, "layers_block_type", "layer_types")
    if words is None:
        raise view.missing("layers_block_type")
    number = int(view.integer("n_mamba_heads"))
    inner = int(view.get("mamba_expand", default=2) * hidden)
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


@decoder("olmo_hybrid")
def olmo_hybrid(view: ConfigView) -> Decoder:
    """Gated delta nets with projections of their own, norms before; attention with norms after."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    words = layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    keys = even("linear_num_key_heads", int(view.integer("linear_num_key_heads")))
    values = even("linear_num_value_heads", int(view.integer("linear_num_value_heads")))
    key = (keys, keyed(view, "linear_key_head_dim"))
    value = (values, keyed(view, "linear_value_head_dim"))
    path, kernel = "linear_attn", keyed(view, "linear_conv_kernel_dim")
    delta: Tensors = ()
    for name, rows in (("q_proj", key), ("k_proj", key), ("v_proj", value), ("g_proj", value)):
        delta += linear(f"{path}.{name}", rows, model)
    for name in ("a_proj", "b_proj"):
        delta += linear(f"{path}.{name}", values, model)
    delta += vector(f"{path}.conv1d", whole("query and key", 2), *key, kernel)
    delta += vector(f"{path}.conv1d", *value, kernel) + norm(f"{path}.o_norm", value[1])
    delta += vector(f"{path}.A_log", values, dtype="float32") + vector(f"{path}.dt_bias", values)
    delta += linear(f"{path}.o_proj", model, value) + norms(TWO_NORMS, model)
    bias = view.flag(BIAS)
    full = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias, qk_norm="full")
    full += norms(AFTER_NORMS, model)
    forward = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    mixers = {LINEAR: delta, FULL: full}
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return Decoder(Frame(), by_word(words, lambda word: mixers[word] + forward))


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


@decoder("inkling_text")
def inkling(view: ConfigView) -> Decoder:
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


def _hyper(view: ConfigView, name: str, *, into: bool = True) -> Tensors:
    streams = keyed(view, "hc_count")
    wide, low = whole("hc_count × hidden_size", streams.value * hidden_size(view)), keyed(view, "hc_lowrank")
    made = norm(f"{name}.hc_norm", wide) + linear(f"{name}.input_mix_weight_down", low, wide)
    made += linear(f"{name}.input_mix_weight_up", wide, low)
    return made + linear(f"{name}.block_inject_weight", streams, wide) if into else made


@decoder("qwen4_exp_text")
def qwen4_exp(view: ConfigView) -> Decoder:
    """Gated delta nets and indexed attention with an output gate, hyper-connections around both, experts.

    Raises KvplanError(unknown-layer-type) for n-gram embeddings by layer (ple_layer_ids).
    """
    if view.sequence("ple_layer_ids"):
        raise view.refuse("ple_layer_ids", "the tables of n-gram embeddings are not known")
    hidden, words = hidden_size(view), layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    own = heads_of(view)
    count, kv = keyed(view, "indexer_n_heads"), keyed(view, "indexer_kv_heads")
    width = keyed(view, "indexer_head_dim")
    bias = view.flag(BIAS)
    full = attention(own, hidden, query_parts=2, qk_norm="head", qkv_bias=bias, o_bias=bias)
    both = whole("indexer_n_heads + indexer_kv_heads", count.value + kv.value)
    full += linear("self_attn.indexer.index_qk_proj", (both, width), whole("hidden_size", hidden))
    full += norms(("self_attn.indexer.q_layernorm", "self_attn.indexer.k_layernorm"), width)
    mixers = {LINEAR: gated_delta_net(view, hidden, joint=False), "indexed_attention": full}
    rest = TOKEN_MOE.tensors(view)
    rest += _hyper(view, "attn_hyper_connection") + _hyper(view, "mlp_hyper_connection")
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    mixed = _hyper(view, "model.hyper_connection_mixer", into=False)
    frame = Frame(final_norm_if=False, extra=lambda _: at(Place.LAST, mixed))
    return Decoder(frame, by_word(words, lambda word: mixers[word] + rest))
