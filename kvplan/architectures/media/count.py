"""From what a request carries to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.quant_file import split_quant
from kvplan.architectures.media.asked import Asked, Media, MediaTokens, unknown
from kvplan.architectures.media.counting import COUNTS, CROSS
from kvplan.architectures.media.rules import RULES
from kvplan.model import Model


def media_tokens(model: Model, media: Media) -> MediaTokens:
    """The tokens of every kind. Raises KvplanError(no-media-rule | bad-setting)."""
    config = split_quant(model.config)[0] if model.config else {}
    kind = str(config.get("model_type") or model.model_type)
    vision = config.get("vision_config")
    if kind == "llava" and isinstance(vision, Mapping) and vision.get("model_type") == "pixtral":
        kind = "pixtral"
    rule = RULES.get(kind)
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
