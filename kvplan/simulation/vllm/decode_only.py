"""Requests that only make answers: they differ by numbers alone, so they are counted, not visited.

``clock`` counts the steps in which all of them computed one token. A request that joined with c computed
tokens at clock k has c + clock - k, so when it takes a block, gives one back or ends is known at once, and
kept by residue and by clock. What else there is to say of it (its block table, the identities of its
blocks) is brought up to date when it leaves, gives blocks back, or when someone looks up a run that it
writes."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from kvplan.simulation.vllm.block_table import Span
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.tables import Table

if TYPE_CHECKING:
    from kvplan.simulation.vllm.memory import Memory

Bucket = dict[Request, None]

LAST = 1 << 62
"""An order after every request's."""


class Sort:
    """Groups that give blocks back at the same tokens: every ``period`` tokens from ``offset`` processed
    ones."""

    __slots__ = ("buckets", "offset", "period", "tables")

    def __init__(self, table: Table, lag: int) -> None:
        self.period, self.offset = (table.chunk, lag) if table.chunk else (table.block, lag + table.span)
        self.tables = [table]
        self.buckets: dict[int, Bucket] = {}


class DecodeOnly:
    """lag: tokens of a request that are in flight when its next step is scheduled; sliding: whether any group
    gives blocks back; count, bases: how many requests, and the sum of their tokens at clock 0."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.pool, self.lag = memory, memory.pool, memory.engine.depth - 1
        self.slack = 0 if memory.in_flight else self.lag  # of these, what is not given back yet
        self.clock = self.count = self.bases = self.shared = 0
        self.takes: dict[int, tuple[int, dict[int, Bucket]]] = {}
        sorts: dict[tuple[int, int], Sort] = {}
        for table in memory.tables:
            if table.ring:
                continue
            self.takes[table.block] = self.takes.get(table.block, (0, {}))[0] + table.times, {}
            if table.slides:
                made = Sort(table, self.slack)
                found = sorts.setdefault((made.period, made.offset), made)
                if found is not made:
                    found.tables.append(table)
        self.sorts = list(sorts.values())
        self.sliding = bool(self.sorts)
        engine = memory.engine  # blocks that are given back may have no identity, and are then taken first
        self.blanks = engine.caching and (
            engine.retention is not None
            or (self.lag and memory.in_flight)
            or any(table.slides and table.block != engine.unit for table in memory.tables)
        )
        self.stepping = False
        self.fresh: Request | None = None  # whose table is up to date in this step
        self.ends: list[tuple[int, int, Request]] = []

    @property
    def context(self) -> int:
        return self.bases + self.count * self.clock

    def may_join(self, request: Request) -> bool:
        """Whether a request that has just made a token does nothing but that from now on."""
        if request.computed >= request.end - 1 or request.stale or not request.running:
            return False
        if request.flight != self.lag or request.tokens != request.computed + 1 - self.lag:
            return False
        processed = request.computed - self.slack - 1
        return not self.sliding or all(one.table.behind(processed) <= one.gone for one in request.held)

    def join(self, request: Request) -> None:
        clock = self.clock
        base = request.base = request.computed - clock
        request.decode_only, request.joined = True, clock
        self.count += 1
        self.bases += base
        for block, (_, buckets) in self.takes.items():
            bucket = buckets.get(-base % block)
            if bucket is None:
                buckets[-base % block] = {request: None}
            else:
                bucket[request] = None
        for sort in self.sorts:
            sort.buckets.setdefault((sort.offset - base) % sort.period, {})[request] = None
        heappush(self.ends, (request.end - 1 - base, request.order, request))
        stored = request.computed - self.lag
        if request.known <= stored - stored % self.memory.unit:
            return
        request.writes = True
        stored -= stored % self.memory.unit
        for block, path in request.paths.items():
            for _, stop, run in path[:-1]:
                if stop > stored // block:
                    run.writers[request] = None
                    run.stamp += 1
                    self.shared += 1

    def leave(self, request: Request) -> None:
        """The request is to be visited again; its table is as of the clock."""
        self.refresh(request)
        request.decode_only = False
        base = request.base
        request.computed = base + self.clock
        self.count -= 1
        self.bases -= base
        for block, (_, buckets) in self.takes.items():
            _drop(buckets, -base % block, request)
        for sort in self.sorts:
            _drop(sort.buckets, (sort.offset - base) % sort.period, request)
        if request.writes:
            request.writes = False
            for path in request.paths.values():
                for _, _, run in path[:-1]:
                    if request in run.writers:
                        del run.writers[request]
                        self.shared -= 1

    def refresh(self, request: Request) -> None:
        """Bring the block table up to date."""
        if self.shared:
            self._write([request], LAST)
        else:
            self._store(request, 0)

    def served(self, request: Request, turn: int) -> None:
        """Bring up to date the block table of a request that has had its turn in the step under way, as all
        of an order before ``turn``."""
        self.clock += 1
        self.stepping = True
        if self.shared:
            self._write([request], turn - 1)
        else:
            self._store(request, 0)
        self.clock -= 1
        self.stepping = False

    def look(self, request: Request, order: int) -> None:
        """``request`` looks up its runs, or is about to write them: what others up to ``order`` have
        written in them comes first."""
        if self.shared:
            for path in request.paths.values():
                for _, _, run in path[:-1]:
                    if run.writers:
                        self._write(list(run.writers), order)

    def next_fill(self, request: Request) -> int:
        """The clock at which somebody who writes the request's runs next fills a block."""
        found = LAST
        for block, path in request.paths.items():
            size = max(block, self.memory.unit)
            for _, _, run in path:
                for writer in run.writers:
                    tokens = writer.base + self.clock - self.lag
                    found = min(found, self.clock + size - tokens % size)
        return found

    def _count(self, request: Request, back: int) -> None:
        """The blocks that its table had ``back`` steps ago."""
        computed = request.base + self.clock - back
        for one in request.held:
            blocks = -(-computed // one.table.block)
            if blocks > one.count:
                if one.table.single:
                    one.last = blocks - 2
                    one.spans += [Span(place, place + 1, None) for place in range(one.count, blocks)]
                    one.tail = blocks
                one.count = blocks

    def _store(self, request: Request, back: int) -> None:
        """The identities of its blocks as of ``back`` steps ago."""
        self._count(request, back)
        computed = request.base + self.clock
        memory, tokens = self.memory, computed - self.lag - back
        if memory.states:  # only what this very step stores is new
            new = self.stepping and not back
            memory.store(request, tokens - new, set())
            if not new:
                return
        memory.store(request, tokens, memory.fresh)

    def _write(self, writers: list[Request], order: int) -> None:
        """Store what the requests have written, together with all that write the same runs: the first is
        found first, and who is further ahead stores each block first. order: up to whom requests had their
        turn in this step."""
        for request in writers if self.shared else ():  # grows
            for path in request.paths.values():
                for _, _, run in path[:-1]:
                    writers += [other for other in run.writers if other not in writers]
        if len(writers) > 1:
            writers.sort(key=lambda each: (-each.base, each.order))
        for request in writers:
            self._store(request, int(request.order > order))

    def needed(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps take."""
        found, clock = 0, self.clock
        if steps == 1:
            for block, (times, buckets) in self.takes.items():
                bucket = buckets.get(clock % block)
                if bucket:
                    found += len(bucket) * times
            return found
        for block, (times, buckets) in self.takes.items():
            whole, rest = divmod(steps, block)
            taken = whole * self.count
            if rest:
                taken += sum(
                    len(bucket) for place, bucket in buckets.items() if (place - clock) % block < rest
                )
            found += taken * times
        return found

    def lasting(self, most: int, free: int) -> int:
        """For how many of the next ``most`` steps ``free`` blocks suffice."""
        clock = self.clock
        if len(self.takes) == 1:
            ((block, (times, buckets)),) = self.takes.items()
            rounds, left = divmod(free // times, self.count)
            steps = rounds * block
            if steps >= most:
                return most
            for place in range(clock, clock + block):
                bucket = buckets.get(place % block)
                if bucket:
                    left -= len(bucket)
                    if left < 0:
                        break
                steps += 1
            return min(steps, most)
        if self.needed(most) <= free:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.needed(middle) <= free else (low, middle)
        return low

    def quiet(self) -> int:
        """Steps before one in which somebody gives a block back."""
        clock = self.clock
        return min(
            ((place - clock) % sort.period for sort in self.sorts for place in sort.buckets), default=LAST
        )

    def serve(self, needed: int) -> None:
        """One token for each, for which they need so many blocks, which are free: their turns make no
        difference, unless what one gives back is what the next one takes."""
        pool = self.pool
        if self.blanks and needed > pool.blank:
            for request, taken, tables in self.turns():
                for table in tables:
                    self.let_go(request, [table])
                if taken:
                    pool.take(taken)
            return
        if needed:
            pool.take(needed)
        if self.sliding:
            self.free_behind()

    def free_behind(self) -> None:
        """Give back what the requests of this step no longer look at, in their order."""
        clock = self.clock
        due = []
        for sort in self.sorts:
            bucket = sort.buckets.get(clock % sort.period)
            if bucket:
                due.append((bucket, sort.tables))
        if len(due) == 1:
            bucket, tables = due[0]
            for request in sorted(bucket, key=_order) if len(bucket) > 1 else bucket:
                self.let_go(request, tables)
        elif due:
            turns = [
                (request.order, table.number, request, [table])
                for bucket, tables in due
                for request in bucket
                for table in tables
            ]
            turns.sort(key=_turn)
            for _, _, request, tables in turns:
                self.let_go(request, tables)

    def let_go(self, request: Request, tables: list[Table]) -> None:
        """Free the blocks that the request no longer reads, in tables of equal rules."""
        table, processed, pool = tables[0], request.base + self.clock - self.slack, self.pool
        limit = table.behind(processed) if table.chunk else (processed - table.span) // table.block
        for table in tables:
            one = request.held[table.number]
            if limit > one.gone:
                if (one.cached < limit or self.memory.states) and self.fresh is not request:
                    self.refresh(request)
                    self.fresh = request
                one.let_go_before(pool, limit)

    def turns(self) -> list[tuple[Request, int, list[Table]]]:
        """Requests that take or give back blocks in this step, in their order: the blocks, the tables."""
        clock = self.clock
        found: dict[Request, tuple[int, list[Table]]] = {}
        for block, (times, buckets) in self.takes.items():
            for request in buckets.get(clock % block, ()):
                taken, groups = found.get(request, (0, []))
                found[request] = taken + times, groups
        for sort in self.sorts:
            for request in sort.buckets.get(clock % sort.period, ()):
                taken, groups = found.get(request, (0, []))
                found[request] = taken, groups + sort.tables
        return [
            (request, taken, sorted(groups, key=_number))
            for request, (taken, groups) in sorted(found.items(), key=lambda entry: entry[0].order)
        ]

    def until_end(self) -> int:
        """Steps up to the one that is somebody's last, that one among them."""
        ends = self.ends
        while ends and (not ends[0][2].decode_only or ends[0][2].base + ends[0][0] != ends[0][2].end - 1):
            heappop(ends)
        return ends[0][0] - self.clock if ends else 1 << 62

    def ended(self) -> list[Request]:
        """Requests whose last step this one is; they leave."""
        found: list[Request] = []
        ends, clock = self.ends, self.clock
        while ends and ends[0][0] <= clock:
            request = heappop(ends)[2]
            if request.decode_only and request.base + clock == request.end - 1:
                self.leave(request)
                found.append(request)
        return found


_order, _number = attrgetter("order"), attrgetter("number")
_turn = itemgetter(0, 1)


def _drop(buckets: dict[int, Bucket], place: int, request: Request) -> None:
    bucket = buckets[place]
    del bucket[request]
    if not bucket:
        del buckets[place]
