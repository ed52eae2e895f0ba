"""Gemma 4 and its kin: widths by layer, per-layer embeddings, shared KV layers.

Sources: huggingface/transformers 5.23.0 models/{gemma4,diffusion_gemma,embedding_gemma2}; vllm-project/vllm
0.32 vllm/model_executor/models/gemma4.py, gemma4_mm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_heads, num_kv_heads, with_window
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    LAYER,
    Heads,
    Tensors,
    attention,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    unquantised,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import FOUR_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import (
    FULL,
    SLIDING,
    Recipe,
    every,
    every_key,
    last_is_full,
    layer_settings,
)
from kvplan.architectures.blocks.tower import Raw, placed, repeated, tower_layers, vision_view
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.gemma import halved_sliding
from kvplan.architectures.lineages.gemma3n import by_layer_ends, by_layer_tensors, last_layers_share
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Dim, Placed


def _global_layers(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    """Full-attention layers have heads of global_head_dim; fewer KV heads where K serves as V.

    num_global_key_value_heads counts only with attention_k_eq_v (true where the class lacks the key).
    """
    own: dict[str, object] = {"head_dim": view.optional_integer("global_head_dim", default=512) or 512}
    heads = view.optional_integer("num_global_key_value_heads")
    if heads is not None and view.flag("attention_k_eq_v", True):
        own["num_key_value_heads"] = heads
    return {index: own for index, kind in enumerate(kinds) if kind == FULL}


_GEMMA4 = Recipe(
    with_window(halved_sliding),
    every(6, SLIDING, FULL),
    adjust=last_is_full,
    sharing=last_layers_share,
    overrides=_global_layers,
)


def _embedding_globals(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    own: dict[str, object] = {
        "head_dim": view.optional_integer("global_head_dim", default=512) or 512,
        "num_key_value_heads": view.optional_integer("num_global_key_value_heads", default=1) or 1,
    }
    return {index: own for index, kind in enumerate(kinds) if kind == FULL}


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


def gemma4_tensors(view: ConfigView) -> Decoder:
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
        return made + by_layer_tensors(view, hidden)

    layers = tuple(
        layer(word == "full_attention", shared > 0 and index >= first_shared)
        for index, word in enumerate(words)
    )
    return Decoder(Frame(everywhere=True, extra=by_layer_ends), layers)


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
    """The first full layer in per_layer_config, the library's name for it today."""
    words = _layer_words(view)
    table = layer_settings(view, len(words))
    if not table or "full_attention" not in words:
        return None
    return view.with_values(table.get(words.index("full_attention"), {}))


def _gemma4(raw: Raw, view: ConfigView) -> list[Placed]:
    """Gemma 4's towers are the transformers classes themselves: whole on every rank."""
    vision = vision_view(raw)
    hidden, heads = int(vision.integer("hidden_size")), int(vision.integer("num_attention_heads"))
    kv, width = int(vision.integer("num_key_value_heads")), int(vision.integer("head_dim"))
    model, inner = (
        whole("vision hidden_size", hidden),
        whole("vision intermediate_size", int(vision.integer("intermediate_size"))),
    )
    query, shared, one = (
        whole("heads × head_dim", heads * width),
        whole("kv heads × head_dim", kv * width),
        whole("head_dim", width),
    )
    layer = linear("self_attn.q_proj.linear", query, model) + linear("self_attn.k_proj.linear", shared, model)
    layer += linear("self_attn.v_proj.linear", shared, model) + linear(
        "self_attn.o_proj.linear", model, query
    )
    layer += norms(("self_attn.q_norm", "self_attn.k_norm"), one)
    layer += linear("mlp.gate_proj.linear", inner, model) + linear("mlp.up_proj.linear", inner, model)
    layer += linear("mlp.down_proj.linear", model, inner) + norms(FOUR_NORMS, model)
    patch, path = int(vision.integer("patch_size")), "vision_tower"
    rows = keyed(vision, "position_embedding_size")
    made = vector(f"{path}.patch_embedder.position_embedding_table", whole("two axes", 2), rows, model)
    made += linear(f"{path}.patch_embedder.input_proj", model, whole("channels × patch_size²", 3 * patch**2))
    made += repeated(f"{path}.encoder.layers", layer, tower_layers(vision))
    text = whole("hidden_size", hidden_size(view))
    made += linear("embed_vision.embedding_projection", text, model)
    return placed(made + (_audio(raw, text) if isinstance(raw.get("audio_config"), Mapping) else ()))


_MEL_BANDS = 128
"""Of the sound's spectrum; two convolutions of stride 2 leave a quarter of them."""


