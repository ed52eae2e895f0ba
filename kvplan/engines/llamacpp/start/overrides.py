"""``--override-tensor`` in words: tensors of layers that lie elsewhere than their GPU.

``20-47.exps`` the experts of these layers in host memory, ``19.down.gpu1`` ffn_down of layer 19 on the second
GPU. The patterns are those of common/fit.cpp (ggml-org/llama.cpp at 0c1e57098); the first that matches a name
counts (src/llama-model-loader.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from kvplan.engines.llamacpp.start.fitting import Moved, Rest
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.named import NamedTuple

MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS, src/llama-hparams.h."""
_WORD = regex(r"(\d{1,3})(?:-(\d{1,3}))?\.(exps|ffn|gate-down|down)(?:\.gpu(\d{1,2}))?", re.ASCII)
_PARTS = {
    "exps": (Rest.EXPERTS, "ffn_(up|down|gate_up|gate)_(ch|)exps"),
    "ffn": (Rest.DOWN_GATE_UP, "ffn_(gate|up|gate_up|down).*"),
    "gate-down": (Rest.DOWN_GATE, "ffn_(gate|gate_up|down).*"),
    "down": (Rest.DOWN, "ffn_down.*"),
}
_NAMES = {rest: name for name, (rest, _) in _PARTS.items()}


class Override(NamedTuple):
    """Tensors of the layers first … last, and the GPU on which they lie; None: in host memory."""

    first: int
    last: int
    part: str
    to: int | None

    @property
    def word(self) -> str:
        layers = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{layers}.{self.part}" + ("" if self.to is None else f".gpu{self.to}")


@lru_cache(maxsize=1024)
def read(words: tuple[str, ...]) -> tuple[Override, ...]:
    """The overrides that the words name. Raises KvplanError(bad-setting)."""
    found = []
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise KvplanError(
                "bad-setting",
                f"--override-tensor {word} is not a word for tensors of layers",
                help=(
                    "20-47.exps: the experts of these layers, in host memory",
                    "19.down.gpu1: ffn_down of layer 19, on the second GPU (exps, ffn, gate-down or down)",
                ),
            )
        to = None if match[4] is None else int(match[4])
        found.append(Override(int(match[1]), int(match[2] or match[1]), match[3], to))
    return tuple(found)


def words_of(moved: Iterable[Moved]) -> tuple[str, ...]:
    """Words for what the fitting moves: neighbours of one kind are one word."""
    found: list[Override] = []
    for one in moved:
        part = _NAMES[one.rest]
        last = found[-1] if found else None
        if last is not None and (last.part, last.to, last.last + 1) == (part, one.to, one.layer):
            found[-1] = last._replace(last=one.layer)
        else:
            found.append(Override(one.layer, one.layer, part, one.to))
    return tuple(one.word for one in found)


def patterns(words: tuple[str, ...]) -> str:
    """The argument of ``--override-tensor``. GPUs are called as CUDA calls them."""
    return ",".join(
        rf"blk\.({'|'.join(map(str, range(one.first, one.last + 1)))})\.{_PARTS[one.part][1]}"
        f"={'CPU' if one.to is None else f'CUDA{one.to}'}"
        for one in read(words)
    )


@lru_cache(maxsize=8)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(_PARTS[part][1])


PART_NAMES = tuple(_PARTS)


def part_has(part: str, name: str) -> bool:
    """Whether a tensor of a layer, by its name, belongs to the part."""
    return _compiled(part).search(name) is not None


class Placed(NamedTuple):
    """The GPU that an override gives a tensor; None: host memory."""

    to: int | None


def place_of(overrides: tuple[Override, ...], layer: int, name: str) -> Placed | None:
    """Where the first override that matches puts the tensor; None where no one does."""
    for one in overrides:
        if one.first <= layer <= one.last and _compiled(one.part).search(name):
            return Placed(one.to)
    return None


def hosted_layers(words: tuple[str, ...], layers: int) -> set[int]:
    """Layers of which tensors lie in host memory."""
    return {
        layer
        for one in read(words)
        if one.to is None
        for layer in range(one.first, min(one.last + 1, layers))
    }
