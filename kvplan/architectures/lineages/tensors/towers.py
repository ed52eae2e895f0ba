"""Vision towers and projectors: what a multimodal wrapper has beside its text decoder.

vLLM builds them on every pipeline stage and divides their matrices like the decoder's. Source:
vllm-project/vllm vllm/model_executor/models/ (0.32): clip.py, siglip.py, siglip2.py, pixtral.py, llava.py,
mistral3.py, gemma3_mm.py, lfm2_vl.py, qwen2_5_vl.py, qwen3_vl.py, glm4_1v.py, kimi_k25.py, mllama4.py,
gemma4_mm.py, muse_glimmer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    Tensors,
    even,
    keyed,
    linear,
    norm,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import hidden_size
from kvplan.architectures.lineages.tensors.registry import TOWERS
from kvplan.architectures.lineages.tensors.tower_parts import (
    clip_layers,
    encoder_layer,
    placed,
    repeated,
    siglip,
    tower_layers,
    under,
    vision_view,
    wrapper_view,
)
from kvplan.errors import KvplanError
from kvplan.weights.inventory import Placed

Raw = Mapping[str, Any]


def _projector(
    view: ConfigView, into: int, between: int, *, bias: bool, path: str = "multi_modal_projector"
) -> Tensors:
    """linear_1 (column parallel) and linear_2 (row parallel)."""
    inner, out = even("projector width", between), whole("hidden_size", hidden_size(view))
    made = linear(f"{path}.linear_1", inner, whole("vision width", into), bias=bias)
    return made + linear(f"{path}.linear_2", out, inner, bias=bias)


def _feature_layers(raw: Raw, count: int) -> int:
    """How many tower layers vision_feature_layer needs: -2 leaves the last one out."""
    chosen = raw.get("vision_feature_layer")
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        return count
    return max(0, min(count, count + 1 + chosen if chosen < 0 else chosen))


def _pixtral(vision: ConfigView) -> Tensors:
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


def _llava(raw: Raw, view: ConfigView) -> list[Placed]:
    """CLIP, SigLIP or Pixtral, then two projections; the layers after the chosen features are not loaded."""
    vision = vision_view(raw)
    hidden = int(vision.integer("hidden_size"))
    if vision.model_type == "pixtral":
        made = _pixtral(vision)
    elif vision.model_type == "clip_vision_model":
        made = clip_layers(vision, _feature_layers(raw, tower_layers(vision)))
    elif vision.model_type == "siglip_vision_model":
        made = siglip(vision, _feature_layers(raw, tower_layers(vision)))
    else:
        raise _unknown_tower(vision.model_type)
    bias = wrapper_view(raw).flag("multimodal_projector_bias", default=True)
    return placed(made + _projector(view, hidden, hidden_size(view), bias=bias))


def _mistral3(raw: Raw, view: ConfigView) -> list[Placed]:
    """Pixtral, a merger of spatial_merge_size² patches, two projections."""
    vision = vision_view(raw)
    top, hidden = wrapper_view(raw), int(vision.integer("hidden_size"))
    merge = int(top.optional_integer("spatial_merge_size") or 2)
    model, path = whole("vision hidden_size", hidden), "multi_modal_projector"
    made = _pixtral(vision) + norm(f"{path}.norm", model)
    made += linear(f"{path}.patch_merger.merging_layer", model, (whole("merged patches", merge**2), model))
    bias = top.flag("multimodal_projector_bias")
    return placed(made + _projector(view, hidden, hidden_size(view), bias=bias))


def _gemma3(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP, a norm and one projection."""
    vision = vision_view(raw)
    width = whole("vision hidden_size", int(vision.integer("hidden_size")))
    made = siglip(vision, tower_layers(vision))
    made += vector(
        "multi_modal_projector.mm_input_projection_weight", width, whole("hidden_size", hidden_size(view))
    )
    return placed(made + norm("multi_modal_projector.mm_soft_emb_norm", width))


