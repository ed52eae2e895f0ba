"""The first tier, and those behind it: what is there, what is stored, what is evicted.

vllm-project/vllm 0.32, 0.33 vllm/v1/kv_offload/cpu/manager.py (CPUOffloadingManager) and
vllm/v1/kv_offload/tiering/manager.py (TieringOffloadingManager): what is stored goes on to every tier behind;
a chunk that only a tier behind has is brought into the first, and the request looks again later. Tiers
behind evict the least recently used here; vLLM's own file tier leaves that to its file system.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvplan.simulation.vllm.offload.policies import WRITING, Arc, Lru, Met, Policy, SharedLru
from kvplan.simulation.vllm.offload.settings import ARC, Offload, Tier

MISS, PENDING, HIT = range(3)


class Behind:
    """A tier behind the first: the least recently used leaves."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.chunks: OrderedDict[int, None] = OrderedDict()
        self.evicted = 0

    def has(self, key: int) -> bool:
        return key in self.chunks

    def add(self, keys: Sequence[int]) -> None:
        chunks = self.chunks
        for key in reversed(keys):
            chunks[key] = None
            chunks.move_to_end(key)
        while len(chunks) > self.tier.chunks:
            chunks.popitem(last=False)
            self.evicted += 1

    def use(self, keys: Sequence[int]) -> None:
        for key in reversed(keys):
            if key in self.chunks:
                self.chunks.move_to_end(key)


class Store:
    """used: chunks that the first tier holds; idle: of these, what may be evicted; asked: promotions that a
    look-up asked for, by tier behind, until the step's end; source: of keys that a request had promoted, the
    number of their tier."""

    def __init__(self, offload: Offload, shared: bool) -> None:
        self.size = offload.tiers[0].chunks
        lru = SharedLru if shared else Lru
        self.policy: Policy = Arc(self.size) if offload.policy == ARC else lru(self.size)
        self.adapts = offload.policy == ARC
        self.used = self.idle = self.evicted = self.failures = 0
        self.behind = [Behind(tier) for tier in offload.tiers[1:]]
        self.asked: list[list[int]] = [[] for _ in self.behind]

    def look(self, key: int, met: Met, place: int, source: dict[int, int]) -> int:
        """Whether a chunk is there; where only a tier behind has it, it is asked for."""
        references = self.policy.get(key)
        if references is not None:
            return PENDING if references == WRITING else HIT
        for number, tier in enumerate(self.behind):
            if tier.has(key):
                if not self.store([key], [place], met):
                    return MISS
                self.asked[number].append(key)
                source[key] = number + 1
                return PENDING
        return MISS

    def store(self, keys: Sequence[int], places: Sequence[int], met: Met) -> list[int] | None:
        """Make room for the keys that are not there: those, or None where there is none to be had."""
        wanted, fresh = self._news(keys, places, met)
        if self.adapts:
            missed = [key for key in wanted if key not in met.wanted]
            self.policy.missed(missed)
            met.wanted.update(missed)
        if fresh:
            self.policy.met(fresh, met)
        if not wanted:
            return wanted
        needed = len(wanted) - (self.size - self.used)
        if needed > 0:
            gone = None if needed > self.idle else self.policy.evict(needed, set(keys))
            if gone is None:
                self.failures += 1
                return None
            self.idle -= needed
            self.used -= needed
            self.evicted += needed
        self.policy.insert(wanted, met)
        self.used += len(wanted)
        met.stored.update(wanted)
        return wanted

    def _news(self, keys: Sequence[int], places: Sequence[int], met: Met) -> tuple[list[int], list[int]]:
        """(keys that are not there, keys that the request meets for the first time); what it meets is
        written down."""
        get, known = self.policy.get, met.places
        wanted, fresh = [], []
        for key, place in zip(keys, places):
            references = get(key)
            if references != WRITING:
                if key not in known:
                    known[key] = place
                    fresh.append(key)
                if references is None:
                    wanted.append(key)
                elif key not in met.stored:
                    met.reused.add(key)
        return wanted, fresh

    def written(self, keys: Sequence[int]) -> None:
        """They can be read now."""
        self.policy.set(keys, 0)
        self.idle += len(keys)

    def hold(self, keys: Sequence[int]) -> None:
        """A transfer reads them."""
        policy = self.policy
        for key in keys:
            references = policy.get(key)
            assert references is not None
            assert references != WRITING
            self.idle -= not references
            policy.set((key,), references + 1)

    def release(self, keys: Sequence[int]) -> None:
        """The transfer is over."""
        policy = self.policy
        for key in keys:
            references = policy.get(key)
            assert references, "a chunk is released that nobody holds"
            policy.set((key,), references - 1)
            self.idle += references == 1

    def load(self, keys: Sequence[int], places: Sequence[int], met: Met) -> None:
        """A request reads them."""
        self.hold(keys)
        fresh = [key for key in keys if key not in met.places]
        met.places.update(zip(keys, places))
        self.policy.met(fresh, met)
        for key in keys:
            if key not in met.stored:
                met.reused.add(key)

    def finish(self, met: Met) -> None:
        """The request has ended: it used all that it met, the first of its prompt last."""
        places = met.places
        self.policy.finished(sorted(places, key=places.__getitem__, reverse=True), met)
