"""Which rule a model's processor follows, with its constants: one row a model type.

Constants that no config has are those of the published preprocessor_config.json, which the source names;
defaults of keys are those of the configuration classes (huggingface/transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.record import record

Key = tuple[str, int | None]
"""A key of the config, with dots, and its class's default (None: it must be there)."""


@record()
class Pixels:
    """Least and most pixels of an image."""

    least: int
    most: int


@record()
class Rule:
    """How the processor counts. image, video, audio: names of functions in `count`; empty: not taken.

    patch, merge: keys of the patch's side and of the patches that join to one token. pixels: of an image;
    video_pixels: of a frame, or of all frames. tokens: the key of a fixed number. tile, tiles: the key of a
    tile's side and most tiles. source: where the constants come from.
    """

    image: str = ""
    video: str = ""
    audio: str = ""
    patch: Key = ("vision_config.patch_size", None)
    merge: Key = ("vision_config.spatial_merge_size", 2)
    temporal: Key = ("vision_config.temporal_patch_size", 2)
    pixels: Pixels | None = None
    video_pixels: Pixels | None = None
    tokens: Key = ("", None)
    audio_tokens: Key = ("", None)
    tile: Key = ("vision_config.image_size", None)
    tiles: int = 1
    needs_size: bool = True
    source: str = ""


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
_GLM = Rule(
    "merged_pair",
    patch=("vision_config.patch_size", 14),
    pixels=Pixels(12_544, 9_633_792),
    source="zai-org/GLM-4.5V preprocessor_config.json",
)
_PIXTRAL = Rule("rows", merge=("spatial_merge_size", 1), source="Pixtral: longest_edge is image_size")
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), _QWEN2),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _QWEN3),
    **dict.fromkeys(("glm4v", "glm4v_moe"), _GLM),
    "pixtral": _PIXTRAL,
    "mistral3": Rule("rows", merge=("spatial_merge_size", 2), source="longest_edge is image_size"),
    "llava": Rule("one_tile", needs_size=False, source="crop_size is image_size"),
    "llava_next": Rule("anyres", source="image_grid_pinpoints of the config"),
    "internvl": Rule(
        "ratio_tiles",
        tokens=("image_seq_length", 256),
        tile=("vision_config.image_size", 448),
        tiles=12,
        source="OpenGVLab/InternVL3-8B-hf preprocessor_config.json: 1 to 12 tiles and a thumbnail",
    ),
    "llama4": Rule(
        "scale_tiles",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 448),
        tiles=16,
        source="meta-llama/Llama-4-Scout-17B-16E-Instruct preprocessor_config.json: up to 16 tiles",
    ),
    "gemma3": Rule("fixed", tokens=("mm_tokens_per_image", 256), needs_size=False, source="no pan and scan"),
    "gemma3n": Rule(
        "fixed",
        audio="fixed_audio",
        tokens=("vision_soft_tokens_per_image", 256),
        audio_tokens=("audio_soft_tokens_per_image", 188),
        needs_size=False,
        source="every image, and every audio, takes the same",
    ),
    "gemma4": Rule(
        "pools",
        patch=("vision_config.patch_size", 16),
        merge=("vision_config.pooling_kernel_size", 3),
        tokens=("vision_soft_tokens_per_image", 280),
        source="max_soft_tokens is vision_soft_tokens_per_image",
    ),
    "paligemma": Rule(
        "one_tile_plain",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 224),
        needs_size=False,
        source="image_seq_length: every patch",
    ),
    "mllama": Rule(
        "cross_tiles",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 448),
        tokens=("vision_config.max_num_tiles", 4),
        needs_size=False,
        source="cross attention over max_num_tiles tiles of every image",
    ),
    "qwen2_audio": Rule(audio="halved_twice", source="mel frames of 10 ms, at most 30 s"),
    "voxtral": Rule(audio="chunks", source="375 tokens for every started 30 s"),
    "whisper": Rule(audio="encoder_window", source="one window of 30 s, max_source_positions"),
}


def media_keys(config: Mapping[str, Any]) -> None:
    """Ask a config for every key that its rule reads, so that a card keeps them."""
    rule = RULES.get(str(config.get("model_type", "")))
    if rule is None:
        return
    read = [
        key for key, _ in (rule.patch, rule.merge, rule.temporal, rule.tokens, rule.audio_tokens, rule.tile)
    ]
    for path in (*read, *_OTHER_KEYS):
        found: Any = config
        for step in path.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None


_OTHER_KEYS = (
    "image_grid_pinpoints",
    "vision_feature_select_strategy",
    "vision_config.pixel_shuffle_ratio",
    "vision_config.model_type",
)
