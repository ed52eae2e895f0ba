"""The pool of blocks: a number of blank ones, and pieces of runs in the order in which they are evicted.

vllm-project/vllm 0.32 vllm/v1/core/block_pool.py. Blocks without an identity are all alike, and the first to
be taken (free_blocks puts them at the queue's head); blocks with one are taken in the order in which they
were given back, of one request the last first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.simulation.vllm.request import Request


class Piece:
    """Blocks [start, stop) of a run, counted from its first, that were never told apart: taken together, held
    by the same requests, given back together. refs: requests that hold them; times: groups of each of which
    it is as many blocks; rest: the part behind, once it is split, so that who held the whole finds all of it;
    before, after: its neighbours in the queue of what may be evicted, where nobody holds it; birth: which
    pieces of the run were stored before it; group, groups: as in `kvplan.simulation.vllm.diverged_groups`."""

    __slots__ = (
        "after", "before", "birth", "bundle", "group", "groups", "pieces", "refs", "rest", "run", "start",
        "stop", "times", "wanted",
    )  # fmt: skip

    def __init__(
        self, run: Run, pieces: list[Piece], start: int, stop: int, refs: int = 1, times: int = 1
    ) -> None:
        self.times = times
        self.bundle = self.wanted = self.group = 0
        self.birth = run.stamp
        self.groups: list[Piece] | None = None
        self.run, self.pieces, self.start, self.stop, self.refs = run, pieces, start, stop, refs
        self.rest: Piece | None = None
        self.before: Piece | None = None
        self.after: Piece | None = None


class Run:
    """One run: per group of caches its pieces, the first stored first. stamp counts what happened to them;
    doubled: whether a block was ever stored twice; apart: whether a piece of it stands for one group of its
    table's; losing: whether some groups have lost blocks of it that others still have (`Pool.lost`); writers:
    requests whose answers are written into it, and whose blocks are not all stored yet."""

    __slots__ = ("apart", "doubled", "losing", "pieces", "stamp", "writers")

    def __init__(self, groups: int) -> None:
        self.pieces: list[list[Piece]] = [[] for _ in range(groups)]
        self.stamp = 0
        self.doubled = self.apart = self.losing = False
        self.writers: dict[Request, None] = {}


NOBODYS = Run(1)
"""The run of blocks that are in the prefix cache, though nobody will ask for them any more."""


class Pool:
    """blank: free blocks without identity; free: these and the queue's; out: blocks handed out less those
    given back (one found and held again counts in neither). A bundle is what a request gave back, group by
    group; bundles: how many, bundle: the one being evicted; lost: (piece, start, stop) of it that its first
    group lost, dead: as many blocks of the others, which answer no look-up and wait to be taken. watched:
    whether evicting may make room for one that waits (not where its whole prompt must fit). divided: how many
    pieces were told apart; wanted, order, hurt: as in `want`."""

    __slots__ = (
        "blank", "bundle", "bundles", "changed", "dead", "divided", "ends", "free", "hurt", "junction",
        "lost", "order", "out", "wanted", "watched",
    )  # fmt: skip

    def __init__(self, blocks: int, watched: bool) -> None:
        self.blank = self.free = blocks
        self.bundles = self.bundle = self.dead = self.divided = self.out = 0
        self.lost: list[tuple[Piece, int, int]] = []
        self.watched, self.wanted = watched, 1
        self.hurt = self.changed = self.junction = False
        self.order: list[Piece] = []
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
                self.forget()
                continue
            assert piece is not ends, "more blocks taken than are free"
            size = piece.stop - piece.start
            if piece.wanted == self.wanted:
                self._lose(piece, min(size, count))
            if self.junction:
                piece.run.stamp += 1
            if piece.times > 1:
                gone = min(size, count)
                self.bundle = piece.bundle
                self.dead += gone * (piece.times - 1)
                self.lost.append((piece, piece.stop - gone, piece.stop))
                piece.run.losing = True
            if size > count:
                piece.stop -= count
                return
            count -= size
            if piece.run is not NOBODYS:
                piece.pieces.remove(piece)
            following = piece.after
            assert following is not None
            ends.after, following.before = following, ends

    def forget(self) -> None:
        """No group has blocks any more that another has lost."""
        for piece, _, _ in self.lost:
            piece.run.losing = False
        self.lost.clear()
        self.dead = 0

    def want(self, hit: list[list[Piece]], whole: bool, junction: bool) -> None:
        """The pieces, by table, that the waiting head has found and for which it lacks blocks; changed:
        whether one was evicted since, at least in part; hurt: so that this may bring the head nearer. whole:
        there is one table of full attention. Then losing its hit's last block (of ``order``) brings it no
        nearer: one free block less, and at most one that it does not take from these. junction: what some
        groups have beyond the hit says where its prompt is cut, so that losing that matters too."""
        self.wanted += 1
        self.hurt = self.changed = False
        for pieces in hit:
            for piece in pieces:
                piece.wanted = self.wanted
                for one in piece.groups or ():
                    one.wanted = self.wanted
                    self.changed = True  # what is found group by group is not found again, but looked up
        self.order = hit[0] if whole else []
        self.junction = junction

    def _lose(self, piece: Piece, count: int) -> None:
        self.changed = True
        if not self.watched:
            self.hurt = self.hurt or _twice(piece)
            return
        order = self.order
        if not order or order[-1] is not piece or _twice(piece):
            self.hurt = True
            return
        self.out -= count * piece.times
        if piece.stop - piece.start == count:
            order.pop()

    def spared(self, enough: int) -> int:
        """How many blocks can be taken, up to ``enough``, before what was wanted is hurt."""
        count, piece, last = self.blank, self.ends.after, len(self.order) - 1
        while count < enough and piece is not None and piece is not self.ends:
            if piece.wanted == self.wanted:
                if last < 0 or self.order[last] is not piece or _twice(piece):
                    return count
                last -= 1
            count += piece.stop - piece.start
            piece = piece.after
        return max(count, enough) if piece is self.ends else count

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

    def give_back_nobodys(self, count: int) -> None:
        """Blocks with an identity that no other request has: only their place in the queue matters."""
        self.free += count
        self.out -= count
        ends = self.ends
        last = ends.before
        assert last is not None
        if last.run is NOBODYS:
            last.stop += count
            return
        piece = Piece(NOBODYS, NOBODYS.pieces[0], 0, count, 0)
        piece.before, piece.after = last, ends
        last.after = ends.before = piece

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
        behind.bundle, behind.wanted = piece.bundle, piece.wanted
        behind.birth, behind.group = piece.birth, piece.group
        if piece.wanted == self.wanted and piece in self.order:
            self.order.insert(self.order.index(piece) + 1, behind)
        behind.rest, piece.rest = piece.rest, behind
        piece.stop = place
        piece.pieces.insert(piece.pieces.index(piece) + 1, behind)
        if not piece.refs:
            before = piece.before
            assert before is not None
            behind.before, behind.after = before, piece
            before.after = piece.before = behind
        return behind


def _twice(piece: Piece) -> bool:
    """Whether one of its blocks is stored once more."""
    return piece.run.doubled and any(
        other is not piece and other.start < piece.stop and piece.start < other.stop for other in piece.pieces
    )
