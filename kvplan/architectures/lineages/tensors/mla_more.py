"""More decoders with latent attention: A.X K1 and K2, HunYuan V4, LongCat-Flash, MiniCPM3, Youtu, Ling 2.5.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py, against which tests/weights
hold every rule; LongCat's experts without weights as vllm-project/vllm 0.32 longcat_flash.py loads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import num_heads
from kvplan.architectures.lineages.layers.recipe import layer_settings
from kvplan.architectures.lineages.tensors.dense_more import BIAS, sinks
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.hybrids import layer_words
from kvplan.architectures.lineages.tensors.mla import indexer, mla_attention
from kvplan.architectures.lineages.tensors.moe import Moe, by_types_or, shared_by_count
from kvplan.architectures.lineages.tensors.parts import (
    Tensors,
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
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.weights.inventory import Place, Placed

ROUTED = Moe(
    count=("n_routed_experts", "num_experts"),
    layer_is_sparse=by_types_or(1),
    correction="mlp.gate.e_score_correction_bias",
    shared=shared_by_count("n_shared_experts", "num_shared_experts"),
)
MakeLayer = Callable[[bool, str], Tensors]


def _dense(view: ConfigView, *, bias: bool = False) -> Tensors:
    return mlp("mlp", hidden_size(view), int(view.integer("intermediate_size")), bias=bias)


def _forward(view: ConfigView, *, sparse: bool) -> Tensors:
    return ROUTED.tensors(view) if sparse else _dense(view)


def _two_norms(view: ConfigView) -> Tensors:
    return norms(TWO_NORMS, whole("hidden_size", hidden_size(view)))


@decoder("youtu", "minicpm3")
def dense_mla(view: ConfigView) -> Decoder:
    """Latent attention and a perceptron in every layer."""
    layer = mla_attention(view, bias=view.flag(BIAS)) + _two_norms(view)
    layer += _dense(view, bias=view.flag("mlp_bias"))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


PLAIN_ROUTED = replace(ROUTED, layer_is_sparse=by_types_or(0), correction="")


@decoder("mistral4")
def mistral4(view: ConfigView) -> Decoder:
    """DeepSeek's layers, experts in all of them, a router without correction."""
    mixer = mla_attention(view, bias=view.flag(BIAS)) + _two_norms(view)
    made = {True: mixer + PLAIN_ROUTED.tensors(view), False: mixer + _dense(view)}
    sparse = [PLAIN_ROUTED.layer_is_sparse(view, index) for index in range(int(view.num_layers()))]
    return Decoder(Frame(), tuple(made[one] for one in sparse))


@decoder("axk1")
def axk1(view: ConfigView) -> Decoder:
    """DeepSeek's layers with a norm behind the experts."""
    mixer = mla_attention(view, bias=view.flag(BIAS)) + _two_norms(view)
    after = norm("mlp.post_mlp_layernorm", whole("hidden_size", hidden_size(view)))
    made = {
        True: mixer + _forward(view, sparse=True) + after,
        False: mixer + _forward(view, sparse=False),
    }
    return Decoder(Frame(), tuple(made[_is_sparse(view, index)] for index in range(int(view.num_layers()))))


def _is_sparse(view: ConfigView, index: int) -> bool:
    return ROUTED.layer_is_sparse(view, index)


def _gated_norm(view: ConfigView, name: str) -> Tensors:
    model, rank = whole("hidden_size", hidden_size(view)), keyed(view, "gated_norm_rank")
    made = norm(f"{name}.norm", model) + linear(f"{name}.mlp.fc1", rank, model)
    return made + linear(f"{name}.mlp.fc2", model, rank)


