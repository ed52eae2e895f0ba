"""Input and output of the rules of `largest_items`: one dummy item of a modality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt

from kvplan.architectures.media.rule import Pixels, Rule
from kvplan.engines.vllm.versions import Rules, rules_of
from kvplan.named import NamedTuple
from kvplan.record import Json

Release = tuple[int, ...]
NO_LIMIT = 999
"""Items of a prompt where nobody set a limit (get_limit_per_prompt; 1 before 0.11)."""


class Item(NamedTuple):
    """One dummy item: tokens as the encoder's budget counts them, patches that the tower takes. at_once:
    the most patches of one run of the tower, where it runs a part at a time; whole: all may be one run for
    all that is known. tower: `audio` of the class's encoder of sound beside one of images."""

    tokens: int
    patches: int
    at_once: int = 0
    tower: str = ""
    whole: bool = False


class Asked(NamedTuple):
    """Inputs of the rules. longest: the seq_len of the dummy items. memory: the GPU's bytes; 0: not known.
    images, videos: --limit-mm-per-prompt, the class's own limits aside."""

    config: Json
    vision: Json
    rule: Rule
    release: Release
    length: int
    longest: int
    processor: Json
    frames: int | None
    has_image: bool
    memory: int = 0
    images: int = NO_LIMIT
    videos: int = NO_LIMIT

    @property
    def rules(self) -> Rules:
        return rules_of(self.release)

    def number(self, key: str, default: int) -> int:
        """Of the encoder's part of the config."""
        return whole(self.vision.get(key), default)

    def stated(self, key: str, default: int) -> int:
        """--mm-processor-kwargs, else the config's own."""
        return whole(self.processor.get(key), whole(self.config.get(key), default))

    def most_pixels(self, own: Pixels | None, scope: str) -> int:
        """size.longest_edge, or max_pixels, of --mm-processor-kwargs; else the processor's own."""
        scoped = self.processor.get(scope)
        for place in (scoped if isinstance(scoped, Mapping) else {}, self.processor):
            size = place.get("size")
            for value in (
                place.get("max_pixels"),
                size.get("longest_edge") if isinstance(size, Mapping) else 0,
            ):
                if whole(value, 0):
                    return whole(value, 0)
        assert own is not None
        return own.most

    def room(self, image: int) -> tuple[int, int]:
        """Tokens that a sequence has for a video: as it is counted, with one item of each modality in the
        prompt, and as it is run (mm_counts={modality: 1})."""
        images = image if self.has_image else 0
        alone = self.rules.items_alone
        return max(0, self.length - images), max(0, self.longest - (0 if alone else images))

    def at_most(self, frames: int) -> int:
        """Frames, no more than the options of the dummy video ask for."""
        return max(1, min(frames, self.frames or frames))


def whole(value: object, default: int) -> int:
    """A number above zero, or the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def squarest(units: int) -> int:
    """The most squares that a rectangle of two whole sides holds, no side above 200 times the other
    (Qwen2VLProcessingInfo.get_image_size_with_most_features, since 0.13)."""
    for count in range(units, 0, -1):
        low = next(side for side in range(isqrt(count), 0, -1) if count % side == 0)
        if count // low <= 200 * low:
            return count
    return 1


def largest_square(pixels: int, unit: int) -> int:
    """Units of the largest square of so many pixels."""
    return max(1, isqrt(pixels) // unit) ** 2


def pairs(rows: object) -> list[tuple[int, int]]:
    """The rows of two whole numbers above zero."""
    listed = rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ()
    both = (tuple(row) for row in listed if isinstance(row, Sequence) and len(row) == 2)
    found = ((whole(high, 0), whole(low, 0)) for high, low in both)
    return [(high, low) for high, low in found if high and low]
