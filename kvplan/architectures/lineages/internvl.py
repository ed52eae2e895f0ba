"""InternVL and Intern-S1: InternViT beside any decoder, a quarter of its patches through two matrices.

Source: vllm-project/vllm 0.33 vllm/model_executor/models/intern_vit.py, internvl.py, interns1_vit.py,
interns1.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.parts import LAYER, Tensors, even, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.blocks.tower import (
    VISION,
    Raw,
    placed,
    repeated,
    tower_layers,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.custom_types import VLLM_MODELS, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import lineage
from kvplan.weights.inventory import Dim, Placed


def _side(view: ConfigView, key: str) -> int:
    """A side in pixels: one number, or two equal ones."""
    given = view.get(key)
    if isinstance(given, (list, tuple)) and len(given) == 2 and given[0] == given[1]:
        return int(view.with_values({key: given[0]}).integer(key))
    return int(view.integer(key))


def _patches(vision: ConfigView, path: str, *, first: str, positions: str, patches: str) -> Tensors:
    """The first token, a convolution over patches, and a place for each of them and the first."""
    model = whole(VISION, int(vision.integer("hidden_size")))
    patch, channels = _side(vision, "patch_size"), int(vision.optional_integer("num_channels") or 3)
    grid = (_side(vision, "image_size") // patch) ** 2
    made = vector(f"{path}.{first}", model)
    made += vector(f"{path}.{patches}", model, whole("channels", channels), whole("patch_size²", patch**2))
    made += vector(f"{path}.{patches}.bias", model)
    return made + vector(f"{path}.{positions}", whole("positions", grid + 1), model)


def _perceptron(vision: ConfigView, model: Dim) -> Tensors:
    inner = even("vision intermediate_size", int(vision.integer("intermediate_size")))
    return linear("mlp.fc1", inner, model, bias=True) + linear("mlp.fc2", model, inner, bias=True)


def _merged(raw: Raw, view: ConfigView, hidden: int, names: tuple[str, str, str]) -> Tensors:
    """A norm and two matrices, whole on every rank, over as many patches as downsample_ratio joins."""
    ratio = wrapper_view(raw).divisor("downsample_ratio", 0.5)
    wide = whole("merged width", hidden * int(1 / ratio) ** 2)
    text = whole("hidden_size", hidden_size(view))
    before, first, second = names
    made = norm(before, wide, kind=LAYER) + linear(first, text, wide, bias=True)
    return made + linear(second, text, text, bias=True)


def _internvl_chat(raw: Raw, view: ConfigView) -> list[Placed]:
    """The published checkpoints' own names. select_layer -1 (the class's default): every layer is built."""
    vision, path = vision_view(raw), "vision_model"
    hidden, heads = int(vision.integer("hidden_size")), int(vision.integer("num_attention_heads"))
    chosen = raw.get("select_layer", -1)
    if chosen != -1:
        raise wrapper_view(raw).refuse("select_layer", "only the last layer is known")
    model = whole(VISION, hidden)
    # An odd number of heads cannot be divided by two: vLLM then keeps attention whole (disable_tp).
    count = even("vision heads", heads) if heads % 2 == 0 else whole("vision heads", heads)
    both = (count, whole("vision head_dim", hidden // heads))
    layer: Tensors = ()
    for _ in range(3):
        layer += linear("attn.qkv", both, model, bias=vision.flag("qkv_bias"))
    layer += linear("attn.proj", model, both, bias=True) + _perceptron(vision, model)
    if vision.flag("qk_normalization"):
        layer += norms(("attn.q_norm", "attn.k_norm"), model)
    kind = "rms" if vision.word("norm_type") == "rms_norm" else LAYER
    layer += norms(("norm1", "norm2"), model, kind) + vector("ls1", model) + vector("ls2", model)
    names = {"first": "class_embedding", "positions": "position_embedding", "patches": "patch_embedding"}
    made = _patches(vision, f"{path}.embeddings", **names)
    made += repeated(f"{path}.encoder.layers", layer, tower_layers(vision))
    return placed(made + _merged(raw, view, hidden, ("mlp1.0", "mlp1.1", "mlp1.3")))


def _internvl(raw: Raw, view: ConfigView) -> list[Placed]:
    """transformers' names (InternVL-hf, Intern-S1); vLLM keeps attention whole on every rank."""
    vision, path = vision_view(raw), "vision_tower"
    hidden = int(vision.integer("hidden_size"))
    model = whole(VISION, hidden)
    layer: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        layer += linear(f"attention.{name}", model, model, bias=vision.flag("attention_bias"))
    layer += linear("attention.projection_layer", model, model, bias=True) + _perceptron(vision, model)
    if vision.flag("use_qk_norm"):
        layer += norms(("attention.q_norm", "attention.k_norm"), model)
    kind = "rms" if vision.word("norm_type") == "rms_norm" else LAYER
    layer += norms(("layernorm_before", "layernorm_after"), model, kind)
    layer += vector("lambda_1", model) + vector("lambda_2", model)
    names = {
        "first": "cls_token",
        "positions": "position_embeddings",
        "patches": "patch_embeddings.projection",
    }
    made = _patches(vision, f"{path}.embeddings", **names)
    made += repeated(f"{path}.encoder.layer", layer, tower_layers(vision))
    if not vision.flag("use_mean_pooling", default=True):
        made += norm(f"{path}.layernorm", model, kind=LAYER)
    path = "multi_modal_projector"
    return placed(
        made + _merged(raw, view, hidden, (f"{path}.layer_norm", f"{path}.linear_1", f"{path}.linear_2"))
    )


lineage(
    "internvl",
    tower=_internvl,
    media=Rule(
        "ratio_tiles",
        tokens=("image_seq_length", 256),
        tile=("vision_config.image_size", 448),
        tiles=12,
        source="OpenGVLab/InternVL3-8B-hf preprocessor_config.json: 1 to 12 tiles and a thumbnail",
    ),
)
lineage("internvl_chat", reads=wrapper_of(VLLM_MODELS + "internvl.py", "llm_config"), tower=_internvl_chat)
lineage("interns1", reads=wrapper_of(VLLM_MODELS + "interns1.py"), tower=_internvl)
