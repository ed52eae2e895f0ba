"""The written pattern: 64-bit words that follow from content, position, layer, component, head and place.

    word = (row(content, position) ^ column(layer, component, head, word)) & MASK

Both sides are mixed by splitmix64's finaliser, so that no two states of a cache hold the same bytes and a
whole chunk costs one exclusive or. MASK clears bit 6 of every byte: in bfloat16, float16, float32 and both
fp8 formats that is the exponent's top bit, so every value is finite and below 2 and can be attended to.
Contents of an odd number of bytes are made of narrower words, each from a full 64-bit mix.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from kvplan.engines.tensors.base import View
from kvplan.proof.tensor import Tensor

_BYTES = 0x0101010101010101
_MASK = 0xBF * _BYTES
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN = 0x9E3779B97F4A7C15
_WRAP = 2**64
WIDTHS = (8, 4, 2, 1)


def signed(value: int) -> int:
    """A 64-bit pattern as torch's int64 holds it."""
    value %= _WRAP
    return value - _WRAP if value >= _WRAP // 2 else value


def mixed(value: Any) -> Any:
    """splitmix64's finaliser over an int64 tensor (products wrap, shifts are logical)."""
    value = (value ^ _shifted(value, 30)) * signed(_FIRST)
    value = (value ^ _shifted(value, 27)) * signed(_SECOND)
    return value ^ _shifted(value, 31)


def _shifted(value: Any, by: int) -> Any:
    return (value >> by) & (2 ** (64 - by) - 1)


def width_of(view: View) -> int:
    """The widest word of which content, strides and offset are whole numbers."""
    figures = (view.content, view.offset, view.block_stride, view.head_stride, view.state_stride)
    return next(width for width in WIDTHS if all(figure % width == 0 for figure in figures))


def rows(contents: Tensor, positions: Tensor) -> Tensor:
    """One word for each state: of int64 tensors of equal shape."""
    return mixed(contents * signed(_GOLDEN) + mixed(positions + 1)) & signed(_MASK)


def columns(view: View, device: str) -> Tensor:
    """[heads, words] of one layer's view. The name tells layers and components apart."""
    import torch

    words = view.content // width_of(view)
    seed = (crc32(view.name.encode()) << 31) ^ (view.layer + 1)
    places = torch.arange(view.heads * words, dtype=torch.int64, device=device).reshape(view.heads, words)
    return mixed(places + signed(seed * _GOLDEN)) & signed(_MASK)


def narrowed(words: Tensor, width: int) -> Tensor:
    """64-bit words as words of ``width`` bytes, mixed again so that every byte depends on all of them."""
    import torch

    dtype = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[width]
    if width == 8:
        return words
    keep = signed(_MASK) >> (64 - 8 * width)
    return ((mixed(words) >> (64 - 8 * width)) & keep).to(dtype)
