"""From what a request carries to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import split_quant
from kvplan.architectures.lineages import lineage_of
from kvplan.architectures.media.asked import Asked, Media, MediaTokens, unknown
from kvplan.architectures.media.counting import COUNTS, CROSS
from kvplan.model import Model


def media_tokens(model: Model, media: Media) -> MediaTokens:
    """The tokens of every kind. Raises KvplanError(no-media-rule | bad-setting)."""
    config = split_quant(model.config)[0] if model.config else {}
    kind = str(config.get("model_type") or model.model_type)
    vision = config.get("vision_config")
    if kind == "llava" and isinstance(vision, Mapping) and vision.get("model_type") == "pixtral":
        kind = "pixtral"
    rule = lineage_of(kind).media
    if not config and (rule is None or rule.image):
        raise unknown(model, "its card has no config (give its config.json)")
    if rule is None:
        raise unknown(model, "its rule is not known" if _has_parts(config) else "it takes text only")
    asked = Asked(model, config, rule, media)
    prompt: list[tuple[str, int]] = []
    encoder: int | None = None
    for name, count, function in (
        ("image", media.images, rule.image),
        ("video", int(media.video_frames > 0), rule.video),
        ("audio", int(media.audio_seconds > 0), rule.audio),
    ):
        if not count:
            continue
        if not function:
            raise unknown(model, f"how it counts {name} is not known, or it takes none")
        amount = count * COUNTS[function](asked)
        if function in CROSS:
            encoder = (encoder or 0) + amount
        else:
            prompt.append((name, amount))
    return MediaTokens(tuple(prompt), encoder)


def _has_parts(config: Mapping[str, Any]) -> bool:
    return any(
        config.get(key) for key in ("vision_config", "audio_config", "img_processor", "thinker_config")
    )


def media_keys(config: Mapping[str, Any]) -> None:
    """Ask a config for every key that its rule reads, so that a card keeps them."""
    rule = lineage_of(str(config.get("model_type", ""))).media
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
