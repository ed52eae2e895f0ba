"""Gemma 3n, Gemma 4 and Muse Glimmer: widths by layer, per-layer embeddings, shared KV layers, output gates.

Source: vllm-project/vllm vllm/model_executor/models/ gemma3n.py, gemma4.py, muse_glimmer.py (0.32).
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.layers.decoder import head_dim, num_heads, num_kv_heads
from kvplan.architectures.lineages.layers.recipe import layer_settings
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.parts import (
    Heads,
    Tensors,
    attention,
    embedding,
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
from kvplan.architectures.lineages.tensors.plain import FOUR_NORMS, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import Decoder, decoder
from kvplan.weights.inventory import Place, Placed


def _layer_words(view: ConfigView) -> list[str]:
    count = int(view.num_layers())
    words = view.sequence("layer_types")
    if words is None:
        # Gemma 4's class: five windowed layers and one full one, the last one full.
        words = ["full_attention" if (index + 1) % 6 == 0 else "sliding_attention" for index in range(count)]
        if words:
            words[-1] = "full_attention"
    if len(words) != count:
        raise view.refuse("layer_types", f"{len(words)} entries for {count} layers")
    return [str(word) for word in words]


def _by_layer(view: ConfigView) -> int:
    """Width of the per-layer embeddings, 0 for none."""
    return int(view.optional_integer("hidden_size_per_layer_input", default=0, lowest=0) or 0)


def _by_layer_tensors(view: ConfigView, hidden: int) -> Tensors:
    """The gate and the projection with which a layer reads its own embedding."""
    narrow = _by_layer(view)
    if not narrow:
        return ()
    model, own = whole("hidden_size", hidden), whole("hidden_size_per_layer_input", narrow)
    made = linear("per_layer_input_gate", own, model) + linear("per_layer_projection", model, own)
    return made + norm("post_per_layer_input_norm", model)


def _by_layer_ends(view: ConfigView) -> list[Placed]:
    narrow = _by_layer(view)
    if not narrow:
        return []
    together = narrow * int(view.num_layers())
    rows = int(view.optional_integer("vocab_size_per_layer_input") or view.integer("vocab_size"))
    out = (even("num_hidden_layers × hidden_size_per_layer_input", together),)
    made = linear("model.per_layer_model_projection", out, whole("hidden_size", hidden_size(view)))
    made += norm("model.per_layer_projection_norm", whole("hidden_size_per_layer_input", narrow))
    table = embedding("model.embed_tokens_per_layer", rows, together)
    return at(Place.EVERY, (table, *made))


@decoder("gemma4_text", "gemma4_unified_text")
def gemma4(view: ConfigView) -> Decoder:
    """Windowed and full layers of different head widths; the last layers share K and V and have none."""
    hidden, words = hidden_size(view), _layer_words(view)
    count = len(words)
    shared = int(view.optional_integer("num_kv_shared_layers", default=0, lowest=0) or 0)
    first_shared = count - shared
    bias, model = view.flag("attention_bias"), whole("hidden_size", hidden)
    wide = int(view.integer("intermediate_size"))

    @lru_cache(maxsize=8)
    def layer(full: bool, shares: bool) -> Tensors:
        heads = _gemma4_heads(view, full=full)
        made = attention(heads, hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
        if shares:
            made = tuple(
                tensor for tensor in made if not tensor.name.startswith(("self_attn.k_", "self_attn.v_"))
            )
        doubled = shares and first_shared > 0 and view.flag("use_double_wide_mlp")
        made += mlp("mlp", hidden, wide * 2 if doubled else wide)
        made += norms(FOUR_NORMS, model)
        # The class has num_experts even where a model has none; enable_moe_block says which it is.
        if view.get("num_experts"):
            number = int(view.integer("num_experts"))
            made += vector("router.scale", model)
            made += vector("router.per_expert_scale", whole("num_experts", number))
            made += router("router.proj", number, hidden)
            width = int(view.integer("moe_intermediate_size", "expert_intermediate_size"))
            made += experts("experts", number, hidden, width)
            around = (
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
            made += norms(around, model)
        return made + _by_layer_tensors(view, hidden)

    layers = tuple(
        layer(word == "full_attention", shared > 0 and index >= first_shared)
        for index, word in enumerate(words)
    )
    return Decoder(Frame(everywhere=True, extra=_by_layer_ends), layers)


def _gemma4_heads(view: ConfigView, *, full: bool) -> Heads:
    """global_head_dim and num_global_key_value_heads (with attention_k_eq_v) on full layers."""
    width, kv = int(head_dim(view)), int(num_kv_heads(view))
    own = _of_full_layers(view) if full else None
    if own is not None:
        width, kv = int(head_dim(own)), int(num_kv_heads(own))
    elif full:
        width = int(view.optional_integer("global_head_dim", default=512) or 512)
        if view.flag("attention_k_eq_v", default=True):
            kv = int(view.optional_integer("num_global_key_value_heads") or kv)
    return Heads(int(num_heads(view)), kv, width, width)


def _of_full_layers(view: ConfigView) -> ConfigView | None:
    """What per_layer_config, the library's words of today, says of the first full layer."""
    words = _layer_words(view)
    table = layer_settings(view, len(words))
    if not table or "full_attention" not in words:
        return None
    return view.with_values(table.get(words.index("full_attention"), {}))


