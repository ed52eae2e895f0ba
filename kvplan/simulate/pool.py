"""The pool of blocks: a number of blank ones, and pieces of runs in the order in which they are evicted.

vllm-project/vllm 0.32 vllm/v1/core/block_pool.py. Blocks without an identity are all alike, and the first to
be taken (free_blocks puts them at the queue's head); blocks with one are taken in the order in which they
were given back, of one request the last first. A piece is neighbouring blocks of one run that were never told
apart: taken together, held by the same requests, given back together.

Where some requests hold only a part of a piece it is split: ``rest`` is then the part behind it, so who held
the whole finds all of it from the first.

A piece of a table that stands for several groups (``times``) is as many blocks for each of them. What a
request gives back stands in the queue group by group (a *bundle*): once the first group has lost a block, the
same block of the others answers no look-up any more, and only counts (``dead``) until it is taken.
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.simulate.request import Request


class Piece:
    """Blocks [start, stop) of a run, counted from its first. refs: requests that hold them; before, after:
    its neighbours in the queue of what may be evicted, where nobody does."""

    __slots__ = ("after", "before", "bundle", "pieces", "refs", "rest", "run", "start", "stop", "times")

    def __init__(
        self, run: Run, pieces: list[Piece], start: int, stop: int, refs: int = 1, times: int = 1
    ) -> None:
        self.times, self.bundle = times, 0
        self.run, self.pieces, self.start, self.stop, self.refs = run, pieces, start, stop, refs
        self.rest: Piece | None = None
        self.before: Piece | None = None
        self.after: Piece | None = None


class Run:
    """One run: per group of caches its pieces, the first stored first. stamp counts what happened to them;
    doubled: whether a block was ever stored twice; writers: requests whose answers are written into it,
    and whose blocks are not all stored yet."""

    __slots__ = ("doubled", "pieces", "stamp", "writers")

    def __init__(self, groups: int) -> None:
        self.pieces: list[list[Piece]] = [[] for _ in range(groups)]
        self.stamp = 0
        self.doubled = False
        self.writers: dict[Request, None] = {}


class Pool:
    """blank: free blocks without identity; free: these and the queue's; out: blocks handed out less those
    given back (a block that is found and held again counts in neither); bundles: how many were given back,
    bundle: the one whose blocks are being evicted, dead, lost: of it, as above, a number and (pieces of the
    run's table, start, stop); watched: whether evicting may make
    room for one that waits (not so where its whole prompt must fit: what is evicted it needs as before)."""

    __slots__ = ("blank", "bundle", "bundles", "dead", "ends", "free", "lost", "out", "watched")

    def __init__(self, blocks: int, watched: bool) -> None:
        self.blank = self.free = blocks
        self.bundles = self.bundle = self.dead = self.out = 0
        self.lost: list[tuple[list[Piece], int, int]] = []
        self.watched = watched
        self.ends = Piece(Run(0), [], 0, 0)
        self.ends.before = self.ends.after = self.ends

    def take(self, count: int) -> None:
        """Hand out blocks: blank ones first, then the queue's first, of a piece its last block first."""
        self.free -= count
        self.out += count
        if count <= self.blank:
            self.blank -= count
            return
        count -= self.blank
        self.blank = 0
        ends = self.ends
        while count:
            piece = ends.after
            assert piece is not None
            if self.dead and piece.bundle != self.bundle:
                if self.dead > count:
                    self.dead -= count
                    return
                count -= self.dead
                self.dead = 0
                self.lost.clear()
                continue
            assert piece is not ends, "more blocks taken than are free"
            if self.watched or piece.run.doubled:
                piece.run.stamp += 1
            size = piece.stop - piece.start
            if piece.times > 1:
                gone = min(size, count)
                self.bundle = piece.bundle
                self.dead += gone * (piece.times - 1)
                self.lost.append((piece.pieces, piece.stop - gone, piece.stop))
            if size > count:
                piece.stop -= count
                return
            count -= size
            piece.pieces.remove(piece)
            following = piece.after
            assert following is not None
            ends.after, following.before = following, ends

    def give_back(self, piece: Piece) -> None:
        """A piece that nobody holds any more: the last to be evicted."""
        size = (piece.stop - piece.start) * piece.times
        self.free += size
        self.out -= size
        piece.bundle = self.bundles
        ends = self.ends
        last = ends.before
        assert last is not None
        piece.before, piece.after = last, ends
        last.after = ends.before = piece

    def give_back_blank(self, count: int) -> None:
        self.blank += count
        self.free += count
        self.out -= count

    def hold(self, piece: Piece) -> None:
        """One request more holds the piece."""
        if not piece.refs:
            before, after = piece.before, piece.after
            assert before is not None
            assert after is not None
            before.after, after.before = after, before
            self.free -= (piece.stop - piece.start) * piece.times
        piece.refs += 1

    def let_go(self, piece: Piece) -> None:
        piece.refs -= 1
        if not piece.refs:
            self.give_back(piece)

    def split(self, piece: Piece, place: int) -> Piece:
        """Cut a piece in two before block ``place``; the part behind is returned, and evicted before the
        other."""
        behind = Piece(piece.run, piece.pieces, place, piece.stop, piece.refs, piece.times)
        behind.bundle = piece.bundle
        behind.rest, piece.rest = piece.rest, behind
        piece.stop = place
        piece.pieces.insert(piece.pieces.index(piece) + 1, behind)
        if not piece.refs:
            before = piece.before
            assert before is not None
            behind.before, behind.after = before, piece
            before.after = piece.before = behind
        return behind


class ApartError(Exception):
    """Groups of equal rules hold different blocks: each needs a table of its own."""


def found(run: Run, group: int, start: int, stop: int) -> list[tuple[Piece, int]]:
    """The pieces that answer a look-up of blocks from ``start`` on, each with the block after its last one,
    up to ``stop`` or to the first block that is not there. Of several the first stored answers."""
    pieces = run.pieces[group]
    if not pieces:
        return []
    answers: list[tuple[Piece, int]] = []
    if len(pieces) > 1:
        pieces = [piece for piece in pieces if piece.stop > start and piece.start < stop]
        by_start = sorted(pieces, key=_start)
        if run.doubled and any(one.stop > other.start for one, other in pairwise(by_start)):
            return _first_stored(pieces, start, stop)
        pieces = by_start
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


def _first_stored(pieces: list[Piece], start: int, stop: int) -> list[tuple[Piece, int]]:
    answers: list[tuple[Piece, int]] = []
    while start < stop:
        for number, piece in enumerate(pieces):
            if piece.start <= start < piece.stop:
                reach = min(piece.stop, stop)
                for earlier in pieces[:number]:
                    if start < earlier.start < reach:
                        reach = earlier.start
                answers.append((piece, reach))
                start = reach
                break
        else:
            break
    return answers


_start = attrgetter("start")
