"""Qwen's vision and audio wrappers: their towers, and how an image becomes tokens.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/qwen2_vl.py, qwen2_5_vl.py, qwen3_vl.py,
qwen2_audio.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.parts import LAYER, Tensors, even, keyed, linear, norm, norms, vector, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.blocks.tower import (
    AUDIO,
    Raw,
    encoder_layer,
    placed,
    qwen_patches,
    repeated,
    tower_layers,
    under,
    vision_view,
)
from kvplan.architectures.config.view import MAX_FACTOR, ConfigView
from kvplan.architectures.media.rule import Pixels, Rule
from kvplan.architectures.registry import lineage
from kvplan.weights.inventory import Placed


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
    made = qwen_patches(vision, bias=False)
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
    made = qwen_patches(vision, bias=True)
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


def _qwen2(raw: Raw, view: ConfigView) -> list[Placed]:
    """Qwen2-VL: layer norms, a plain perceptron, one merger of spatial_merge_size² patches."""
    vision = vision_view(raw)
    hidden, out = int(vision.integer("embed_dim")), int(vision.integer("hidden_size"))
    patch, frames = int(vision.integer("patch_size")), int(vision.integer("temporal_patch_size"))
    merge = int(vision.integer("spatial_merge_size", highest=MAX_FACTOR))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        int(vision.factor("mlp_ratio", 4) * hidden),
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


_QWEN2 = Rule(
    "merged",
    "merged_frames",
    patch=("vision_config.patch_size", 14),
    pixels=Pixels(3136, 12_845_056),
    video_pixels=Pixels(128 * 28 * 28, 28 * 28 * 768),
    source="Qwen/Qwen2.5-VL-7B-Instruct preprocessor_config.json",
)

_QWEN3 = Rule(
    "merged",
    "merged_volume",
    patch=("vision_config.patch_size", 16),
    pixels=Pixels(65_536, 16_777_216),
    video_pixels=Pixels(4096, 25_165_824),
    source="Qwen/Qwen3-VL-8B-Instruct preprocessor_config.json, video_preprocessor_config.json",
)


lineage("qwen2_vl", tower=_qwen2, media=_QWEN2)
lineage("qwen2_5_vl", tower=_qwen25, media=_QWEN2)
lineage("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen4_exp", tower=_qwen3, media=_QWEN3)
lineage(
    "qwen2_audio",
    tower=_qwen2_audio,
    media=Rule(audio="halved_twice", source="mel frames of 10 ms, at most 30 s"),
)
