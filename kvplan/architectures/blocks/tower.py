"""Parts shared by vision encoders: the view of their config, encoder layers, CLIP, SigLIP, Pixtral,
projectors.

vLLM builds towers on every pipeline stage and divides their matrices like the decoder's. Source:
vllm-project/vllm 0.32 vllm/model_executor/models/clip.py, siglip.py, siglip2.py, pixtral.py, llava.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.blocks.parts import LAYER, Tensors, even, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.config.class_names import class_facts
from kvplan.architectures.config.view import ConfigView
from kvplan.errors import KvplanError
from kvplan.record import Json, record, replace
from kvplan.weights.inventory import Place, Placed, Tensor

# What transformers 5.23.0's vision classes default to, as far as shapes depend on it and the generated table
# of text defaults leaves it out.
_QWEN = {"in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2}

_QWEN3 = {**_QWEN, "patch_size": 16, "num_position_embeddings": 2304, "out_hidden_size": 3584}

_GLM = {**_QWEN, "patch_size": 14, "image_size": 336, "out_hidden_size": 4096}

_IDEFICS = {"patch_size": 32, "image_size": 224, "num_channels": 3}
VISION_DEFAULTS: dict[str, dict[str, Any]] = {
    "clip_vision_model": {"patch_size": 32, "image_size": 224, "num_channels": 3},
    "siglip_vision_model": {"patch_size": 16, "image_size": 224, "num_channels": 3},
    "siglip2_vision_model": {"patch_size": 16, "num_channels": 3, "num_patches": 256},
    "pixtral": {"patch_size": 16, "num_channels": 3},
    "qwen2_5_vl_vision": {**_QWEN, "patch_size": 14, "out_hidden_size": 3584},
    "qwen3_vl_vision": {**_QWEN3, "deepstack_visual_indexes": [8, 16, 24]},
    "qwen3_vl_moe_vision": {**_QWEN3, "deepstack_visual_indexes": [8, 16, 24]},
    "qwen3_5_vision": _QWEN3,
    "qwen3_5_moe_vision": _QWEN3,
    "qwen4_exp_vision": _QWEN3,
    "glm4v_vision": _GLM,
    "glm4v_moe_vision": _GLM,
    "llama4_vision_model": {
        "patch_size": 14,
        "image_size": 448,
        "num_channels": 3,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 7680,
        "pixel_shuffle_ratio": 0.5,
    },
    "gemma4_vision": {
        "patch_size": 16,
        "position_embedding_size": 10240,
        "head_dim": 64,
        "num_key_value_heads": 12,
    },
    "muse_glimmer_vision": {"patch_size": 14, "patch_temporal": 2, "pos_emb_height": 32, "pos_emb_width": 32},
    "idefics3_vision": _IDEFICS,
    "smolvlm_vision": _IDEFICS,
    "qwen2_vl_vision": {
        "patch_size": 14,
        "in_channels": 3,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "embed_dim": 1280,
        "mlp_ratio": 4,
    },
    "ernie4_5_vl_moe_vision": {
        "patch_size": 14,
        "in_channels": 3,
        "spatial_merge_size": 2,
        "temporal_merge_size": 2,
    },
    "internvl_vision": {
        "image_size": 448,
        "patch_size": 14,
        "num_channels": 3,
        "attention_bias": False,
        "use_qk_norm": False,
        "use_mean_pooling": True,
    },
    "qwen2_audio_encoder": {"num_mel_bins": 128, "max_source_positions": 1500},
}


def vision_view(raw: Json, key: str = "vision_config") -> ConfigView:
    """The tower's config with its class's defaults. Raises KvplanError(missing-key)."""
    inner = raw.get(key)
    if not isinstance(inner, Mapping):
        raise KvplanError("missing-key", f"the config has no {key}", help="add it: a value is never guessed")
    facts = class_facts(str(raw.get("model_type"))) or {}
    declared = facts.get("sub_configs", {}).get(key)
    word = inner.get("model_type")
    # A part of a fixed class has that class's defaults, whatever its own model_type says.
    if isinstance(declared, Mapping):
        name = str(word) if declared.get("auto") and isinstance(word, str) else str(declared.get("type"))
    else:
        name = str(declared or word)
    known = class_facts(name) or {}
    defaults = {**known.get("defaults", {}), **VISION_DEFAULTS.get(name, {})}
    return ConfigView(inner, model_type=name, defaults=defaults, aliases=known.get("aliases"), path=f"{key}.")


def wrapper_view(raw: Json) -> ConfigView:
    """A wrapper's own keys for its projector, next to the parts."""
    return ConfigView(raw, model_type=str(raw.get("model_type")), defaults={})


