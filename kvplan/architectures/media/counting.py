"""The counting functions that the table of rules names: tokens of one image, one video, one audio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil

from kvplan.architectures.config.view import check_integer, check_number
from kvplan.architectures.media.asked import Asked, unknown
from kvplan.architectures.media.sizes import (
    best_pinpoint,
    grown,
    pooled,
    smart_resize,
    tiles_by_ratio,
    tiles_by_scale,
    unpadded,
    within,
)
from kvplan.errors import KvplanError
from kvplan.units import ceil_div

MAX_SIDE = 1_048_576
FRAMES_PER_SECOND = 100
"""Mel frames: a hop of 160 samples at 16 kHz."""
WINDOW_SECONDS = 30


def _merged(asked: Asked) -> int:
    """One token for merge × merge patches (Qwen2-VL's image processor)."""
    limits, step = asked.pixels(asked.rule.pixels), _step(asked)
    height, width = smart_resize(asked.size, step, limits.least, limits.most)
    return (height // step) * (width // step)


def _merged_frames(asked: Asked) -> int:
    """Frames in groups of temporal_patch_size, each within the limits (Qwen2-VL's video processor)."""
    limits, step = asked.rule.video_pixels, _step(asked)
    assert limits is not None
    height, width = smart_resize(asked.size, step, limits.least, limits.most)
    groups = ceil_div(asked.media.video_frames, asked.value(asked.rule.temporal))
    return groups * (height // step) * (width // step)


def _merged_volume(asked: Asked) -> int:
    """Limits count the pixels of all frames together (Qwen3-VL's video processor)."""
    limits, step, temporal = asked.rule.video_pixels, _step(asked), asked.value(asked.rule.temporal)
    assert limits is not None
    frames = max(asked.media.video_frames, temporal)
    rounded = round(Fraction(frames, temporal)) * temporal
    height, width = smart_resize(grown(asked.size, step), step, limits.least, limits.most, (frames, rounded))
    return ceil_div(frames, temporal) * (height // step) * (width // step)


def _merged_pair(asked: Asked) -> int:
    """An image is a pair of equal frames (GLM-4V's image processor)."""
    limits, step, pair = asked.pixels(asked.rule.pixels), _step(asked), asked.value(asked.rule.temporal)
    height, width = smart_resize(grown(asked.size, step), step, limits.least, limits.most, (pair, pair))
    return (height // step) * (width // step)


def _step(asked: Asked) -> int:
    return asked.value(asked.rule.patch) * asked.value(asked.rule.merge)


def _rows(asked: Asked) -> int:
    """Patches and, at the end of each row, a break or the image's end (Pixtral)."""
    step = _step(asked)
    height, width = within(asked.size, asked.value(asked.rule.tile))
    tall, wide = ceil_div(height, step), ceil_div(width, step)
    return tall * (wide + 1)


def _one_tile(asked: Asked) -> int:
    """(tile / patch)², and the class token unless the strategy drops it (LLaVA)."""
    side = asked.value(asked.rule.tile) // asked.value(asked.rule.patch)
    return side * side + _class_token(asked)


def _class_token(asked: Asked) -> int:
    return 0 if asked.config.get("vision_feature_select_strategy", "default") == "default" else 1


def _one_tile_plain(asked: Asked) -> int:
    side = asked.value(asked.rule.tile) // asked.value(asked.rule.patch)
    return side * side


def _anyres(asked: Asked) -> int:
    """The whole image in one tile, and tiles of the best resolution without padding (LLaVA-NeXT)."""
    grid = asked.config.get("image_grid_pinpoints")
    if (
        not isinstance(grid, list)
        or not grid
        or not all(isinstance(pair, list) and len(pair) == 2 for pair in grid)
    ):
        raise unknown(asked.model, "its config has no image_grid_pinpoints")
    tile = asked.value(asked.rule.tile)
    side = tile // asked.value(asked.rule.patch)
    tall, wide = best_pinpoint(asked.size, [(_side(pair[0]), _side(pair[1])) for pair in grid])
    tiled = unpadded(asked.size, (side * (tall // tile), side * (wide // tile)))
    return tiled + side * side + _class_token(asked)


def _side(value: object) -> int:
    return check_integer(value, "image_grid_pinpoints", highest=MAX_SIDE)


def _ratio_tiles(asked: Asked) -> int:
    """Tokens of each tile, a thumbnail where there are several, begin and end (InternVL)."""
    tile = asked.value(asked.rule.tile)
    tiles = tiles_by_ratio(asked.size, (tile, tile), 1, asked.rule.tiles)
    return 2 + asked.value(asked.rule.tokens) * (tiles + 1 if tiles > 1 else 1)


def _scale_tiles(asked: Asked) -> int:
    """Tiles with a separator each, the whole image, and three markers (Llama 4)."""
    tile = asked.value(asked.rule.tile)
    vision = asked.config.get("vision_config")
    given = vision.get("pixel_shuffle_ratio") if isinstance(vision, Mapping) else None
    ratio = Fraction(1, 2)
    if given is not None:
        origin = "vision_config.pixel_shuffle_ratio"
        ratio = Fraction(str(check_number(given, origin, 1 / 1024, 1)))
    side = tile // asked.value(asked.rule.patch)
    each = int(side * side * ratio * ratio)
    rows, columns = tiles_by_scale(asked.size, tile, asked.rule.tiles)
    tiles = rows * columns if rows * columns > 1 else 0
    return tiles * (each + 1) + each + 3


def _fixed(asked: Asked) -> int:
    return asked.value(asked.rule.tokens)


def _fixed_audio(asked: Asked) -> int:
    return asked.value(asked.rule.audio_tokens)


def _pools(asked: Asked) -> int:
    """One token a pool of patches (Gemma 4)."""
    patch, pool = asked.value(asked.rule.patch), asked.value(asked.rule.merge)
    height, width = pooled(asked.size, patch, pool, asked.value(asked.rule.tokens))
    return (height // (patch * pool)) * (width // (patch * pool))


def _cross_tiles(asked: Asked) -> int:
    """Positions that cross attention reads: every tile's patches and its class token (Llama 3.2 Vision)."""
    side = asked.value(asked.rule.tile) // asked.value(asked.rule.patch)
    return asked.value(asked.rule.tokens) * (side * side + 1)


def _mel_frames(asked: Asked, *, most: int) -> int:
    return min(ceil(asked.media.audio_seconds * FRAMES_PER_SECOND), most * FRAMES_PER_SECOND)


def _halved_twice(asked: Asked) -> int:
    """Two convolutions of stride 2 over the mel frames of at most 30 s (Qwen2-Audio)."""
    frames = _mel_frames(asked, most=WINDOW_SECONDS)
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


def _chunks(asked: Asked) -> int:
    """375 tokens for every started window (Voxtral: 1,500 positions, four to a token)."""
    return 375 * ceil(asked.media.audio_seconds / WINDOW_SECONDS)


def _encoder_window(asked: Asked) -> int:
    """The encoder's positions, whatever the length. Raises KvplanError(bad-setting) past one window."""
    if asked.media.audio_seconds > WINDOW_SECONDS:
        raise KvplanError(
            "bad-setting",
            f"{asked.model.id} hears {WINDOW_SECONDS} s in one request",
            help="--audio-seconds 30",
        )
    encoder = asked.model.encoder
    if encoder is None or encoder.tokens is None:
        raise unknown(asked.model, "its encoder's positions are not known")
    return encoder.tokens


COUNTS: dict[str, Callable[[Asked], int]] = {
    "merged": _merged,
    "merged_frames": _merged_frames,
    "merged_volume": _merged_volume,
    "merged_pair": _merged_pair,
    "rows": _rows,
    "one_tile": _one_tile,
    "one_tile_plain": _one_tile_plain,
    "anyres": _anyres,
    "ratio_tiles": _ratio_tiles,
    "scale_tiles": _scale_tiles,
    "fixed": _fixed,
    "fixed_audio": _fixed_audio,
    "pools": _pools,
    "cross_tiles": _cross_tiles,
    "halved_twice": _halved_twice,
    "chunks": _chunks,
    "encoder_window": _encoder_window,
}
CROSS = frozenset({"cross_tiles", "encoder_window"})
"""Counted for cross attention, not for the prompt."""
