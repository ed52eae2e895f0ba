"""Eviction of the first tier: the two policies of vLLM's offloading connector.

vllm-project/vllm 0.32, 0.33 vllm/v1/kv_offload/cpu/policies/{lru,arc}.py. A chunk's references: -1 while it
is being written, else transfers that read it; only a chunk with none can be evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

WRITING = -1


class Met:
    """Keys that one request met (_RequestCacheAccess), by their place in its prompt; rank: of `SharedLru`."""

    __slots__ = ("places", "rank", "reused", "stored", "wanted")

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.stored: set[int] = set()
        self.reused: set[int] = set()
        self.wanted: set[int] = set()
        self.rank = 0


class Policy(Protocol):
    """``get``: a chunk's references, None where it is not there. ``missed``: keys that a request is about to
    store; ``met``: keys that it meets for the first time, in their order; ``finished``: keys that a request
    met, the last first; ``evict``: so many keys, or None where they cannot be had."""

    def get(self, key: int) -> int | None: ...
    def set(self, keys: Sequence[int], references: int) -> None: ...
    def insert(self, keys: Sequence[int], met: Met) -> None: ...
    def met(self, keys: Sequence[int], met: Met) -> None: ...
    def missed(self, keys: Sequence[int]) -> None: ...
    def finished(self, keys: Sequence[int], met: Met) -> None: ...
    def evict(self, count: int, kept: Collection[int]) -> list[int] | None: ...


class Lru:
    """In the order of last use; a request that ends uses all its chunks, the last first."""

    def __init__(self, size: int) -> None:
        self.chunks: OrderedDict[int, int] = OrderedDict()
        self.get = self.chunks.get

    def set(self, keys: Sequence[int], references: int) -> None:
        self.chunks.update(dict.fromkeys(keys, references))

    def insert(self, keys: Sequence[int], met: Met) -> None:
        self.set(keys, WRITING)

    def met(self, keys: Sequence[int], met: Met) -> None:
        """Nothing: what a request met counts when it ends."""

    def missed(self, keys: Sequence[int]) -> None:
        """Nothing: they are not there."""

    def finished(self, keys: Sequence[int], met: Met) -> None:
        chunks, move = self.chunks, self.chunks.move_to_end
        for key in keys:
            if key in chunks:
                move(key)

    def evict(self, count: int, kept: Collection[int]) -> list[int] | None:
        found = []
        for key, references in self.chunks.items():
            if not references and key not in kept:
                found.append(key)
                if len(found) == count:
                    break
        if len(found) < count:
            return None
        for key in found:
            del self.chunks[key]
        return found


class SharedLru:
    """Since 0.33: what a request meets while it runs has one rank, its last chunk before its first; when it
    ends each chunk has a rank of its own.

    groups: of each rank, the lowest first, (place, key) with the next to go last; chunks that a request which
    ended has used are one group, in their order. where: the rank that a key has; other entries are stale.
    """

    def __init__(self, size: int) -> None:
        self.chunks: dict[int, int] = {}
        self.where: dict[int, int] = {}
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.next = 0
        self.get = self.chunks.get

    def set(self, keys: Sequence[int], references: int) -> None:
        self.chunks.update(dict.fromkeys(keys, references))

    def _join(self, keys: Sequence[int], met: Met) -> None:
        group, places = self._group_of(met), met.places
        behind = bool(group) and places[keys[0]] < group[-1][0]
        group += [(places[key], key) for key in keys]
        if behind:
            group.sort()
        self.where.update(dict.fromkeys(keys, met.rank))

    def _group_of(self, met: Met) -> list[tuple[int, int]]:
        if not met.rank:
            self.next += 1
            met.rank = self.next
        group = self.groups.get(met.rank)
        if group is None:
            group = self.groups[met.rank] = []
            if met.rank != self.next:  # all that it had was evicted
                self.groups = dict(sorted(self.groups.items()))
        return group

    def insert(self, keys: Sequence[int], met: Met) -> None:
        self.set(keys, WRITING)
        self._join(keys, met)

    def met(self, keys: Sequence[int], met: Met) -> None:
        self._group_of(met)
        where, own = self.where, met.rank
        again = [key for key in keys if key in where and where[key] < own]
        if again:
            self._join(again, met)

    def missed(self, keys: Sequence[int]) -> None:
        """Nothing: they are not there."""

    def finished(self, keys: Sequence[int], met: Met) -> None:
        self.groups.pop(met.rank, None)
        there = [key for key in keys if key in self.where]
        if there:
            self.next += 1
            there.reverse()
            self.groups[self.next] = list(enumerate(there))
            self.where.update(dict.fromkeys(there, self.next))

    def evict(self, count: int, kept: Collection[int]) -> list[int] | None:
        chunks, where = self.chunks, self.where
        found: list[int] = []
        empty: list[int] = []
        changed: dict[int, list[tuple[int, int]]] = {}
        for rank, group in self.groups.items():
            stay, gone = [], []
            while group and len(found) < count:
                entry = group.pop()
                key = entry[1]
                if where.get(key) != rank:
                    continue
                if chunks[key] or key in kept:
                    stay.append(entry)
                else:
                    found.append(key)
                    gone.append(entry)
            group += reversed(stay)
            changed[rank] = gone
            if not group:
                empty.append(rank)
            if len(found) == count:
                break
        if len(found) < count:
            for rank, gone in changed.items():
                self.groups[rank] += gone
                self.groups[rank].sort()
            return None
        for rank in empty:
            del self.groups[rank]
        for key in found:
            del chunks[key], where[key]
        return found


class Arc:
    """Adaptive: chunks met once (t1) and again (t2), with ghosts of both (b1, b2) that move ``target``, the
    chunks that t1 should have."""

    def __init__(self, size: int) -> None:
        self.size, self.target = size, 0.0
        self.t1: OrderedDict[int, int] = OrderedDict()
        self.t2: OrderedDict[int, int] = OrderedDict()
        self.b1: OrderedDict[int, None] = OrderedDict()
        self.b2: OrderedDict[int, None] = OrderedDict()

    def get(self, key: int) -> int | None:
        found = self.t1.get(key)
        return self.t2.get(key) if found is None else found

    def set(self, keys: Sequence[int], references: int) -> None:
        for key in keys:
            (self.t1 if key in self.t1 else self.t2)[key] = references

    def met(self, keys: Sequence[int], met: Met) -> None:
        """Nothing: what a request met counts when it ends."""

    def insert(self, keys: Sequence[int], met: Met) -> None:
        for key in keys:
            self.t1[key] = WRITING
            self.b1.pop(key, None)
            self.b2.pop(key, None)

    def missed(self, keys: Sequence[int]) -> None:
        for key in reversed(keys):
            if key in self.b1:
                self.target = min(self.target + max(1, len(self.b2) / len(self.b1)), self.size)
                self.b1.move_to_end(key)
            elif key in self.b2:
                self.target = max(self.target - max(1, len(self.b1) / len(self.b2)), 0)
                self.b2.move_to_end(key)

    def finished(self, keys: Sequence[int], met: Met) -> None:
        stored, reused = met.stored - met.reused, met.reused
        for key in keys:
            if key in stored:
                if key in self.t1:
                    self.t1.move_to_end(key)
                elif key in self.t2:
                    self.t2.move_to_end(key)
            elif key in reused:
                if key in self.t1:
                    self.t2[key] = self.t1.pop(key)
                elif key in self.t2:
                    self.t2.move_to_end(key)

    def evict(self, count: int, kept: Collection[int]) -> list[int] | None:
        found: list[tuple[int, bool]] = []
        left = len(self.t1)
        first, second = _idle(self.t1, kept), _idle(self.t2, kept)
        for _ in range(count):
            key, recent = None, True
            if left >= int(self.target):
                key = next(first, None)
            if key is None:
                key, recent = next(second, None), False
            if key is None:
                key, recent = next(first, None), True
            if key is None:
                return None
            left -= recent
            found.append((key, recent))
        for key, recent in found:
            if recent:
                del self.t1[key]
                self.b1[key] = None
            else:
                del self.t2[key]
                self.b2[key] = None
        for ghosts in (self.b1, self.b2):
            while len(ghosts) > self.size:
                ghosts.popitem(last=False)
        return [key for key, _ in found]


def _idle(chunks: OrderedDict[int, int], kept: Collection[int]) -> Iterator[int]:
    for key, references in chunks.items():
        if not references and key not in kept:
            yield key
