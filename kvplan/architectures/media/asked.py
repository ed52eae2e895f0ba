"""The media of a request, with one model's config and rule."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from kvplan.architectures.media.rule import Key, Pixels, Rule
from kvplan.architectures.media.sizes import Size
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import Json, record

_MOST = 10**6


@record()
class Media:
    """The media of one request: images of one size, one video, one audio. Sizes are (width, height).

    pixels: the least and the most of an image, where the server was told others than the checkpoint's.
    """

    images: int = 0
    image_size: Size | None = None
    video_frames: int = 0
    audio_seconds: Fraction = Fraction(0)
    min_pixels: int | None = None
    max_pixels: int | None = None


class MediaTokens(NamedTuple):
    """Tokens of the prompt by kind, and what cross attention reads (None: nothing was said of it)."""

    prompt: tuple[tuple[str, int], ...]
    encoder: int | None = None

    @property
    def total(self) -> int:
        return sum(amount for _, amount in self.prompt)


class Asked(NamedTuple):
    """One model's config and rule, and the request's media."""

    model: Model
    config: Json
    rule: Rule
    media: Media

    def value(self, key: Key) -> int:
        """A whole number of the config, else its class's default. Raises KvplanError(no-media-rule)."""
        found: Any = self.config
        for step in key[0].split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        found = key[1] if found is None else found
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= _MOST:
            raise unknown(self.model, f"its config has no {key[0]}")
        return found

    @property
    def size(self) -> Size:
        """(height, width). Raises KvplanError(bad-setting) where it was not given."""
        if self.media.image_size is None:
            raise KvplanError(
                "bad-setting",
                f"{self.model.id} counts tokens by the size of an image",
                help="--image-size 1280x720",
            )
        return self.media.image_size[::-1]

    def pixels(self, own: Pixels | None) -> Pixels:
        assert own is not None
        least, most = self.media.min_pixels, self.media.max_pixels
        return Pixels(own.least if least is None else least, own.most if most is None else most)


def unknown(model: Model, why: str) -> KvplanError:
    return KvplanError(
        "no-media-rule",
        f"the tokens of images, video or audio for {model.id} cannot be counted: {why}",
        help="count them yourself and add them to --tokens (cross attention: --encoder-tokens)",
    )
