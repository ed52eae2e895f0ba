"""Counted tensors as a card has them: one line for each name, equal layers together.

``model.layers.[0-31].mlp.up_proj.weight: BF16 14336 4096``; ``[0-3,6]`` names layers one by one and in runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.weights.facts import COUNT
from kvplan.weights.stored import DTYPE_BITS, LAYER_NAME, Checkpoint, Stored

_RANGES = regex(r"\[(\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)\]", re.ASCII)
_SHAPE = regex(r"([A-Z0-9_]{2,12})((?: \d{1,12}){0,8})", re.ASCII)
MOST_TENSORS, MOST_LAYERS = 500_000, 4096


def tensor_lines(tensors: Iterable[Stored]) -> dict[str, str]:
    """Name → dtype and shape, in the order of the first of each."""
    layers: dict[tuple[str, str, str], list[int]] = {}
    for tensor in tensors:
        found = LAYER_NAME.search(tensor.name)
        text = " ".join((tensor.dtype, *map(str, tensor.shape)))
        if found is None:
            layers[tensor.name, "", text] = []
        else:
            before, after = tensor.name[: found.start(1)], tensor.name[found.end(1) :]
            layers.setdefault((before, after, text), []).append(int(found[1]))
    return {
        f"{before}[{_runs(numbers)}]{after}" if numbers else before: text
        for (before, after, text), numbers in layers.items()
    }


def _runs(numbers: list[int]) -> str:
    """``0-3,6``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def checkpoint_of(lines: Mapping[str, str], where: str) -> Checkpoint:
    """The tensors that such lines name. Raises KvplanError(invalid-card)."""
    tensors: list[Stored] = []
    for name, text in lines.items():
        shape = _SHAPE.fullmatch(text)
        if shape is None or shape[1] not in DTYPE_BITS:
            raise _wrong(f"{text[:60]!r} is no dtype and shape, such as BF16 4096 4096")
        sizes = tuple(int(size) for size in shape[2].split())
        tensors += [Stored(one, shape[1], sizes) for one in _names(name)]
        if len(tensors) > MOST_TENSORS:
            raise _wrong(f"more than {MOST_TENSORS:,} tensors")
    return Checkpoint(tuple(tensors), where, COUNT)


def _names(name: str) -> Iterator[str]:
    found = _RANGES.search(name)
    if found is None:
        yield name
        return
    for run in found[1].split(","):
        first, _, last = run.partition("-")
        start, end = int(first), int(last or first)
        if not start <= end < MOST_LAYERS:
            raise _wrong(f"{name[:80]!r} names layers that no model has")
        for number in range(start, end + 1):
            yield f"{name[: found.start()]}{number}{name[found.end() :]}"


def _wrong(message: str) -> KvplanError:
    return KvplanError("invalid-card", message)
