"""Blocks for requests: what a step needs of the pool, and giving it.

vllm-project/vllm 0.32 vllm/v1/core/kv_cache_manager.py (get_computed_blocks, allocate_slots).
"""

from __future__ import annotations

from kvplan.record import record
from kvplan.simulation.vllm.block_table import BlockTable, Part, Stored
from kvplan.simulation.vllm.decode_only import LAST, DecodeOnly
from kvplan.simulation.vllm.diverged_groups import revive
from kvplan.simulation.vllm.lookup import longest_hit, parts_of, sorts_of
from kvplan.simulation.vllm.pool import Pool
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.tables import tables_of
from kvplan.units import ceil_div


@record(eq=False)
class Hit:
    """A prefix that the cache has. parts: of each table its pieces; idle: of each blocks, of all its groups,
    that nobody holds; junction: as in `Request`."""

    tokens: int = 0
    junction: int = 0
    parts: tuple[list[Part], ...] = ()
    idle: tuple[int, ...] = ()


NOTHING = Hit(0, 0, ([],), (0,))


class Memory:
    def __init__(self, engine: Engine, merged: bool = True) -> None:
        self.engine, self.tables = engine, tables_of(engine, merged)
        self.pool = Pool(engine.blocks, not engine.reserve or any(table.slides for table in self.tables))
        self.sliding = [table.number for table in self.tables if table.slides]
        self.sorts = sorts_of(self.tables)
        self.looked = [tables for tables in self.sorts if not tables[0].ring]
        self.caching, self.length = engine.caching, engine.length
        self.in_flight = engine.rules.in_flight
        self.table = self.tables[0]
        self.whole = len(engine.groups) == 1 and not self.table.slides
        self.block = self.table.block
        self.unit = engine.unit if len(engine.groups) > 1 else 1
        self.hashed, self.renews = engine.hashed, engine.rules.renews
        self.fresh: set[Stored] = set()
        self.states = any(table.state for table in self.tables)
        self.saving = next((table for table in self.tables if table.checkpoint), None)
        drafts = engine.drafts
        self.ahead = drafts.ahead if drafts is not None else 0  # tokens that have blocks before their step
        self.drops = drafts is not None and drafts.drops
        self.resumes = self.states or self.engine.retention is not None  # junctions matter
        self.decode_only = DecodeOnly(self)

    def hit(self, request: Request) -> Hit:
        if not self.caching:
            return Hit(0, 0, ([],) * len(self.tables), (0,) * len(self.tables))
        self.decode_only.look(request, LAST)
        if self.pool.dead:
            self._revive(request)
        tokens, longest = longest_hit(self.looked, request.paths, request.tokens - 1)
        divided = -1
        while divided != self.pool.divided:  # what is told apart may stand in parts that were found before
            divided = self.pool.divided
            parts, idle = self._parts(request, tokens)
        return Hit(tokens, longest if longest > tokens else 0, tuple(parts), tuple(idle))

    def _parts(self, request: Request, tokens: int) -> tuple[list[list[Part]], list[int]]:
        """Where a hit is."""
        parts: list[list[Part]] = []
        idle: list[int] = []
        for table in self.tables:
            if table.ring:
                parts.append([])
                idle.append(0)
                continue
            blocks = tokens // table.block
            start = blocks - 1 if table.state and blocks else min(blocks, table.behind(tokens))
            found, unused = parts_of(self.pool, table, request.paths[table.block], start, blocks)
            parts.append(found)
            idle.append(unused)
        return parts, idle

    @staticmethod
    def found_again(hit: Hit) -> Hit:
        """A hit of which nothing was evicted since: pieces may have been cut, held and given back."""
        parts, idle = [], []
        for found in hit.parts:
            now: list[Part] = []
            unused = 0
            for piece, start, stop, place in found:
                while piece.stop <= start:
                    assert piece.rest is not None
                    piece = piece.rest
                at = start
                while True:
                    upto = piece.stop if piece.stop < stop else stop
                    now.append((piece, at, upto, place + at - start))
                    if not piece.refs:
                        unused += (upto - at) * piece.times
                    if upto >= stop:
                        break
                    assert piece.rest is not None
                    at, piece = upto, piece.rest
            parts.append(now)
            idle.append(unused)
        return Hit(hit.tokens, hit.junction, tuple(parts), tuple(idle))

    def _revive(self, request: Request) -> None:
        """Of a block that some groups of a table still have, and that was stored once more, each group finds
        the one that was stored first."""
        runs = {run for path in request.paths.values() for _, _, run in path}
        for piece, low, high in self.pool.lost:
            if piece.run in runs and any(one.start < high and low < one.stop for one in piece.pieces):
                revive(self.pool)
                return

    def prefill_end(self, request: Request) -> int:
        """Tokens that a step must reach so that it saves a state; 0: any step does that ends behind one."""
        return request.prefill_end if self.engine.retention == 0 else 0

    def saved(self, request: Request, start: int, end: int) -> int:
        """1 where the request's step of tokens [start, end) saves a state at a boundary before its end."""
        table = self.saving
        return table.saves(start, end, self.prefill_end(request), end) if table is not None else 0

    def needs(self, tokens: int, hit: Hit, whole: bool, prefill_end: int = 0) -> int:
        """Blocks that must be free to admit a request for ``tokens`` tokens (get_num_blocks_to_allocate)."""
        needed = 0
        if self.states and self.fresh:
            for table, parts in zip(self.tables, hit.parts):
                if table.state and parts:
                    piece, _, stop, _ = parts[-1]
                    if (piece.run, table.number, stop - 1) in self.fresh:
                        return self.engine.blocks + 2
        for tables in self.sorts:  # of one rule
            table = tables[0]
            blocks, have = ceil_div(tokens, table.block), hit.tokens // table.block
            if whole and table.cap is not None:
                blocks = min(blocks, table.cap)
            skipped = 0 if table.single else table.behind(hit.tokens)
            more = max(0, blocks - max(skipped, have))
            if table.single and more:
                more = 1 + table.saves(hit.tokens, tokens, prefill_end, tokens)
            for table in tables:
                idle = hit.idle[table.number] if have > skipped or table.single else 0
                needed += more * table.times + idle
        return needed

    def bar(self, tokens: int, whole: int, hit: Hit, prefill_end: int) -> int:
        """The same where ``whole`` tokens must fit as well (0: need not)."""
        needed = self.needs(self.slots(tokens), hit, False, prefill_end)
        return max(needed, self.needs(whole, hit, True, prefill_end)) if whole else needed

    def slots(self, tokens: int) -> int:
        """Tokens that have blocks once so many are computed: a draft's own lie beyond them."""
        return min(tokens + self.ahead, self.length) if self.ahead else tokens

    def admit(self, request: Request, hit: Hit, tokens: int) -> None:
        """Give a request a hit and blocks up to ``tokens`` tokens."""
        request.held = held = [BlockTable(table) for table in self.tables]
        request.saved = self.saved(request, hit.tokens, tokens)
        if hit.tokens:
            for one, parts in zip(held, hit.parts):
                table = one.table
                one.adopt(self.pool, parts, hit.tokens // table.block, table.behind(hit.tokens))
        for one in held:
            one.grow(self.pool, ceil_div(self.slots(tokens), one.table.block), request.saved)
        self.offer(request, min(tokens, request.tokens))

    def extend(self, request: Request, tokens: int) -> bool:
        """Give a running request blocks up to ``tokens`` tokens; False where too few are free."""
        processed = request.computed - (0 if self.in_flight else request.flight)
        held, pool = request.held, self.pool
        for number in self.sliding:
            one = held[number]
            limit = one.table.behind(processed)
            if limit > one.gone or one.table.leaks:
                one.let_go_before(pool, limit)
        computed, tokens = tokens, min(tokens + self.ahead, self.length)
        saved = request.saved = self.saved(request, request.computed, tokens)
        needed = 0
        for one in held:
            more = -(-tokens // one.table.block) - one.count
            if more > 0:
                needed += ((1 + saved) if one.table.single else more) * one.table.times
        if needed > pool.free:
            return False
        if needed:
            for one in held:
                one.grow(pool, -(-tokens // one.table.block), saved)
        self.offer(request, min(computed, request.tokens))
        return True

    def offer(self, request: Request, tokens: int) -> None:
        """Identities for the blocks that ``tokens`` tokens fill (cache_blocks)."""
        if self.caching:
            self.decode_only.look(request, request.order if request.running else LAST)
            self.store(request, tokens, self.fresh)

    def store_looked(self, request: Request, tokens: int) -> None:
        """Identities for what a request has written, after what others have written before it."""
        self.decode_only.look(request, LAST)
        self.store(request, tokens, self.fresh)

    def store(self, request: Request, tokens: int, fresh: set[Stored]) -> None:
        if not self.caching:
            return
        tokens -= tokens % self.unit
        last = (request.prompt - 1) // self.hashed * self.hashed if self.renews else 0
        for one in request.held:
            if one.table.ring:
                continue
            if one.table.single and tokens and tokens == last and not request.saved:
                one.freshen(request.paths[one.table.block], tokens // one.table.block - 1, fresh)
            blocks = tokens // one.table.block
            if blocks > one.cached:
                one.offer(
                    request.paths[one.table.block], blocks, (request.prompt - 1, request.junction), fresh
                )

    def let_go(self, request: Request) -> None:
        for one in request.held:
            one.let_go(self.pool)
        request.held = []
