"""The blocks that one request holds in one group of caches: its block table as spans of pieces.

vllm-project/vllm 0.32 vllm/v1/core/single_type_kv_cache_manager.py. Blocks [gone, count) of the table are
held (before ``gone`` stands the null block; state groups have gaps as well): those of ``spans``, and from
``tail`` on blocks that have no identity yet. ``cached``: blocks that have been offered to the prefix cache;
``due``: blocks up to which the rest may be (`FlatMemory`).
"""

from __future__ import annotations

from kvplan.simulation.vllm.diverged_groups import adopt_groups, front_of, let_go_groups
from kvplan.simulation.vllm.pool import Piece, Pool, Run
from kvplan.simulation.vllm.tables import Table

Path = list[tuple[int, int, Run]]
"""(first block, block after the last, run), in order; the last reaches beyond any request."""

Stored = tuple[Run, int, int]
"""(run, group, block of the run)."""

Part = tuple[Piece, int, int, int]
"""(piece, first block of the run, block after the last, first block of the table)."""


class Span:
    """Blocks [start, stop) of a table; piece: where they begin, None where they have no identity."""

    __slots__ = ("piece", "start", "stop")

    def __init__(self, start: int, stop: int, piece: Piece | None) -> None:
        self.start, self.stop, self.piece = start, stop, piece