@decoder("axk2")
def axk2(view: ConfigView) -> Decoder:
    """Query and output gate from two latents side by side, an indexer, norms with a low-rank gate."""
    model, heads = whole("hidden_size", hidden_size(view)), even("num_attention_heads", int(num_heads(view)))
    rank, value = keyed(view, "q_lora_rank"), int(view.integer("v_head_dim"))
    width = int(view.integer("qk_nope_head_dim", lowest=0)) + int(view.integer("qk_rope_head_dim", lowest=0))
    attends = tuple(
        tensor for tensor in mla_attention(view, bias=view.flag(BIAS)) if "q_b_proj" not in tensor.name
    )
    attends += linear(
        "self_attn.q_gate_proj", (heads, whole("query and gate", width + value)), (whole("latents", 2), rank)
    )
    attends += indexer(view) + _gated_norm(view, "input_layernorm")
    made = {
        True: attends + _gated_norm(view, "post_attention_layernorm") + _forward(view, sparse=True),
        False: attends + norm("post_attention_layernorm", model) + _forward(view, sparse=False),
    }
    return Decoder(Frame(), tuple(made[_is_sparse(view, index)] for index in range(int(view.num_layers()))))


def _streams(view: ConfigView, name: str) -> Tensors:
    """A hyper-connection's mixing of hc_mult streams: in and out, in float32."""
    count = int(view.integer("hc_mult"))
    both, wide = whole("2 × hc_mult", 2 * count), whole("hc_mult × hidden_size", count * hidden_size(view))
    made = vector(f"{name}.fn", both, wide) + vector(f"{name}.base", both)
    return made + vector(f"{name}.scale", whole("two", 2))


def _hy_head(view: ConfigView) -> list[Placed]:
    count = keyed(view, "hc_mult")
    wide = whole("hc_mult × hidden_size", count.value * hidden_size(view))
    made = vector("model.hc_head.hc_fn", count, wide) + vector("model.hc_head.hc_base", count)
    return at(Place.LAST, made + vector("model.hc_head.hc_scale", whole("one", 1)))


@decoder("hy_v4")
def hy_v4(view: ConfigView) -> Decoder:
    """Latent attention with sinks and an output gate, hyper-connections, indexers that layers may share."""
    count = int(view.num_layers())
    indexers = view.sequence("indexer_types") or ["full"] * count
    if len(indexers) < count:
        raise view.refuse("indexer_types", f"{len(indexers)} entries for {count} layers")
    plain = mla_attention(view, bias=view.flag(BIAS)) + sinks(view) + _two_norms(view)
    heads = (even("num_attention_heads", int(num_heads(view))), keyed(view, "v_head_dim"))
    plain += linear("self_attn.gate_proj", heads, whole("hidden_size", hidden_size(view)))
    plain += _streams(view, "attn_hc") + _streams(view, "ffn_hc")

    @lru_cache(maxsize=4)
    def layer(sparse: bool, own: bool) -> Tensors:
        return plain + (indexer(view) if own else ()) + _forward(view, sparse=sparse)

    layers = tuple(layer(_is_sparse(view, index), indexers[index] == "full") for index in range(count))
    return Decoder(Frame(extra=_hy_head), layers)


@decoder("longcat_flash")
def longcat_flash(view: ConfigView) -> Decoder:
    """Two attentions and two perceptrons a layer; experts beside them, some of which have no weights."""
    hidden = hidden_size(view)
    model, width = whole("hidden_size", hidden), int(view.integer("ffn_hidden_size", "intermediate_size"))
    layer: Tensors = ()
    for place in "01":
        layer += mla_attention(view, bias=view.flag(BIAS), path=f"self_attn.{place}")
        layer += mlp(f"mlps.{place}", hidden, width)
        layer += norms((f"input_layernorm.{place}", f"post_attention_layernorm.{place}"), model)
    count = int(view.integer("n_routed_experts"))
    named = count + int(view.optional_integer("zero_expert_num", default=0, lowest=0) or 0)
    layer += router(
        "mlp.router.classifier",
        named,
        hidden,
        bias=view.flag("router_bias"),
        correction="mlp.router.e_score_correction_bias",
    )
    layer += experts(
        "mlp.experts", count, hidden, int(view.integer("expert_ffn_hidden_size", "moe_intermediate_size"))
    )
    return Decoder(Frame(), (layer,) * int(view.num_layers("num_layers", "num_hidden_layers")))


