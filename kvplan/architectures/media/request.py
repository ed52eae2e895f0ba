"""Media of a request as options give them, and the settings with their tokens.

From what a request carries to tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvplan.architectures.config.view import split_quant
from kvplan.architectures.lineages import lineage_of
from kvplan.architectures.media.asked import Asked, Media, MediaTokens, unknown
from kvplan.architectures.media.counting import COUNTS, CROSS
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import Json, replace
from kvplan.settings import Settings

_OTHER_KEYS = (
    "image_grid_pinpoints",
    "vision_feature_select_strategy",
    "vision_config.pixel_shuffle_ratio",
    "vision_config.model_type",
)


_LONGEST = 10**6
_PIXELS = regex(r"(\d{1,6})\s*[xX×]\s*(\d{1,6})", re.ASCII)


def parse_pixels(value: Any) -> tuple[int, int]:
    """``1280x720`` (or a pair) as width and height. Raises KvplanError(bad-setting)."""
    found = _PIXELS.fullmatch(value.strip()) if isinstance(value, str) else None
    pair = found.groups() if found else value
    try:
        width, height = (0, 0) if isinstance(pair, str) else (int(side) for side in pair)
    except (TypeError, ValueError):
        width = height = 0
    if width < 1 or height < 1:
        raise KvplanError("bad-setting", f"image_size is {value!r}", help="width x height: 1280x720")
    return width, height


def _seconds(value: Any) -> Fraction:
    try:
        found = Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if not 0 <= found <= _LONGEST:
        raise KvplanError("bad-setting", f"audio_seconds is {value!r}, not a number", help="for example 12.5")
    return found


def with_media(model: Model, settings: Settings, given: Json) -> Settings:
    """The settings with the tokens that images, video and audio add; ``tokens`` counts text before.

    Without ``tokens`` the request is as long as the model takes, media included. Raises KvplanError
    (no-media-rule | bad-setting).
    """
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        return settings
    if "image_size" in values:
        values["image_size"] = parse_pixels(values["image_size"])
    if "audio_seconds" in values:
        values["audio_seconds"] = _seconds(values["audio_seconds"])
    for name in ("images", "video_frames", "min_pixels", "max_pixels"):
        if name in values and (not isinstance(values[name], int) or values[name] < 0):
            raise KvplanError("bad-setting", f"{name} is {values[name]!r}, not a whole number")
    found = media_tokens(model, Media(**values))
    shown: dict[str, object] = {name: _shown_media(value) for name, value in values.items()}
    shown.update({f"{kind}_tokens": amount for kind, amount in found.prompt})
    tokens = settings.tokens
    if tokens is not None:
        shown["text_tokens"] = tokens
        tokens += found.total
    elif model.max_model_len is not None and found.total >= model.max_model_len:
        raise KvplanError(
            "bad-setting",
            f"images, video and audio take {found.total:,} tokens, and {model.id} at most"
            f" {model.max_model_len:,} in all",
        )
    encoder = settings.encoder_tokens if found.encoder is None else found.encoder
    return replace(settings, tokens=tokens, encoder_tokens=encoder, media=tuple(shown.items()))


def _shown_media(value: Any) -> object:
    if isinstance(value, tuple):
        return f"{value[0]}x{value[1]}"
    return float(value) if isinstance(value, Fraction) else value


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


def _has_parts(config: Json) -> bool:
    return any(
        config.get(key) for key in ("vision_config", "audio_config", "img_processor", "thinker_config")
    )
