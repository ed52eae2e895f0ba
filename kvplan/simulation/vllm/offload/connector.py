"""Decisions of an offloading connector: the prefix that a request loads, the chunks stored, and when.

vllm-project/vllm 0.32, 0.33 vllm/distributed/kv_transfer/kv_connector/v1/offloading/{scheduler,worker}.py
(one group of full attention). Not in it: a step that waits because blocks of an ended request are evicted
while they are still stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kvplan.named import NamedTuple
from kvplan.simulation.time.names import Segment
from kvplan.simulation.vllm.offload.policies import Met
from kvplan.simulation.vllm.offload.settings import Offload
from kvplan.simulation.vllm.offload.store import HIT, MISS, PENDING, Store
from kvplan.simulation.vllm.releases import Rules
from kvplan.simulation.vllm.request import Request

_PLACES = 24
_OWN = 1 << 60
_STORED, _LOADED, _CASCADED, _PROMOTED = range(4)


class Kept:
    """One request's: its chunks' keys, the next to be stored, transfers under way, stores under way (when
    they end, what they store), whether it was ever served."""

    __slots__ = ("from_behind", "jobs", "keys", "met", "next", "request", "served", "stores")

    def __init__(self, request: Request, keys: list[int]) -> None:
        self.request, self.keys = request, keys
        self.next = self.jobs = 0
        self.stores: list[tuple[int, list[int]]] = []
        self.met, self.served = Met(), False
        self.from_behind: dict[int, int] = {}


class Moved(NamedTuple):
    """A transfer that ends at ``at_ns``."""

    at_ns: int
    number: int
    kind: int
    kept: Kept | None
    keys: Sequence[int]
    tier: int


class Counts:
    """loaded: tokens of each tier that requests loaded when they were first admitted; stored_blocks,
    loaded_blocks: GPU blocks moved to and from each tier; loads: of requests, load_ns: how long they took
    together; left_out: hits that were computed because that was quicker."""

    def __init__(self, tiers: int) -> None:
        self.loaded = [0] * tiers
        self.stored_blocks = [0] * tiers
        self.loaded_blocks = [0] * tiers
        self.loads = self.load_ns = self.left_out = 0


class Offloading:
    """The connector of one engine. there: takes requests whose blocks have arrived."""

    def __init__(self, offload: Offload, block: int, rules: Rules) -> None:
        self.offload, self.block, self.anew = offload, block, rules.offers_anew
        self.within, self.version = offload.within, 0
        self.chunk, self.wide = offload.chunk, offload.chunk // block
        self.store = Store(offload, rules.shared_rank)
        self.requests: dict[Request, Kept] = {}
        self.ended: list[Request] = []
        self.loading: set[int] = set()
        self.loads: list[tuple[Kept, list[int], int]] = []
        self.moving: list[Moved] = []
        self.moves = 0
        # One transfer after another in each direction, both at once (cpu/gpu_worker.py).
        self.out_free = [0] * len(offload.tiers)
        self.in_free = [0] * len(offload.tiers)
        self.waits_for = 0
        self.fenced: dict[int, int] = {}
        self.counts = Counts(len(offload.tiers))
        self.now = 0

    def add(self, request: Request, path: Sequence[Segment], place: int) -> None:
        """A request has come. path: its prompt's runs in chunks; place: its number in the trace."""
        keys: list[int] = []
        for start, stop, run in path:
            keys += range(run << _PLACES, (run << _PLACES) + stop - start)
        own = _OWN + (place << _PLACES)
        keys += range(own + len(keys), own + request.most // self.chunk)
        self.requests[request] = Kept(request, keys)

    # --- what the scheduler asks ---

    def matched(self, request: Request, local: int) -> int | None:
        """Tokens of the longest row of whole chunks beyond the prefix cache, if it is a chunk or more; None
        while one of them is being written, or loaded by another: the request is passed over and asks
        again."""
        kept = self.requests[request]
        if self.anew:
            kept.next = 0
        if kept.jobs:
            return None
        chunk, tokens = self.chunk, request.tokens - self.offload.spared
        limit = tokens // chunk * chunk
        if limit - local < chunk:
            return 0
        start, stop = local // chunk, limit // chunk
        hits, waits = self._row(kept, start, stop)
        if not hits and not waits:
            return 0
        if waits:
            return None
        limit = min(limit, chunk * (start + hits))
        if limit - local < chunk:
            return 0
        keys = kept.keys[start : limit // chunk]
        if self.loading and not self.loading.isdisjoint(keys):
            return None
        if self.offload.compute_ns and self._load_ns(limit - local) > self.offload.compute_ns * (
            limit - local
        ):
            self.counts.left_out += 1
            return 0
        return limit - local

    def _row(self, kept: Kept, start: int, stop: int) -> tuple[int, bool]:
        """How many chunks in a row are there, and whether one of them is still being written."""
        look, keys, met, behind = self.store.look, kept.keys, kept.met, kept.from_behind
        hits, waits = 0, False
        for place in range(start, stop):
            found = look(keys[place], met, place, behind)
            if found == MISS:
                break
            waits = waits or found == PENDING
            hits += found in (HIT, PENDING)
        return hits, waits

    def _load_ns(self, tokens: int) -> int:
        """How long a load lasts that began now, with those before it on the link."""
        tier = self.offload.tiers[0]
        return max(0, self.in_free[0] - self.now) + tier.latency_ns + tier.load_ns * -(-tokens // self.block)

    def begin(self, request: Request, local: int, tokens: int) -> None:
        kept, chunk = self.requests[request], self.chunk
        start, stop = local // chunk, -(-(local + tokens) // chunk)
        keys = kept.keys[start:stop]
        self.store.load(keys, range(start, stop), kept.met)
        for place in range(start, stop) if not kept.served else ():
            here = min(local + tokens, (place + 1) * chunk) - max(local, place * chunk)
            self.counts.loaded[kept.from_behind.get(kept.keys[place], 0)] += here
        kept.next, kept.served = stop, True
        kept.jobs += 1
        if not self.within:
            self.loading.update(keys)
        self.loads.append((kept, keys, -(-tokens // self.block)))
        self.version += 1

    def owes(self, request: Request) -> bool:
        kept = self.requests[request]
        return self.offload.answers or kept.next < request.prompt // self.chunk

    def preempted(self, request: Request) -> None:
        """Its stores are waited for before the next step (jobs_to_flush); it is looked at again once they are
        over."""
        for ends, _ in self.requests[request].stores:
            self.waits_for = max(self.waits_for, ends)

    def left(self, request: Request) -> None:
        """Its stores are waited for where another request finds its blocks."""
        self.ended.append(request)
        for ends, keys in self.requests[request].stores:
            self.fenced.update(dict.fromkeys(keys, ends))

    # --- time ---

    def starts_after(self, admitted: Sequence[tuple[Request, int]]) -> int:
        """Not before this may a step start: stores of preempted requests are waited for, and those of ended
        ones whose blocks an admitted request has found."""
        found, self.waits_for = self.waits_for, 0
        for request, hit in admitted if self.fenced else ():
            for key in self.requests[request].keys[: -(-hit // self.chunk)]:
                found = max(found, self.fenced.get(key, 0))
        return found

    def scheduled(self, parts: Sequence[tuple[Request, int]], starts: int, ends: int) -> int:
        """A step was scheduled: its loads begin with it, what it fills is stored when it has ended. The time
        that the step itself waits for loads."""
        waits = 0
        tier = self.offload.tiers[0]
        for kept, keys, blocks in self.loads:
            at = max(starts, self.in_free[0]) + tier.latency_ns + tier.load_ns * blocks
            self.in_free[0] = at
            self.counts.loaded_blocks[0] += blocks
            self.counts.loads += 1
            self.counts.load_ns += at - starts
            if self.within:
                waits = max(waits, at - starts)
                self.store.release(keys)
                kept.jobs -= 1
            else:
                self._move(at, _LOADED, kept, keys, 0)
        self.loads.clear()
        ends += waits
        for request, _ in parts:
            self._keep(request, request.computed, ends)
        for request in self.ended:
            self._keep(request, max(request.prompt, request.tokens - 1), ends)
            kept = self.requests[request]
            self.store.finish(kept.met)
            if not kept.jobs:
                del self.requests[request]
        self.ended.clear()
        for number, keys in enumerate(self.store.asked):
            if keys:
                one = self.offload.tiers[number + 1]
                blocks = len(keys) * self.wide
                at = max(ends, self.in_free[number + 1]) + one.latency_ns + one.load_ns * blocks
                self.in_free[number + 1] = at
                self.counts.loaded_blocks[number + 1] += blocks
                self._move(at, _PROMOTED, None, list(keys), number)
                keys.clear()
        return waits

    def _keep(self, request: Request, tokens: int, ends: int) -> None:
        """Store whole chunks of ``tokens`` tokens that the tier has not, in one transfer when the step ends;
        what was loaded is not offered again."""
        kept = self.requests[request]
        kept.served = True
        chunks = (
            min(tokens, request.tokens if self.offload.answers else request.prompt, request.tokens)
            // self.chunk
        )
        if chunks <= kept.next:
            return
        keys = kept.keys[kept.next : chunks]
        wanted = self.store.store(keys, range(kept.next, chunks), kept.met)
        if wanted is None:
            return
        kept.next = chunks
        if not wanted:
            return
        self.version += 1
        tier, blocks = self.offload.tiers[0], len(wanted) * self.wide
        at = max(ends, self.out_free[0]) + tier.latency_ns + tier.store_ns * blocks
        self.out_free[0] = at
        kept.stores.append((at, wanted))
        self.counts.stored_blocks[0] += blocks
        kept.jobs += 1
        self._move(at, _STORED, kept, wanted, 0)

    def _move(self, at: int, kind: int, kept: Kept | None, keys: Sequence[int], tier: int) -> None:
        self.moves += 1
        heapq.heappush(self.moving, Moved(at, self.moves, kind, kept, keys, tier))

    def next_ns(self) -> int | None:
        """When the next transfer ends."""
        return self.moving[0].at_ns if self.moving else None

    def arrived(self, now: int, there: set[Request]) -> None:
        """Transfers that have ended."""
        self.now = now
        moving, store = self.moving, self.store
        while moving and moving[0].at_ns <= now:
            at, _, kind, kept, keys, tier = heapq.heappop(moving)
            self.version += 1
            if kind == _STORED:
                assert kept is not None
                store.written(keys)
                self._cascade(keys, at)
                kept.stores.pop(0)
                for key in keys if self.fenced else ():
                    self.fenced.pop(key, None)
            elif kind == _LOADED:
                assert kept is not None
                store.release(keys)
                self.loading.difference_update(keys)
                there.add(kept.request)
            elif kind == _CASCADED:
                store.release(keys)
            else:
                store.written(keys)
                store.behind[tier].use(keys)
            if kept is not None and kind in (_STORED, _LOADED):
                kept.jobs -= 1
                request = kept.request
                ended = request.tokens >= request.end and not request.held and request not in self.ended
                if ended and not kept.jobs:
                    self.requests.pop(request, None)

    def _cascade(self, keys: Sequence[int], at: int) -> None:
        """On to the tiers behind."""
        for number, behind in enumerate(self.store.behind):
            fresh = [key for key in keys if not behind.has(key)]
            behind.add(keys)
            self.store.hold(keys)
            tier, blocks = behind.tier, len(fresh) * self.wide
            ends = max(at, self.out_free[number + 1]) + tier.latency_ns + tier.store_ns * blocks
            self.out_free[number + 1] = ends
            self.counts.stored_blocks[number + 1] += blocks
            self._move(ends, _CASCADED, None, keys, number)