def _lfm2(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP 2 over patches, downsampled, then two projections that every rank has whole."""
    vision = vision_view(raw)
    top, hidden = wrapper_view(raw), int(vision.integer("hidden_size"))
    factor, bias = (
        int(top.optional_integer("downsample_factor") or 2),
        top.flag("projector_bias", default=True),
    )
    inner = int(top.optional_integer("projector_hidden_size") or 2560)
    text = whole("hidden_size", hidden_size(view))
    wide, middle = (
        whole("vision width × downsample_factor²", hidden * factor**2),
        whole("projector width", inner),
    )
    made = siglip(vision, tower_layers(vision), patches_as_linear=True)
    if top.flag("projector_use_layernorm", default=True):
        made += norm("multi_modal_projector.layer_norm", wide, kind=LAYER)
    made += linear("multi_modal_projector.linear_1", middle, wide, bias=bias)
    return placed(made + linear("multi_modal_projector.linear_2", text, middle, bias=bias))


def _qwen_patches(vision: ConfigView, *, bias: bool) -> Tensors:
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


def _qwen25(raw: Raw, view: ConfigView) -> list[Placed]:
    """Qwen2.5-VL: RMS norms, a gated perceptron, one merger of spatial_merge_size² patches."""
    vision = vision_view(raw)
    hidden, merge = (
        int(vision.integer("hidden_size")),
        int(vision.optional_integer("spatial_merge_size") or 2),
    )
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        int(vision.integer("intermediate_size")),
        gated=True,
        bias=True,
        kind="rms",
        names=("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj"),
        mlp_names=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        norm_names=("norm1", "norm2"),
    )
    made = _qwen_patches(vision, bias=False)
    made += repeated("visual.blocks", layer, tower_layers(vision, "depth"))
    wide, narrow = whole("merged width", hidden * merge**2), even("merged width", hidden * merge**2)
    made += norm("visual.merger.ln_q", whole("vision hidden_size", hidden))
    made += linear("visual.merger.mlp.0", narrow, wide, bias=True)
    return placed(
        made + linear("visual.merger.mlp.2", whole("out_hidden_size", hidden_size(view)), narrow, bias=True)
    )


def _qwen3(raw: Raw, view: ConfigView) -> list[Placed]:
    """Qwen3-VL and Qwen3.5: layer norms, learnt positions, a merger, one more a deepstack layer."""
    vision = vision_view(raw)
    hidden, merge = (
        int(vision.integer("hidden_size")),
        int(vision.optional_integer("spatial_merge_size") or 2),
    )
    model = whole("vision hidden_size", hidden)
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        int(vision.integer("intermediate_size")),
        names=("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj"),
        mlp_names=("", "mlp.linear_fc1", "mlp.linear_fc2"),
        norm_names=("norm1", "norm2"),
    )
    made = _qwen_patches(vision, bias=True)
    positions = keyed(vision, "num_position_embeddings")
    made += vector("visual.pos_embed", positions, model)
    made += repeated("visual.blocks", layer, tower_layers(vision, "depth"))
    wide, narrow = whole("merged width", hidden * merge**2), even("merged width", hidden * merge**2)
    out = whole("out_hidden_size", int(vision.optional_integer("out_hidden_size") or hidden_size(view)))
    deep = vision.sequence("deepstack_visual_indexes") or []
    mlp = linear("linear_fc1", narrow, wide, bias=True) + linear("linear_fc2", out, narrow, bias=True)
    made += under("visual.merger", norm("norm", model, kind=LAYER) + mlp)
    return placed(
        made + repeated("visual.deepstack_merger_list", norm("norm", wide, kind=LAYER) + mlp, len(deep))
    )


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
    made = _qwen_patches(vision, bias=True)
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


def _unknown_tower(model_type: str) -> KvplanError:
    return KvplanError(
        "no-weights",
        f"the weights of the vision tower {model_type[:80]!r} cannot be derived from its config",
        help=(
            "put the checkpoint's model.safetensors.index.json or its safetensors files beside the config",
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )


TOWERS.update(
    {
        "llava": _llava,
        "mistral3": _mistral3,
        "ministral3": lambda raw, view: _mistral3(raw, view) if raw.get("vision_config") else [],
        "gemma3": _gemma3,
        "lfm2_vl": _lfm2,
        "qwen2_5_vl": _qwen25,
        "qwen3_vl": _qwen3,
        "qwen3_vl_moe": _qwen3,
        "qwen3_5": _qwen3,
        "qwen3_5_moe": _qwen3,
        "glm4v": _glm4v,
        "glm4v_moe": _glm4v,
    }
)
