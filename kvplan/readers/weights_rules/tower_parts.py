"""What vision towers share: the view of their config, encoder layers, CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import KvplanError
from kvplan.readers.defaults import class_facts
from kvplan.readers.view import ConfigView
from kvplan.readers.weights_rules.parts import LAYER, Tensors, even, linear, norm, norms, vector, whole
from kvplan.weights.inventory import Place, Placed, Tensor


def vision_view(raw: Mapping[str, Any], key: str = "vision_config") -> ConfigView:
    """The tower's config with its class's defaults. Raises KvplanError(missing-key)."""
    inner = raw.get(key)
    if not isinstance(inner, Mapping):
        raise KvplanError("missing-key", f"the config has no {key}", help="add it: a value is never guessed")
    facts = class_facts(str(raw.get("model_type"))) or {}
    declared = facts.get("sub_configs", {}).get(key)
    own = declared.get("type") if isinstance(declared, Mapping) else declared
    word = inner.get("model_type")
    # A wrapper's own word stands in some files (qwen3_vl); the class that it declares has the defaults.
    name = str(word) if isinstance(word, str) and class_facts(word) is not None and own is None else str(own or word)
    if isinstance(declared, Mapping) and declared.get("auto") and isinstance(word, str):
        name = word
    known = class_facts(name) or {}
    return ConfigView(
        inner, model_type=name, defaults=known.get("defaults", {}), aliases=known.get("aliases"), path=f"{key}."
    )


def placed(tensors: Tensors, place: Place = Place.EVERY) -> list[Placed]:
    return [Placed(place, tensor) for tensor in tensors]


def repeated(path: str, layer: Tensors, count: int) -> Tensors:
    """count equal layers under a path."""
    return tuple(
        Tensor(f"{path}.{index}.{tensor.name}", tensor.rows, tensor.columns, tensor.stack, tensor.role, tensor.dtype)
        for index in range(count)
        for tensor in layer
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
    """Attention of every head for itself, a perceptron, norms. divided False: the perceptron is kept whole."""
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
    made = linear(f"{path}.patch_embedding", model, size) if as_linear else vector(f"{path}.patch_embedding", model, *size)
    return made + vector(f"{path}.patch_embedding.bias", model) if bias else made


def _positions(vision: ConfigView) -> int:
    return (int(vision.integer("image_size")) // int(vision.integer("patch_size"))) ** 2


def clip_layers(vision: ConfigView, layers: int) -> Tensors:
    """CLIP's vision transformer, the layers that the features need; no final norm when some are left out."""
    hidden, path = int(vision.integer("hidden_size")), "vision_tower.vision_model"
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(hidden, int(vision.integer("num_attention_heads")), int(vision.integer("intermediate_size")))
    made = vector(f"{path}.embeddings.class_embedding", model)
    made += _patches(vision, f"{path}.embeddings", bias=False)
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", _positions(vision) + 1), model)
    made += norm(f"{path}.pre_layrnorm", model, kind=LAYER)
    made += repeated(f"{path}.encoder.layers", layer, layers)
    complete = layers == int(vision.integer("num_hidden_layers"))
    return made + (norm(f"{path}.post_layernorm", model, kind=LAYER) if complete else ())


def siglip(vision: ConfigView, layers: int, *, patches_as_linear: bool = False) -> Tensors:
    """SigLIP's vision transformer; SigLIP 2 takes flattened patches and num_patches positions."""
    hidden, path = int(vision.integer("hidden_size")), "vision_tower.vision_model"
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(hidden, int(vision.integer("num_attention_heads")), int(vision.integer("intermediate_size")))
    rows = int(vision.integer("num_patches")) if patches_as_linear else _positions(vision)
    made = _patches(vision, f"{path}.embeddings", bias=True, as_linear=patches_as_linear)
    made += vector(f"{path}.embeddings.position_embedding", whole("positions", rows), model)
    made += repeated(f"{path}.encoder.layers", layer, layers)
    complete = layers == int(vision.integer("num_hidden_layers"))
    return made + (norm(f"{path}.post_layernorm", model, kind=LAYER) if complete else ())
