"""The arithmetic of image processors in whole numbers: sizes after resizing, tiles, frames.

Each function names its original in huggingface/transformers 5.23 src/transformers/models/. Originals work
with floats; floors and ceilings of square roots are taken here of exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from kvplan.errors import KvplanError
from kvplan.units import ceil_div

Size = tuple[int, int]
"""(height, width) in pixels."""
MOST_STRETCHED = 200


def smart_resize(size: Size, factor: int, least: int, most: int, frames: Size = (1, 1)) -> Size:
    """Sides in multiples of factor with least … most pixels (qwen2_vl, smart_resize).

    frames: (as given, rounded) where the limits count the pixels of all frames (qwen3_vl, glm4v).
    Raises KvplanError(bad-setting) for an image more than 200 times as long as wide.
    """
    height, width = size
    if max(size) > MOST_STRETCHED * min(size):
        raise KvplanError("bad-setting", f"an image of {width}x{height} is too stretched for its processor")
    given, rounded = frames
    tall, wide = (round(Fraction(side, factor)) * factor for side in size)
    if frames == (1, 1):
        tall, wide = max(tall, 0), max(wide, 0)
    pixels = rounded * tall * wide
    if pixels > most:
        return (
            max(factor, isqrt(height * most // (given * width * factor**2)) * factor),
            max(factor, isqrt(width * most // (given * height * factor**2)) * factor),
        )
    if pixels < least:
        return (
            _ceil_sqrt(Fraction(height * least, given * width * factor**2)) * factor,
            _ceil_sqrt(Fraction(width * least, given * height * factor**2)) * factor,
        )
    return tall, wide


def _ceil_sqrt(value: Fraction) -> int:
    root = isqrt(ceil_div(value.numerator, value.denominator))
    return root if root * root >= value else root + 1


def grown(size: Size, factor: int) -> Size:
    """A side shorter than factor is grown to it, the other with it (glm4v and qwen3_vl video)."""
    height, width = size
    if height >= factor and width >= factor:
        return size
    scale = max(Fraction(factor, height), Fraction(factor, width))
    return int(height * scale), int(width * scale)


def within(size: Size, longest: int) -> Size:
    """Shrunk so that no side is longer (pixtral, get_resize_output_image_size)."""
    height, width = size
    side = max(height, width)
    if side <= longest:
        return size
    return height * longest // side, width * longest // side


def pooled(size: Size, patch: int, pool: int, most: int) -> Size:
    """The largest sides with at most ``most`` whole pools (gemma4, get_aspect_ratio_preserving_size)."""
    height, width = size
    step, pixels = patch * pool, most * (pool * patch) ** 2
    tall, wide = (isqrt(side * pixels // (other * step**2)) for side, other in (size, size[::-1]))
    if not tall:
        return step, min(width // height, most) * step
    if not wide:
        return min(height // width, most) * step, step
    return tall * step, wide * step


def best_pinpoint(size: Size, grid: list[Size]) -> Size:
    """The resolution that keeps most of the image and wastes least (select_best_resolution)."""
    height, width = size
    best, kept, wasted = grid[0], 0, 0
    for tall, wide in grid:
        scale = min(Fraction(wide, width), Fraction(tall, height))
        effective = min(int(width * scale) * int(height * scale), width * height)
        waste = tall * wide - effective
        if effective > kept or (effective == kept and waste < wasted):
            best, kept, wasted = (tall, wide), effective, waste
    return best


def unpadded(size: Size, patches: Size) -> int:
    """Features of an anyres image without its padding, and one newline a row (llava_next)."""
    height, width = size
    tall, wide = patches
    if width * tall > wide * height:
        new = int(round(Fraction(height * wide, width), 7))
        tall -= (tall - new) // 2 * 2
    else:
        new = int(round(Fraction(width * tall, height), 7))
        wide -= (wide - new) // 2 * 2
    return tall * wide + tall


def tiles_by_ratio(size: Size, tile: Size, least: int, most: int) -> int:
    """Tiles of the grid with the nearest aspect ratio (got_ocr2, get_optimal_tiled_canvas; InternVL)."""
    height, width = size
    grids = {
        (columns, rows)
        for columns in range(1, most + 1)
        for rows in range(1, most + 1)
        if least <= columns * rows <= most
    }
    best, difference = (1, 1), None
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        off = abs(Fraction(width, height) - Fraction(columns, rows))
        larger = 2 * height * width > tile[0] * tile[1] * columns * rows
        if difference is None or off < difference or (off == difference and larger):
            best, difference = (columns, rows), off
    return best[0] * best[1]


def tiles_by_scale(size: Size, tile: int, most: int) -> Size:
    """Rows and columns of the canvas that scales the image least (llama4, get_best_fit)."""
    height, width = size
    shapes = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]
    scales = {
        shape: min(Fraction(shape[0] * tile, height), Fraction(shape[1] * tile, width)) for shape in shapes
    }
    larger = [scale for scale in scales.values() if scale >= 1]
    chosen = min(larger) if larger else max(scales.values())
    fitting = [shape for shape, scale in scales.items() if scale == chosen]
    return min(fitting, key=lambda shape: shape[0] * shape[1])
