"""Towers of newer wrappers: Kimi K2.5 and K3, Llama 4, Gemma 4, Muse Glimmer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    RMS,
    Tensors,
    even,
    keyed,
    linear,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import FOUR_NORMS, hidden_size
from kvplan.architectures.lineages.tensors.registry import TOWERS
from kvplan.architectures.lineages.tensors.tower_parts import (
    encoder_layer,
    placed,
    repeated,
    tower_layers,
    vision_view,
    wrapper_view,
)
from kvplan.errors import KvplanError
from kvplan.weights.inventory import Placed

Raw = Mapping[str, Any]
MAX_SIDE = 1024
"""Patches along one side that are merged into one."""


def _kimi(raw: Raw, view: ConfigView) -> list[Placed]:
    """MoonViT with learnt positions; a projector that merges patches, whole on every rank.

    Kimi K3 (merge type patchmergerv2): RMS norms, no biases, attention narrower or wider than the tower.
    """
    vision = vision_view(raw)
    kind = RMS if vision.get("norm_type") == "rmsnorm" else LAYER
    bias = vision.flag("attn_bias", default=True), vision.flag("linear_bias", default=True)
    hidden, heads = int(vision.integer("vt_hidden_size")), int(vision.integer("vt_num_attention_heads"))
    inner = int(vision.optional_integer("qkv_hidden_size") or hidden)
    model, patch = whole("vt_hidden_size", hidden), int(vision.integer("patch_size"))
    if bias[0] != bias[1]:
        raise KvplanError("no-weights", "vision_config: attn_bias and linear_bias differ, which is not known")
    layer = encoder_layer(
        hidden,
        heads,
        int(vision.integer("vt_intermediate_size")),
        width=inner // heads,
        bias=bias[0],
        kind=kind,
        names=("wqkv", "wqkv", "wqkv", "wo"),
        mlp_names=("", "mlp.fc0", "mlp.fc1"),
        norm_names=("norm0", "norm1"),
    )
    made = vector(
        "vision_tower.patch_embed.proj", model, whole("channels", 3), whole("patch_size²", patch**2)
    )
    if vision.flag("patch_embed_proj_bias", default=True):
        made += vector("vision_tower.patch_embed.proj.bias", model)
    rows = int(vision.integer("init_pos_emb_height")) * int(vision.integer("init_pos_emb_width"))
    made += vector("vision_tower.patch_embed.pos_emb", whole("positions", rows), model)
    made += repeated("vision_tower.encoder.blocks", layer, tower_layers(vision, "vt_num_hidden_layers"))
    made += norm("vision_tower.encoder.final_layernorm", model, kind=kind)
    return placed(made + _kimi_projector(vision, view))


def _kimi_projector(vision: ConfigView, view: ConfigView) -> Tensors:
    sides = vision.sequence("merge_kernel_size") or [2, 2]
    if len(sides) != 2:
        raise KvplanError("bad-config", f"vision_config.merge_kernel_size has {len(sides)} entries, not two")
    sides = [check_integer(side, "vision_config.merge_kernel_size", 1, MAX_SIDE) for side in sides]
    width = int(vision.optional_integer("mm_hidden_size") or vision.integer("vt_hidden_size"))
    merged = whole("merged width", width * sides[0] * sides[1])
    text, path = whole("hidden_size", hidden_size(view)), "mm_projector"
    kind = vision.get("mm_projector_type", default="patchmerger")
    if kind == "patchmerger":
        made = norm(f"{path}.pre_norm", whole("mm_hidden_size", width), kind=LAYER)
        made += linear(f"{path}.linear_1", merged, merged, bias=True)
        return made + linear(f"{path}.linear_2", text, merged, bias=True)
    if kind == "patchmergerv2":
        made = linear(f"{path}.linear_1", merged, merged) + linear(f"{path}.linear_2", text, merged)
        return made + norm(f"{path}.post_norm", text)
    raise KvplanError("no-weights", f"vision_config.mm_projector_type {kind!r} is not known")


def _llama4(raw: Raw, view: ConfigView) -> list[Placed]:
    """A vision transformer with a class token, an adapter after pixel shuffling, one projection."""
    vision = vision_view(raw)
    hidden, path = int(vision.integer("hidden_size")), "vision_model"
    model, patch = whole("vision hidden_size", hidden), int(vision.integer("patch_size"))
    rows = (int(vision.integer("image_size")) // patch) ** 2 + 1
    inner = int(vision.integer("intermediate_size"))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_attention_heads")),
        inner,
        names=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        norm_names=("input_layernorm", "post_attention_layernorm"),
    )
    made = vector(f"{path}.class_embedding", model)
    made += vector(f"{path}.positional_embedding_vlm", whole("positions", rows), model)
    channels = int(vision.optional_integer("num_channels") or 3)
    flat = whole("channels × patch_size²", channels * patch**2)
    made += linear(f"{path}.patch_embedding.linear", even("vision hidden_size", hidden), flat)
    made += norms((f"{path}.layernorm_pre", f"{path}.layernorm_post"), model, LAYER)
    made += repeated(f"{path}.model.layers", layer, tower_layers(vision))
    ratio = vision.number("pixel_shuffle_ratio", default=0.5, lowest=1 / MAX_SIDE, highest=1)
    narrow = even("projector_input_dim", int(vision.integer("projector_input_dim")))
    shuffled = whole("shuffled width", int(hidden / ratio**2))
    made += linear(f"{path}.vision_adapter.mlp.fc1", narrow, shuffled)
    out = keyed(vision, "projector_output_dim")
    made += linear(f"{path}.vision_adapter.mlp.fc2", out, narrow)
    text, seen = (
        even("hidden_size", hidden_size(view)),
        keyed(vision, "vision_output_dim"),
    )
    return placed(made + linear("multi_modal_projector.linear_1", text, seen))


def _gemma4(raw: Raw, view: ConfigView) -> list[Placed]:
    """Gemma 4's tower is the transformers class itself: whole on every rank."""
    if isinstance(raw.get("audio_config"), Mapping):
        raise KvplanError(
            "no-weights", "the weights of gemma4's audio tower cannot be derived from its config"
        )
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
    return placed(made + linear("embed_vision.embedding_projection", text, model))


