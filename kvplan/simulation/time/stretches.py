"""Identities that are consecutive numbers: a generated load has millions of them, and keeps two ends each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import overload

_APART = 1 << 41


class Headed(Sequence[int]):
    """The identities of ``head`` and then those of ``rest``, as a list of them would be."""

    __slots__ = ("head", "rest")

    def __init__(self, head: range, rest: range) -> None:
        self.head, self.rest = head, rest

    def __len__(self) -> int:
        return len(self.head) + len(self.rest)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        size = len(self.head)
        if not isinstance(place, slice):
            place = range(len(self))[place]
            return self.head[place] if place < size else self.rest[place - size]
        chosen = range(len(self))[place]
        if chosen.step < 0:
            return [self[one] for one in chosen]
        cut = bisect_left(chosen, size)
        first, then = chosen[:cut], chosen[cut:]
        return Headed(_at(self.head, first, 0), _at(self.rest, then, size))


def _at(numbers: range, places: range, before: int) -> range:
    """The numbers at the places, which count from ``before``."""
    if not places:
        return numbers[:0]
    return numbers[places[0] - before : places[-1] - before + 1 : places.step]


def stretches_of(
    rows: Iterable[Sequence[object]], step: int
) -> tuple[list[Sequence[int]], dict[int, int]] | None:
    """(Rows of stretches, how many numbers each has) of rows of numbers that follow each other by a step: two
    rows that share numbers share whole stretches. Those at a row's end of which no other row has a number are
    left out. None where a row is a list, or has another step.
    """
    found: list[list[tuple[int, int]]] = []
    for row in rows:
        ends = []
        for part in (row.head, row.rest) if isinstance(row, Headed) else (row,):
            if not len(part):
                continue
            if not isinstance(part, range) or (len(part) > 1 and part.step != step):
                return None
            ends.append(_ends(part, step))
        found.append(ends)
    return _cut(found)


def _ends(part: range, step: int) -> tuple[int, int]:
    """First and last + 1 of numbers that are consecutive: of a step's remainders each has its own."""
    first = part.start % step * _APART + part.start // step
    return first, first + len(part)


def _cut(rows: list[list[tuple[int, int]]]) -> tuple[list[Sequence[int]], dict[int, int]]:
    """The stretches between all ends, by their first numbers, and how long they are."""
    lows = sorted(low for row in rows for low, _ in row)
    highs = sorted(high for row in rows for _, high in row)
    for row in rows:
        while row and bisect_left(lows, row[-1][1]) - bisect_right(highs, row[-1][0]) == 1:
            row.pop()
    cuts = sorted({end for row in rows for ends in row for end in ends})
    found: list[Sequence[int]] = []
    for row in rows:
        stretches: list[int] = []
        for low, high in row:
            stretches += cuts[bisect_left(cuts, low) : bisect_left(cuts, high)]
        found.append(stretches or ())
    return found, {low: high - low for low, high in pairwise(cuts)}