@decoder("bailing_hybrid")
def bailing_hybrid(view: ConfigView) -> Decoder:
    """Kimi delta attention with full-rank gates; every layer_group_size-th layer latent attention."""
    hidden, count = hidden_size(view), int(view.num_layers())
    model = whole("hidden_size", hidden)
    words = layer_words(view, "layer_types")
    if words is None:
        every = int(view.integer("layer_group_size"))
        words = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    own = even("linear heads", int(view.integer("linear_num_heads", "num_attention_heads")))
    both = (own, whole("head_dim", int(view.integer("linear_head_dim", "head_dim"))))
    linear_layer: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj", "g_proj", "forget_gate.f_proj"):
        linear_layer += linear(f"self_attn.{name}", both, model)
    kernel = whole("kernel", int(view.integer("linear_conv_kernel_dim", "short_conv_kernel_size")))
    linear_layer += vector("self_attn.conv1d", whole("query, key and value", 3), *both, kernel)
    linear_layer += vector("self_attn.forget_gate.A_log", own, dtype="float32")
    linear_layer += vector("self_attn.forget_gate.dt_bias", *both, dtype="float32")
    linear_layer += linear("self_attn.b_proj", own, model) + norm("self_attn.o_norm", both[1])
    linear_layer += linear("self_attn.o_proj", model, both)
    # vLLM 0.32 keeps the gate of the heads whole (bailing_moe_linear.py).
    gate = linear("self_attn.g_proj", whole("num_attention_heads", int(num_heads(view))), model)
    latent = mla_attention(view, bias=view.flag(BIAS)) + gate
    mixers = {"linear_attention": linear_layer, "full_attention": latent}
    around = _two_norms(view)

    @lru_cache(maxsize=4)
    def layer(word: str, sparse: bool) -> Tensors:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
        return mixers[word] + _forward(view, sparse=sparse) + around

    layers = tuple(layer(word, _is_sparse(view, index)) for index, word in enumerate(words))
    return Decoder(Frame(tied=False), layers)


_SWA = {
    "num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "qk_nope_head_dim": 192,
    "v_head_dim": 128, "head_dim": 256,
}  # fmt: skip


def _sliding(view: ConfigView) -> ConfigView:
    """The sizes of windowed layers: swa_ keys, as published, or the class's own."""
    sizes = {key: view.get(f"swa_{key}", default=value) for key, value in _SWA.items()}
    rope = view.get("swa_qk_rope_head_dim", default=sizes["head_dim"] - sizes["qk_nope_head_dim"])
    return view.with_values({**sizes, "qk_rope_head_dim": rope})


@decoder("dots3_note_text")
def dots3_note(view: ConfigView) -> Decoder:
    """Latent attention with a gate a head, an indexer in full layers, sizes of their own in windows."""
    count = int(view.num_layers())
    words = layer_words(view, "layer_types")
    if words is None:
        windows = view.flag("use_sliding_window", default=True)
        wide = [not windows or index < 2 or index % 4 == 1 for index in range(count)]
        words = ["full_attention" if full else "sliding_attention" for full in wide]
    indexed, table = view.flag("use_dsa", default=True), layer_settings(view, count) or {}
    model = whole("hidden_size", hidden_size(view))
    shared = int(view.integer("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"))
    shared *= int(view.integer("n_shared_experts"))

    @lru_cache(maxsize=8)
    def mixer(word: str, index: int) -> Tensors:
        sizes = view if word != "sliding_attention" else _sliding(view)
        sizes = sizes.with_values(table.get(index, {}))
        heads = even("num_attention_heads", int(num_heads(sizes)))
        made = mla_attention(sizes, bias=view.flag(BIAS)) + linear("self_attn.g_proj", heads, model)
        made += norm("self_attn.k_rope_only_layernorm", keyed(sizes, "qk_rope_head_dim"))
        is_indexed = word == "indexed_attention" or (word != "sliding_attention" and indexed)
        return made + (indexer(view) if is_indexed else ())

    sparse_moe = ROUTED.tensors(view.with_values({"n_shared_experts": 0}))
    sparse_moe += mlp("mlp.shared_experts", hidden_size(view), shared)
    around = _two_norms(view)
    firsts = {word: words.index(word) for word in dict.fromkeys(words)}
    layers = tuple(
        mixer(word, firsts[word]) + (sparse_moe if _is_sparse(view, index) else _dense(view)) + around
        for index, word in enumerate(words)
    )
    return Decoder(Frame(), layers)