def tower_layers(view: ConfigView, *keys: str) -> int:
    """How many equal layers a tower or an encoder has: 1 … MAX_LAYERS."""
    return int(view.num_layers(*keys, lowest=1))


@record()
class _Repeated(Tensor):
    """A tensor of the first of several equal blocks."""

    times: int = 1


def placed(tensors: Tensors, place: Place = Place.EVERY) -> list[Placed]:
    return [Placed(place, *_single(tensor)) for tensor in tensors]


def _single(tensor: Tensor) -> tuple[Tensor, int]:
    if not isinstance(tensor, _Repeated):
        return tensor, 1
    single = Tensor(tensor.name, tensor.rows, tensor.columns, tensor.stack, tensor.role, tensor.dtype)
    return single, tensor.times


def under(path: str, tensors: Tensors) -> Tensors:
    """Tensors below a path."""
    return tuple(replace(tensor, name=f"{path}.{tensor.name}") for tensor in tensors)


def repeated(path: str, layer: Tensors, count: int) -> Tensors:
    """count equal layers under a path: one tensor for all of them, which `placed` counts."""
    return tuple(
        _Repeated(
            f"{path}.0.{tensor.name}",
            tensor.rows,
            tensor.columns,
            tensor.stack,
            tensor.role,
            tensor.dtype,
            times=count,
        )
        for tensor in (layer if count else ())
    )


