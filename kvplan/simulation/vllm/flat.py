"""Memory of one group of caches, full attention: most models. The same rules as `Memory`, written flat.

A request's own run (what nobody else has a name for) is stored only when it gives its blocks back: before,
nobody could ask.
"""

from __future__ import annotations

from kvplan.simulation.vllm.block_table import BlockTable, Part, Path, Span, Stored
from kvplan.simulation.vllm.decode_only import LAST
from kvplan.simulation.vllm.memory import NOTHING, Hit, Memory
from kvplan.simulation.vllm.pool import Piece
from kvplan.simulation.vllm.prefix_blocks import found
from kvplan.simulation.vllm.request import Request


class FlatMemory(Memory):
    def hit(self, request: Request) -> Hit:
        if not self.caching:
            return NOTHING
        path = request.path
        if len(path) == 1 and not path[0][2].pieces[0]:
            return NOTHING
        if self.decode_only.shared:
            self.decode_only.look(request, LAST)
        most = (request.tokens - 1) // self.block
        found = self._found(path, most)
        if self.drops and found.tokens:  # a draft needs hidden states of before what it continues
            found = self._found(path, found.tokens // self.block - 1)
        return found

    def _found(self, path: Path, most: int) -> Hit:
        """The first blocks of a request that are stored, at most so many."""
        block = self.block
        parts: list[Part] = []
        place = idle = 0
        for first, stop, run in path:
            pieces = run.pieces[0]
            upto = stop if stop < most else most
            if place >= most or not pieces:
                break
            piece = pieces[0]
            if len(pieces) == 1 and piece.start == 0:
                reach = piece.stop
                if reach > upto - first:
                    reach = upto - first
                parts.append((piece, 0, reach, place))
                if not piece.refs:
                    idle += reach
                place += reach
            else:
                for piece, reach in found(run, 0, 0, upto - first):
                    parts.append((piece, place - first, reach, place))
                    if not piece.refs:
                        idle += first + reach - place
                    place = first + reach
            if place < upto:
                break
        if not place:
            return NOTHING
        return Hit(place * block, 0, (parts,), (idle,))

    def needs(self, tokens: int, hit: Hit, whole: bool, prefill_end: int = 0) -> int:
        found = -(-tokens // self.block) - hit.tokens // self.block
        return (found if found > 0 else 0) + hit.idle[0]

    def bar(self, tokens: int, whole: int, hit: Hit, prefill_end: int) -> int:
        return self.needs(max(self.slots(tokens), whole), hit, False)

    def admit(self, request: Request, hit: Hit, tokens: int) -> None:
        one = BlockTable(self.table)
        request.held = [one]
        block = self.block
        if hit.tokens:
            one.adopt(self.pool, hit.parts[0], hit.tokens // block, 0)
        blocks = -(-self.slots(tokens) // block)
        if blocks > one.count:
            self.pool.take(blocks - one.count)
            one.count = blocks
        self.offer(request, tokens if tokens < request.tokens else request.tokens)

    def extend(self, request: Request, tokens: int) -> bool:
        slots = tokens + self.ahead
        if slots > self.length:
            slots = self.length
        one = request.held[0]
        more = -(-slots // self.block) - one.count
        if more > 0:
            if more > self.pool.free:
                return False
            self.pool.take(more)
            one.count += more
        self.offer(request, tokens if tokens < request.tokens else request.tokens)
        return True

    def offer(self, request: Request, tokens: int) -> None:
        if self.caching:
            one = request.held[0]
            blocks = tokens // self.block
            if one.cached >= request.own:
                if blocks > one.due:
                    one.due = blocks
                return
            if self.decode_only.shared:
                self.decode_only.look(request, request.order if request.running else LAST)
            if blocks > one.cached:
                one.offer(request.path, blocks, (), self.fresh)

    def store(self, request: Request, tokens: int, fresh: set[Stored]) -> None:
        if self.caching:
            one = request.held[0]
            blocks = tokens // self.block
            if one.cached >= request.own:
                if blocks > one.due:
                    one.due = blocks
            elif blocks > one.cached:
                one.offer(request.path, blocks, (), fresh)

    def let_go(self, request: Request) -> None:
        if not request.held:
            return
        one = request.held[0]
        request.held = []
        if one.due > one.cached:
            if request.tokens >= request.end:
                self.pool.give_back_nobodys(one.due - one.cached)
                one.tail = one.due
            else:
                _own(one, request.path)
        one.let_go(self.pool)


def _own(one: BlockTable, path: Path) -> None:
    """Store what is due of the request's own run."""
    first, _, run = path[-1]
    start, stop = one.cached - first, one.due - first
    one.cached = one.tail = one.due
    pieces, spans = run.pieces[0], one.spans
    if pieces:
        last = spans[-1] if spans else None
        piece = pieces[-1]
        if last is not None and last.piece is piece and piece.refs == 1 and piece.stop == start:
            piece.stop = stop
            last.stop = stop + first
            return
        if not run.doubled:
            run.doubled = any(other.start < stop and start < other.stop for other in pieces)
    piece = Piece(run, pieces, start, stop)
    pieces.append(piece)
    run.stamp += 1
    spans.append(Span(start + first, stop + first, piece))
