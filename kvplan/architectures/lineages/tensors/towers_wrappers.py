"""More wrappers around towers that other files know: SigLIP, CLIP, Pixtral, Qwen2's and GLM's.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/ (llava_next.py, llava_onevision.py, paligemma.py,
aya_vision.py, cohere2_vision.py, idefics3.py, smolvlm.py, qwen2_vl.py, glm4_1v.py, qwen2_audio.py,
lightonocr.py); fuyu: huggingface/transformers 5.23.0 models/fuyu/modeling_fuyu.py.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.tensors.dense_more import DENSE
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    Tensors,
    even,
    keyed,
    linear,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import hidden_size
from kvplan.architectures.lineages.tensors.registry import DECODERS, TOWERS
from kvplan.architectures.lineages.tensors.tower_parts import (
    VISION_DEFAULTS,
    encoder_layer,
    placed,
    repeated,
    siglip,
    tower_layers,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.lineages.tensors.towers import Raw, _glm4v, _llava, _mistral3
from kvplan.weights.inventory import Placed

_IDEFICS = {"patch_size": 32, "image_size": 224, "num_channels": 3}
VISION_DEFAULTS.update(
    {
        "idefics3_vision": _IDEFICS,
        "smolvlm_vision": _IDEFICS,
        "qwen2_vl_vision": {
            "patch_size": 14, "in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "embed_dim": 1280, "mlp_ratio": 4,
        },
        "qwen2_audio_encoder": {"num_mel_bins": 128, "max_source_positions": 1500},
    }
)  # fmt: skip
VISION, AUDIO, FACTOR = "vision hidden_size", "d_model", 2
_MAX_FACTOR = 64


def _newline(raw: Raw, view: ConfigView) -> list[Placed]:
    """LLaVA's tower and projections, and one embedding for the end of a row of tiles."""
    return _llava(raw, view) + placed(vector("image_newline", whole("hidden_size", hidden_size(view))))


def _with_head(vision: ConfigView) -> Tensors:
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


def _paligemma(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP and one projection."""
    vision = vision_view(raw)
    out = whole("projection_dim", int(vision.optional_integer("projection_dim") or hidden_size(view)))
    into = whole(VISION, int(vision.integer("hidden_size")))
    return placed(_with_head(vision) + linear("multi_modal_projector.linear", out, into, bias=True))


def _shuffled(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP, factor² patches side by side, a gated pair of projections (Aya Vision: a norm before)."""
    vision, top = vision_view(raw), wrapper_view(raw)
    factor = int(top.optional_integer("downsample_factor", highest=_MAX_FACTOR) or FACTOR)
    wide = whole("patches side by side", int(vision.integer("hidden_size")) * factor**2)
    usual = hidden_size(view) if top.model_type == "aya_vision" else 36_864
    between = int(top.optional_integer("alignment_intermediate_size") or usual)
    path = "multi_modal_projector"
    made = _with_head(vision)
    if top.model_type == "aya_vision":
        made += norm(f"{path}.layernorm", wide, kind=LAYER)
    made += linear(f"{path}.linear_1", even("projector width", between), wide, bias=True)
    half = even("projector width / 2", between // 2)
    return placed(made + linear(f"{path}.linear_2", whole("hidden_size", hidden_size(view)), half, bias=True))


def _idefics(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP's layers, scale_factor² patches into one projection without bias."""
    vision, top = vision_view(raw), wrapper_view(raw)
    factor = int(top.optional_integer("scale_factor", highest=_MAX_FACTOR) or FACTOR)
    wide = whole("patches side by side", int(vision.integer("hidden_size")) * factor**2)
    made = siglip(vision, tower_layers(vision))
    text = whole("hidden_size", hidden_size(view))
    return placed(made + linear("connector.modality_projection.proj", text, wide))


def _qwen2(raw: Raw, view: ConfigView) -> list[Placed]:
    """Qwen2-VL: layer norms, a plain perceptron, one merger of spatial_merge_size² patches."""
    vision = vision_view(raw)
    hidden, out = int(vision.integer("embed_dim")), int(vision.integer("hidden_size"))
    patch, frames = int(vision.integer("patch_size")), int(vision.integer("temporal_patch_size"))
    merge = int(vision.integer("spatial_merge_size", highest=_MAX_FACTOR))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        int(vision.get("mlp_ratio", default=4) * hidden),
        names=("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj"),
        norm_names=("norm1", "norm2"),
    )
    model = whole("vision embed_dim", hidden)
    size = (whole("channels × frames", int(vision.integer("in_channels", "in_chans")) * frames),)
    made = vector("visual.patch_embed.proj", model, *size, whole("patch_size²", patch**2))
    made += repeated("visual.blocks", layer, tower_layers(vision, "depth"))
    wide, narrow = whole("merged width", hidden * merge**2), even("merged width", hidden * merge**2)
    made += norm("visual.merger.ln_q", model, kind=LAYER)
    made += linear("visual.merger.mlp.0", narrow, wide, bias=True)
    return placed(made + linear("visual.merger.mlp.2", whole("hidden_size", out), narrow, bias=True))


def _fuyu(raw: Raw, view: ConfigView) -> list[Placed]:
    """Patches go straight into the decoder."""
    top, model = wrapper_view(raw), whole("hidden_size", hidden_size(view))
    patch = int(top.optional_integer("patch_size", highest=4096) or 30)
    channels = int(top.optional_integer("num_channels") or 3)
    return placed(linear("vision_embed_tokens", model, whole("patch", patch**2 * channels), bias=True))


def _qwen2_audio(raw: Raw, view: ConfigView) -> list[Placed]:
    """Whisper's encoder (no bias of the key) and one projection."""
    audio = vision_view(raw, "audio_config")
    hidden = int(audio.integer("d_model"))
    model, path = whole(AUDIO, hidden), "audio_tower"
    layer = encoder_layer(
        hidden,
        int(audio.integer("encoder_attention_heads")),
        int(audio.integer("encoder_ffn_dim")),
        mlp_names=("", "fc1", "fc2"),
        norm_names=("self_attn_layer_norm", "final_layer_norm"),
        key_bias=False,
    )
    made: Tensors = ()
    for name, into in (("conv1", keyed(audio, "num_mel_bins")), ("conv2", model)):
        made += vector(f"{path}.{name}", model, into, whole("kernel", 3)) + vector(
            f"{path}.{name}.bias", model
        )
    made += vector(f"{path}.embed_positions", keyed(audio, "max_source_positions"), model)
    made += repeated(f"{path}.layers", layer, tower_layers(audio, "encoder_layers"))
    made += norms((f"{path}.layer_norm",), model, LAYER)
    text = whole("hidden_size", hidden_size(view))
    return placed(made + linear("multi_modal_projector.linear", text, model, bias=True))


TOWERS.update(
    {
        "llava_next": _newline,
        "llava_onevision": _newline,
        "paligemma": _paligemma,
        "aya_vision": _shuffled,
        "cohere2_vision": _shuffled,
        "idefics3": _idefics,
        "smolvlm": _idefics,
        "lighton_ocr": _mistral3,
        "qwen2_vl": _qwen2,
        "glm46v": _glm4v,
        "glmga": _glm4v,
        "fuyu": _fuyu,
        "qwen2_audio": _qwen2_audio,
    }
)
DECODERS["glm4v_text"] = replace(DENSE["glm4"], qkv_bias=True)
