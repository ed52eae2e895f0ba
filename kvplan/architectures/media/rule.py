"""How a model's processor counts tokens: the fields of the row that a lineage has.

Constants that no config has are those of the published preprocessor_config.json, which the source names;
defaults of keys are those of the configuration classes (huggingface/transformers 5.23).
"""

from __future__ import annotations

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
    """How the processor counts."""

    image: str = ""
    """image, video, audio: names in `counting.COUNTS`; empty: not taken"""
    video: str = ""
    audio: str = ""
    patch: Key = ("vision_config.patch_size", None)
    """patch, merge: keys of the patch's side and of the patches that join to one token"""
    merge: Key = ("vision_config.spatial_merge_size", 2)
    temporal: Key = ("vision_config.temporal_patch_size", 2)
    pixels: Pixels | None = None
    """of an image"""
    video_pixels: Pixels | None = None
    """of a frame, or of all frames"""
    tokens: Key = ("", None)
    """the key of a fixed number"""
    audio_tokens: Key = ("", None)
    tile: Key = ("vision_config.image_size", None)
    """tile, tiles: the key of a tile's side and most tiles"""
    tiles: int = 1
    needs_size: bool = True
    source: str = ""
    """where the constants come from"""