def _audio(raw: Raw, text: Dim) -> Tensors:
    """The conformer of sound (transformers 5.23 modeling_gemma4.py, Gemma4AudioModel)."""
    audio, path = vision_view(raw, "audio_config"), "audio_tower"
    width, kernel = int(audio.integer("hidden_size")), int(audio.integer("conv_kernel_size"))
    heads = int(audio.integer("num_attention_heads"))
    model, inner = whole("audio hidden_size", width), whole("4 × audio hidden_size", 4 * width)
    layer: Tensors = ()
    for name in ("feed_forward1", "feed_forward2"):
        layer += linear(f"{name}.ffw_layer_1.linear", inner, model)
        layer += linear(f"{name}.ffw_layer_2.linear", model, inner)
        layer += norms((f"{name}.pre_layer_norm", f"{name}.post_layer_norm"), model)
    for name in ("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear", "relative_k_proj"):
        layer += linear(f"self_attn.{name}", model, model)
    layer += vector("self_attn.per_dim_scale", whole("head_dim", width // heads))
    layer += linear("lconv1d.linear_start.linear", whole("2 × audio hidden_size", 2 * width), model)
    layer += linear("lconv1d.linear_end.linear", model, model)
    layer += vector("lconv1d.depthwise_conv1d", model, whole("conv_kernel_size", kernel))
    layer += norms(("lconv1d.pre_layer_norm", "lconv1d.conv_norm"), model)
    layer += norms(("norm_pre_attn", "norm_post_attn", "norm_out"), model)
    channels = audio.sequence("subsampling_conv_channels") or []
    if len(channels) != 2:
        raise audio.refuse("subsampling_conv_channels", "two convolutions are known")
    first, last = (
        whole("channels", check_integer(one, "audio_config.subsampling_conv_channels")) for one in channels
    )
    nine, before = whole("3 × 3", 9), f"{path}.subsample_conv_projection"
    made = vector(f"{before}.layer0.conv", first, nine) + vector(f"{before}.layer0.norm", first)
    made += vector(f"{before}.layer1.conv", last, first, nine) + vector(f"{before}.layer1.norm", last)
    made += linear(
        f"{before}.input_proj_linear", model, whole("channels × bands", last.value * _MEL_BANDS // 4)
    )
    made += repeated(f"{path}.layers", layer, tower_layers(audio))
    out = keyed(audio, "output_proj_dims")
    made += linear(f"{path}.output_proj", out, model, bias=True)
    return made + linear("embed_audio.embedding_projection", text, out)


def _unified(raw: Raw, view: ConfigView) -> list[Placed]:
    """Patches and frames of sound are projected by one matrix each, without an encoder
    (vllm-project/vllm 0.32 vllm/model_executor/models/gemma4_unified.py)."""
    text = whole("hidden_size", hidden_size(view))
    made: Tensors = ()
    if isinstance(raw.get("vision_config"), Mapping):
        vision, path = vision_view(raw), "vision_embedder"
        width = keyed(vision, "mm_embed_dim")
        side = int(vision.integer("patch_size")) * int(vision.integer("pooling_kernel_size"))
        patch = whole("3 × model_patch_size²", 3 * side**2)
        made = linear(f"{path}.patch_dense", width, patch, bias=True)
        made += vector(f"{path}.pos_embedding", keyed(vision, "mm_posemb_size"), whole("two axes", 2), width)
        made += norm(f"{path}.patch_ln1", patch, kind=LAYER) + norm(f"{path}.patch_ln2", width, kind=LAYER)
        made += norm(f"{path}.pos_norm", width, kind=LAYER)
        made += linear("embed_vision.embedding_projection", text, width)
    if isinstance(raw.get("audio_config"), Mapping):
        frames = keyed(vision_view(raw, "audio_config"), "audio_embed_dim")
        made += linear("embed_audio.embedding_projection", text, frames)
    return placed(made)


def _diffusion(raw: Raw, view: ConfigView) -> list[Placed]:
    """Gemma 4's encoder, and a perceptron that reads the canvas of the step before, whole on every rank.

    Source: vllm-project/vllm 0.33 vllm/model_executor/models/diffusion_gemma.py (self_conditioning).
    """
    model, path = whole("hidden_size", hidden_size(view)), "self_conditioning"
    width = int(raw.get("self_conditioning_size") or view.integer("intermediate_size"))
    inner = whole("self_conditioning_size", width)
    made = norm(f"{path}.pre_norm", model) + unquantised(f"{path}.gate_proj", inner, model)
    made += unquantised(f"{path}.up_proj", inner, model) + unquantised(f"{path}.down_proj", model, inner)
    return (_gemma4(raw, view) if raw.get("vision_config") else []) + placed(made)


lineage(
    "gemma4",
    tower=_gemma4,
    media=Rule(
        "pools",
        patch=("vision_config.patch_size", 16),
        merge=("vision_config.pooling_kernel_size", 3),
        tokens=("vision_soft_tokens_per_image", 280),
        source="max_soft_tokens is vision_soft_tokens_per_image",
    ),
)
lineage("gemma4_unified", tower=_unified)
lineage("gemma4_text", "gemma4_unified_text", layers=_GEMMA4, tensors=gemma4_tensors)
lineage("diffusion_gemma_text", layers=_GEMMA4, tensors=gemma4_tensors)
lineage("diffusion_gemma", tower=_diffusion)
lineage(
    "embedding_gemma2_text",
    layers=Recipe(
        ATTENTION,
        every_key("sliding_window_pattern", 6, SLIDING, FULL),
        adjust=last_is_full,
        overrides=_embedding_globals,
    ),
)
