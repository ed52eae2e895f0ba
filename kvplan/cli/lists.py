"""A comma: between the thousands of one number, or between the values of a list?

``32,768`` is how this program prints 32,768, so it is how people paste it; ``8192,32768`` is a list. Three
digits after each comma make one number, unless a list of exactly these values could be meant as well.
"""

from __future__ import annotations

import re
from itertools import pairwise

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.named import NamedTuple

_GROUPED = regex(r"\d{1,3}(,\d{3})+", re.ASCII)
_DIGITS = regex(r"\d+", re.ASCII)
_THOUSANDS = 3


class Plausible(NamedTuple):
    """Limits of a value: the least in a list of several, the largest single one."""

    least: int = 1
    largest: int = 10_000


PLAUSIBLE = {"tokens": Plausible(100, 10**12), "max_model_len": Plausible(100, 10**12),
             "requests": Plausible(1, 100_000)}  # fmt: skip
"""By option; nobody asks for a grid of requests of 32 tokens, nor for an engine of 64,128 sequences."""


def pieces_of(text: str, name: str = "") -> list[str]:
    """The values of a comma list, each as text; one where the commas part thousands.

    A comma and a blank always part values. Raises KvplanError(ambiguous-list) where both could be meant.
    """
    pieces = text.split(",")
    if len(pieces) == 1 or not all(_DIGITS.fullmatch(piece) for piece in pieces):
        return pieces
    values = [int(piece) for piece in pieces]
    rising = all(low < high for low, high in pairwise(values))
    padded = any(piece.startswith("0") and len(piece) > 1 for piece in pieces)
    whole = text.replace(",", "")
    likely = PLAUSIBLE.get(name, Plausible())
    if _GROUPED.fullmatch(text):
        list_of = rising and not padded and values[0] >= likely.least
        if not list_of:
            return [whole]
        if int(whole) > likely.largest:
            return pieces
        raise _ambiguous(text, f"it could be {int(whole):,} or the {len(values)} values {_spaced(pieces)}",
                         f"write {whole}, or `{_spaced(pieces)}` with a blank after the comma")  # fmt: skip
    parted = any(len(piece) == _THOUSANDS and len(before) <= _THOUSANDS
                 for before, piece in pairwise(pieces))  # fmt: skip
    if padded or (parted and not rising):
        raise _ambiguous(text, "some of its commas look like those between thousands",
                         "write each number without them: 8192,32768")  # fmt: skip
    return pieces


def _spaced(pieces: list[str]) -> str:
    return ", ".join(pieces)


def _ambiguous(text: str, why: str, way: str) -> KvplanError:
    return KvplanError("ambiguous-list", f"{text!r} can be read in two ways: {why}", help=way)
