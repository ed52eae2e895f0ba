"""GLM-4V's towers, and how an image becomes tokens.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/glm4_1v.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.parts import LAYER, even, linear, norm, vector, whole
from kvplan.architectures.blocks.tower import (
    Raw,
    encoder_layer,
    placed,
    qwen_patches,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.media.rule import Pixels, Rule
from kvplan.architectures.registry import lineage
from kvplan.weights.inventory import Placed


def _glm4v(raw: Raw, view: ConfigView) -> list[Placed]:
    """GLM-4.5V: gated perceptrons as wide as the text model, a downsampling convolution, a gated merger."""
    vision = vision_view(raw)
    hidden, out = int(vision.integer("hidden_size")), int(vision.integer("out_hidden_size"))
    model, text = whole("vision hidden_size", hidden), whole("out_hidden_size", out)
    patch, merge = int(vision.integer("patch_size")), int(vision.optional_integer("spatial_merge_size") or 2)
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        out,
        gated=True,
        bias=False,
        kind="rms",
        names=("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj"),
        mlp_names=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        norm_names=("norm1", "norm2"),
    )
    rows = (int(vision.integer("image_size")) // patch) ** 2
    made = qwen_patches(vision, bias=True)
    made += vector("visual.embeddings.position_embedding", whole("positions", rows), model)
    made += norm("visual.post_conv_layernorm", model) + norm("visual.post_layernorm", model)
    made += repeated("visual.blocks", layer, tower_layers(vision, "depth"))
    made += vector("visual.downsample", text, model, whole("merged patches", merge**2))
    made += vector("visual.downsample.bias", text)
    between = even("intermediate_size", int(vision.integer("intermediate_size")))
    made += linear("visual.merger.proj", even("out_hidden_size", out), text)
    made += norm("visual.merger.post_projection_norm", text, kind=LAYER)
    made += linear("visual.merger.gate_proj", between, text) + linear("visual.merger.up_proj", between, text)
    return placed(made + linear("visual.merger.down_proj", text, between))


_GLM = Rule(
    "merged_pair",
    patch=("vision_config.patch_size", 14),
    pixels=Pixels(12_544, 9_633_792),
    source="zai-org/GLM-4.5V preprocessor_config.json",
)


lineage("glm4v", "glm4v_moe", tower=_glm4v, media=_GLM)
lineage("glm46v", "glmga", tower=_glm4v)
