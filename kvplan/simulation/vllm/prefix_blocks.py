"""Which blocks of a run the prefix cache has: of several that are the same the first stored answers.

vllm-project/vllm 0.32 vllm/v1/core/block_pool.py (BlockHashToBlockMap, get_cached_block).
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise

from kvplan.simulation.vllm.diverged_groups import beside, tell_apart
from kvplan.simulation.vllm.pool import Piece, Pool, Run
from kvplan.simulation.vllm.tables import Table


def found(run: Run, table: int, start: int, stop: int, group: int = -1) -> list[tuple[Piece, int]]:
    """The pieces that answer a look-up of blocks from ``start`` on, each with the block after its last one,
    up to ``stop`` or to the first block that is not there. Of several the first stored answers. group: of
    those that the table stands for, where they were told apart."""
    pieces = run.pieces[table]
    if group >= 0:
        pieces = [piece for piece in pieces if piece.times > 1 or piece.group == group]
    if not pieces:
        return []
    answers: list[tuple[Piece, int]] = []
    if len(pieces) > 1:
        stored = [
            (piece.start, number, piece)
            for number, piece in enumerate(pieces)
            if piece.stop > start and piece.start < stop
        ]
        stored.sort()
        pieces = [one[2] for one in stored]
        if run.doubled and any(one.stop > other.start for one, other in pairwise(pieces)):
            return _first_stored(stored, start, stop)
    for piece in pieces:
        if piece.stop <= start:
            continue
        if piece.start > start:
            break
        start = min(piece.stop, stop)
        answers.append((piece, start))
        if start == stop:
            break
    return answers


def _first_stored(stored: list[tuple[int, int, Piece]], start: int, stop: int) -> list[tuple[Piece, int]]:
    """stored: (first block, how many were stored before, piece), in order."""
    answers: list[tuple[Piece, int]] = []
    here: list[tuple[int, Piece]] = []  # a heap: who begins up to start
    place, count = 0, len(stored)
    while start < stop:
        while place < count and stored[place][0] <= start:
            heappush(here, stored[place][1:])
            place += 1
        while here and here[0][1].stop <= start:
            heappop(here)
        if not here:
            break
        number, piece = here[0]
        reach = min(piece.stop, stop)
        for following in range(place, count):
            first, earlier, _ = stored[following]
            if first >= reach:
                break
            if earlier < number:
                reach = first
                break
        answers.append((piece, reach))
        start = reach
    return answers


def apart(run: Run, table: Table, start: int, stop: int) -> bool:
    """Whether the table's groups may differ in these blocks."""
    if not run.apart or table.times == 1:
        return False
    return any(one.times == 1 and one.start < stop and start < one.stop for one in run.pieces[table.number])


def found_apart(pool: Pool, run: Run, table: Table, start: int, stop: int) -> list[tuple[Piece, int]]:
    """The same of a table that stands for several groups, where a hit has all of the blocks, though not all
    groups of them in the same place: what only some find in a piece is told apart, so that each part is a
    piece of all groups, or one for each."""
    while True:
        columns = [found(run, table.number, start, stop, group) for group in range(table.times)]
        parts = _common(columns)
        mixed = [piece for pieces, _ in parts if len(set(pieces)) > 1 for piece in pieces if piece.times > 1]
        if not mixed:
            break
        for piece in mixed:
            if piece.groups is None:
                tell_apart(pool, piece)
    answers: list[tuple[Piece, int]] = []
    for pieces, reach in parts:
        answers.append((pieces[0] if pieces[0].times > 1 else beside(pieces, start, reach), reach))
        start = reach
    return answers


def _common(columns: list[list[tuple[Piece, int]]]) -> list[tuple[list[Piece], int]]:
    """Per group the pieces, each with the block after it: cut alike, per part the piece of each group."""
    places, parts = [0] * len(columns), []
    while places[0] < len(columns[0]):
        here = [column[place] for column, place in zip(columns, places)]
        reach = min(stop for _, stop in here)
        parts.append(([piece for piece, _ in here], reach))
        places = [place + (stop == reach) for place, (_, stop) in zip(places, here)]
    return parts