@decoder("gemma3n_text")
def gemma3n(view: ConfigView) -> Decoder:
    """Gemma 3n: alternating updates, a low-rank residual, per-layer embeddings, widths by layer."""
    hidden, count = hidden_size(view), int(view.num_layers())
    model, inputs = whole("hidden_size", hidden), int(view.integer("altup_num_inputs"))
    altup, rank = whole("altup_num_inputs", inputs), keyed(view, "laurel_rank")
    widths = view.get("intermediate_size")
    if isinstance(widths, list) and len(widths) != count:
        raise view.refuse("intermediate_size", f"{len(widths)} entries for {count} layers")
    shared = int(view.optional_integer("num_kv_shared_layers", default=0, lowest=0) or 0)
    bias = view.flag("attention_bias")
    made: dict[tuple[int, bool], Tensors] = {}
    layers = []
    for index in range(count):
        width = check_integer(widths[index] if isinstance(widths, list) else widths, "intermediate_size")
        shares = shared > 0 and index >= count - shared
        if (width, shares) not in made:
            layer = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
            if shares:
                layer = tuple(
                    tensor for tensor in layer if not tensor.name.startswith(("self_attn.k_", "self_attn.v_"))
                )
            layer += mlp("mlp", hidden, width) + norms(FOUR_NORMS, model)
            layer += vector("altup.correct_output_scale", model)
            layer += vector("altup.correction_coefs", altup, altup)
            layer += vector("altup.prediction_coefs", whole("altup_num_inputs²", inputs * inputs), altup)
            layer += vector("altup.modality_router", altup, model) + norm("altup.router_norm", model)
            layer += linear("laurel.linear_left", rank, model) + linear("laurel.linear_right", model, rank)
            layer += norm("laurel.post_laurel_norm", model) + _by_layer_tensors(view, hidden)
            made[width, shares] = layer
        layers.append(made[width, shares])
    return Decoder(Frame(everywhere=True, extra=_gemma3n_ends), tuple(layers))


def _gemma3n_ends(view: ConfigView) -> list[Placed]:
    model, more = whole("hidden_size", hidden_size(view)), int(view.integer("altup_num_inputs")) - 1
    made = list(_by_layer_ends(view))
    for name in ("altup_projections", "altup_unembed_projections"):
        for index in range(more):
            out = even("hidden_size", hidden_size(view))
            made += at(Place.EVERY, linear(f"model.{name}.{index}", out, model))
    return made


@decoder("muse_glimmer_text")
def muse_glimmer(view: ConfigView) -> Decoder:
    """Attention with an output gate, norms without weight on query and key, four norms around."""
    hidden = hidden_size(view)
    heads, model = heads_of(view), whole("hidden_size", hidden)
    layer = attention(heads, hidden)
    if view.flag("use_attn_output_gate", default=True):
        gate = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
        layer += linear("self_attn.gate_proj", gate, model)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size"))) + norms(FOUR_NORMS, model)
    return Decoder(Frame(everywhere=True), (layer,) * int(view.num_layers()))