def _muse(raw: Raw, view: ConfigView) -> list[Placed]:
    """A tower whose attention is divided and whose perceptrons, adapter and projection are whole."""
    vision = vision_view(raw)
    hidden, path = int(vision.integer("hidden_size")), "vision_encoder"
    model, patch = whole("vision hidden_size", hidden), int(vision.integer("patch_size"))
    frames = int(vision.optional_integer("patch_temporal") or 2)
    rows = int(vision.integer("pos_emb_height")) * int(vision.integer("pos_emb_width"))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_attention_heads")),
        int(vision.integer("intermediate_size")),
        names=("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj"),
        mlp_names=("", "mlp.c_fc", "mlp.c_proj"),
        norm_names=("ln_1", "ln_2"),
        divided=False,
    )
    made = vector(f"{path}.positional_embedding_vlm", whole("positions", rows), model)
    made += linear(
        f"{path}.conv1_linear", model, whole("channels × frames × patch_size²", 3 * frames * patch**2)
    )
    made += norms((f"{path}.ln_pre", f"{path}.ln_post"), model, LAYER)
    made += repeated(f"{path}.transformer", layer, tower_layers(vision))
    top = wrapper_view(raw)
    out = int(top.optional_integer("out_hidden_size") or 6144)
    inner = int(top.optional_integer("projector_hidden_size") or 4096)
    wide, middle = whole("out_hidden_size", out), whole("projector_hidden_size", inner)
    made += linear("vision_adapter.c_fc", middle, wide) + linear("vision_adapter.c_proj", middle, middle)
    return placed(made + linear("vision_projection", whole("hidden_size", hidden_size(view)), middle))


TOWERS.update(
    {"kimi_k25": _kimi, "kimi_k3": _kimi, "llama4": _llama4, "gemma4": _gemma4, "muse_glimmer": _muse}
)