class BlockTable:
    __slots__ = ("cached", "count", "due", "gone", "last", "spans", "table", "tail")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.count = self.cached = self.due = self.gone = self.tail = 0
        self.last = -1  # the block with the state that its newest one was computed from
        self.spans: list[Span] = []

    def adopt(self, pool: Pool, parts: list[Part], length: int, skipped: int) -> None:
        """Take over a prefix hit of ``length`` blocks, the first ``skipped`` of which nobody looks at."""
        for piece, start, stop, place in parts:
            if piece.groups is not None:
                self.spans.append(
                    Span(place, place + stop - start, adopt_groups(pool, piece.groups, start, stop))
                )
                continue
            while piece.stop <= start:  # another part of it was cut off before
                assert piece.rest is not None
                piece = piece.rest
            if start > piece.start:
                piece = pool.split(piece, start)
            span = Span(place, place + stop - start, piece)
            while True:
                if stop < piece.stop:
                    pool.split(piece, stop)
                pool.hold(piece)
                if piece.stop >= stop:
                    break
                assert piece.rest is not None
                piece = piece.rest
            self.spans.append(span)
        self.count = self.cached = self.tail = length
        self.gone = min(skipped, length) if skipped > 0 else 0
        if skipped > length:
            self.count = self.cached = self.tail = self.gone = skipped

    def grow(self, pool: Pool, blocks: int, saved: int = 0) -> None:
        """Have ``blocks`` blocks; a state group that keeps its boundaries takes the last alone, or with the
        one before it, in which the state at the prompt's last boundary is ``saved``."""
        more = blocks - self.count
        if more <= 0:
            return
        if self.table.single:
            self.last = self.count - 1
            pool.take((1 + saved) * self.table.times)
            self.spans += [Span(place, place + 1, None) for place in range(blocks - 1 - saved, blocks)]
            self.tail = blocks
        else:
            pool.take(more * self.table.times)
        self.count = blocks

    def let_go_before(self, pool: Pool, limit: int) -> None:
        """Give back blocks [gone, limit), the last first."""
        if self.table.leaks:
            self._let_go_states(pool, limit)
            return
        if limit > self.count:
            limit = self.count
        if limit <= self.gone:
            return
        if self.spans and limit - self.gone == 1:
            span = self.spans[0]
            piece = span.piece
            if span.start == self.gone and piece is not None and span.stop > limit and piece.groups is None:
                pool.bundles += 1
                if piece.stop - piece.start > 1:
                    span.piece = pool.split(piece, piece.start + 1)
                else:
                    span.piece = piece.rest
                span.start = self.gone = limit
                piece.refs -= 1
                if not piece.refs:
                    pool.give_back(piece)
                return
        self._let_go_many(pool, limit)

    def _let_go_states(self, pool: Pool, limit: int) -> None:
        """The same of states in releases that stop at a gap: those before it stay, but the last one."""
        behind = min(limit, self.count)
        if behind > self.gone:
            first = behind
            for span in reversed(self.spans):
                if span.stop == first:
                    first = span.start
            self._let_go_range(pool, first, behind)
            self.gone = behind
        if self.last < limit:
            self._let_go_range(pool, self.last, self.last + 1)

    def _let_go_range(self, pool: Pool, start: int, stop: int) -> None:
        """Give back those of blocks [start, stop) that are held; of states each is a span."""
        before = [span for span in self.spans if span.start < start]
        self.spans = self.spans[len(before) :]
        if self.spans and self.spans[0].start < stop:
            gone, self.gone = self.gone, start
            self._let_go_many(pool, stop)
            self.gone = max(gone, stop)
        self.spans = before + self.spans

    def _let_go_many(self, pool: Pool, limit: int) -> None:
        """The same of any number of blocks, of as many spans as they are in."""
        blank = max(0, limit - max(self.tail, self.gone))
        freed: list[Piece] = []
        spans, apart = self.spans, False
        while spans and spans[0].start < limit:
            span = spans[0]
            stop = min(span.stop, limit)
            if span.piece is None:
                blank += stop - span.start
            else:
                left = stop - span.start
                piece = span.piece
                while True:
                    size = piece.stop - piece.start
                    if piece.groups is not None:
                        apart = True
                        if size > left:
                            piece = front_of(pool, piece, piece.start + left)
                    elif size > left:
                        pool.split(piece, piece.start + left)
                    if size > left:
                        size = left
                    freed.append(piece)
                    left -= size
                    if not left:
                        break
                    assert piece.rest is not None
                    piece = piece.rest
                if stop < span.stop:
                    assert piece.rest is not None
                    span.piece = piece.rest
            if stop == span.stop:
                del spans[0]
            else:
                span.start = stop
        self.gone = limit
        self._give(pool, freed, apart, blank)

    def let_go(self, pool: Pool) -> None:
        """Give everything back, the last block first."""
        blank = max(0, self.count - max(self.tail, self.gone))
        freed: list[Piece] = []
        apart = False
        for span in self.spans:
            piece = span.piece
            if piece is None:
                blank += span.stop - span.start
                continue
            left = span.stop - span.start
            while True:
                freed.append(piece)
                if piece.groups is not None:
                    apart = True
                left -= piece.stop - piece.start
                if not left:
                    break
                assert piece.rest is not None
                piece = piece.rest
        self._give(pool, freed, apart, blank)

    def _give(self, pool: Pool, freed: list[Piece], apart: bool, blank: int) -> None:
        """Give back pieces, the last first, and blocks without an identity. apart: whether of some pieces the
        groups were told apart."""
        pool.bundles += 1
        if apart:
            let_go_groups(pool, freed)
        else:
            for piece in reversed(freed):
                pool.let_go(piece)
        if blank:
            pool.give_back_blank(blank * self.table.times)

    def offer(self, path: Path, blocks: int, boundaries: tuple[int, ...], fresh: set[Stored]) -> None:
        """Give the blocks up to ``blocks`` their identities. fresh: takes those of state groups."""
        if blocks <= self.cached:
            return
        start, self.cached = max(self.cached, self.gone), blocks
        if start >= blocks:
            return
        table = self.table
        if table.dense:
            self._name(path, start, blocks, None, fresh)
            self.tail = blocks
            return
        if table.single:
            for span in self.spans:
                new = span.piece is None and start <= span.start < blocks
                if new and table.kept(span.start, span.stop, boundaries):
                    self._name(path, span.start, span.stop, span, fresh)
            return
        place = start
        for first, stop in table.kept(start, blocks, boundaries):
            if place < first:
                self.spans.append(Span(place, first, None))
            self._name(path, first, stop, None, fresh)
            place = stop
        if place < blocks:
            self.spans.append(Span(place, blocks, None))
        self.tail = blocks

    def freshen(self, path: Path, place: int, fresh: set[Stored]) -> None:
        """The state at the prompt's last boundary counts as stored in every step that still holds it."""
        if place < self.gone or not any(span.start <= place < span.stop for span in self.spans):
            return
        for first, end, run in path:
            if first <= place < end:
                fresh.add((run, self.table.number, place - first))

    def _name(self, path: Path, start: int, stop: int, into: Span | None, fresh: set[Stored]) -> None:
        group = self.table.number
        for first, end, run in path:
            if end <= start:
                continue
            upto = min(stop, end)
            pieces = run.pieces[group]
            last = self.spans[-1] if self.spans else None
            run.stamp += 1
            if self.table.state:
                fresh.update((run, group, place - first) for place in range(start, upto))
            if (
                into is None
                and last is not None
                and last.stop == start
                and pieces
                and last.piece is pieces[-1]
                and last.piece.refs == 1
                and last.piece.stop == start - first
                and not run.losing  # what is lost in part may have been stored between
            ):
                last.piece.stop = upto - first
                last.stop = upto
            else:
                piece = Piece(run, pieces, start - first, upto - first, times=self.table.times)
                if pieces and not run.doubled:
                    run.doubled = any(one.start < piece.stop and piece.start < one.stop for one in pieces)
                pieces.append(piece)
                if into is None:
                    self.spans.append(Span(start, upto, piece))
                else:
                    into.piece = piece
            start = upto
            if start == stop:
                return