def encoder_layer(
    hidden: int,
    heads: int,
    inner: int,
    *,
    width: int = 0,
    gated: bool = False,
    bias: bool = True,
    kind: str = LAYER,
    names: tuple[str, str, str, str] = (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.out_proj",
    ),
    mlp_names: tuple[str, str, str] = ("", "mlp.fc1", "mlp.fc2"),
    norm_names: tuple[str, ...] = ("layer_norm1", "layer_norm2"),
    key_bias: bool = True,
    divided: bool = True,
) -> Tensors:
    """Attention of every head for itself, a perceptron, norms; divided False keeps the perceptron whole."""
    model, count = whole("vision hidden_size", hidden), even("vision heads", heads)
    both = (count, whole("vision head_dim", width or hidden // heads))
    between = even("vision intermediate_size", inner) if divided else whole("vision intermediate_size", inner)
    query, key, value, output = names
    made = linear(query, both, model, bias=bias) + linear(key, both, model, bias=bias and key_bias)
    made += linear(value, both, model, bias=bias) + linear(output, model, both, bias=bias)
    gate, up, down = mlp_names
    if gated:
        made += linear(gate, between, model, bias=bias)
    made += linear(up, between, model, bias=bias) + linear(down, model, between, bias=bias)
    return made + norms(norm_names, model, kind)


def _patches(vision: ConfigView, path: str, *, bias: bool, as_linear: bool = False) -> Tensors:
    model = whole("vision hidden_size", int(vision.integer("hidden_size")))
    patch, channels = int(vision.integer("patch_size")), int(vision.optional_integer("num_channels") or 3)
    size = (whole("channels", channels), whole("patch_size²", patch**2))
    made = (
        linear(f"{path}.patch_embedding", model, size)
        if as_linear
        else vector(f"{path}.patch_embedding", model, *size)
    )
    return made + vector(f"{path}.patch_embedding.bias", model) if bias else made


def _positions(vision: ConfigView) -> int:
    return (int(vision.integer("image_size")) // int(vision.integer("patch_size"))) ** 2


def clip_layers(vision: ConfigView, layers: int) -> Tensors:
    """CLIP's vision transformer, as many layers as the features need; a final norm only if all are."""
    hidden, path = int(vision.integer("hidden_size")), "vision_tower.vision_model"
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(
        hidden, int(vision.integer("num_attention_heads")), int(vision.integer("intermediate_size"))
    )
    made = vector(f"{path}.embeddings.class_embedding", model)
    made += _patches(vision, f"{path}.embeddings", bias=False)
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", _positions(vision) + 1), model)
    made += norm(f"{path}.pre_layrnorm", model, kind=LAYER)
    made += repeated(f"{path}.encoder.layers", layer, layers)
    complete = layers == tower_layers(vision)
    return made + (norm(f"{path}.post_layernorm", model, kind=LAYER) if complete else ())


def siglip(vision: ConfigView, layers: int, *, patches_as_linear: bool = False) -> Tensors:
    """SigLIP's vision transformer; SigLIP 2 takes flattened patches and num_patches positions."""
    hidden, path = int(vision.integer("hidden_size")), "vision_tower.vision_model"
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(
        hidden, int(vision.integer("num_attention_heads")), int(vision.integer("intermediate_size"))
    )
    rows = int(vision.integer("num_patches")) if patches_as_linear else _positions(vision)
    made = _patches(vision, f"{path}.embeddings", bias=True, as_linear=patches_as_linear)
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", rows), model)
    made += repeated(f"{path}.encoder.layers", layer, layers)
    complete = layers == tower_layers(vision)
    return made + (norm(f"{path}.post_layernorm", model, kind=LAYER) if complete else ())


Raw = Json


def two_layer_projector(
    view: ConfigView, into: int, between: int, *, bias: bool, path: str = "multi_modal_projector"
) -> Tensors:
    """linear_1 (column parallel) and linear_2 (row parallel)."""
    inner, out = even("projector width", between), whole("hidden_size", hidden_size(view))
    made = linear(f"{path}.linear_1", inner, whole("vision width", into), bias=bias)
    return made + linear(f"{path}.linear_2", out, inner, bias=bias)


def pixtral(vision: ConfigView) -> Tensors:
    hidden, heads = int(vision.integer("hidden_size")), int(vision.integer("num_attention_heads"))
    patch, channels = int(vision.integer("patch_size")), int(vision.optional_integer("num_channels") or 3)
    width = int(vision.optional_integer("head_dim") or hidden // heads)
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(
        hidden,
        heads,
        int(vision.integer("intermediate_size")),
        width=width,
        gated=True,
        bias=False,
        kind="rms",
        names=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
        mlp_names=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
        norm_names=("attention_norm", "ffn_norm"),
    )
    made = vector(
        "vision_tower.patch_conv", model, whole("channels", channels), whole("patch_size²", patch**2)
    )
    made += norm("vision_tower.ln_pre", model)
    return made + repeated("vision_tower.transformer.layers", layer, tower_layers(vision))


def qwen_patches(vision: ConfigView, *, bias: bool) -> Tensors:
    channels = int(vision.optional_integer("in_channels", "in_chans") or 3)
    patch, frames = (
        int(vision.integer("patch_size")),
        int(vision.optional_integer("temporal_patch_size") or 2),
    )
    model = whole("vision hidden_size", int(vision.integer("hidden_size")))
    made = vector(
        "visual.patch_embed.proj",
        model,
        whole("channels × frames", channels * frames),
        whole("patch_size²", patch**2),
    )
    return made + vector("visual.patch_embed.proj.bias", model) if bias else made


VISION, AUDIO, FACTOR = "vision hidden_size", "d_model", 2


def siglip_with_head(vision: ConfigView) -> Tensors:
    """SigLIP with its pooling head, unless vision_use_head is false."""
    made = siglip(vision, tower_layers(vision))
    if not vision.flag("vision_use_head", default=True):
        return made
    model, path = whole(VISION, int(vision.integer("hidden_size"))), "vision_tower.vision_model.head"
    inner = even("vision intermediate_size", int(vision.integer("intermediate_size")))
    made += vector(f"{path}.probe", model)
    made += vector(f"{path}.attention.in_proj_weight", whole("query, key and value", 3), model, model)
    made += vector(f"{path}.attention.in_proj_bias", whole("query, key and value", 3), model)
    made += vector(f"{path}.attention.out_proj", model, model) + vector(
        f"{path}.attention.out_proj.bias", model
    )
    made += norm(f"{path}.layernorm", model, kind=LAYER)
    made += linear(f"{path}.mlp.fc1", inner, model, bias=True)
    return made + linear(f"{path}.mlp.fc2", model, inner, bias=True)
