"""What the first tier evicts: the two policies of vLLM's offloading connector.

vllm-project/vllm 0.32, 0.33 vllm/v1/kv_offload/cpu/policies/{lru,arc}.py. A chunk's references: -1 while it
is being written, else transfers that read it; only a chunk with none can be evicted.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
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
    store; ``met``: keys that it meets for the first time; ``finished``: keys that a request met, the last
    first, with those that it only stored and those that it reused; ``evict``: so many keys, or None where
    they cannot be had."""

    def get(self, key: int) -> int | None: ...
    def set(self, key: int, references: int) -> None: ...
    def insert(self, key: int, place: int, met: Met) -> None: ...
    def met(self, keys: Sequence[int], met: Met) -> None: ...
    def missed(self, keys: Sequence[int]) -> None: ...
    def finished(self, keys: Iterable[int], stored: Collection[int], reused: Collection[int]) -> None: ...
    def evict(self, count: int, kept: Collection[int]) -> list[int] | None: ...


class Lru:
    """In the order of last use; a request that ends uses all its chunks, the last first."""

    def __init__(self, size: int) -> None:
        self.chunks: OrderedDict[int, int] = OrderedDict()
        self.get = self.chunks.get

    def set(self, key: int, references: int) -> None:
        self.chunks[key] = references

    def insert(self, key: int, place: int, met: Met) -> None:
        self.chunks[key] = WRITING

    def met(self, keys: Sequence[int], met: Met) -> None:
        """Nothing: what a request met counts when it ends."""

    def missed(self, keys: Sequence[int]) -> None:
        """Nothing: they are not there."""

    def finished(self, keys: Iterable[int], stored: Collection[int], reused: Collection[int]) -> None:
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
    ends each chunk has a rank of its own."""

    def __init__(self, size: int) -> None:
        self.chunks: dict[int, int] = {}
        self.ranks: dict[int, tuple[int, int]] = {}
        self.heap: list[tuple[tuple[int, int], int]] = []
        self.next = 0
        self.get = self.chunks.get

    def set(self, key: int, references: int) -> None:
        self.chunks[key] = references

    def _ranked(self, key: int, rank: tuple[int, int]) -> None:
        self.ranks[key] = rank
        heapq.heappush(self.heap, (rank, key))

    def _rank_of(self, met: Met) -> int:
        if not met.rank:
            self.next += 1
            met.rank = self.next
        return met.rank

    def insert(self, key: int, place: int, met: Met) -> None:
        self.chunks[key] = WRITING
        self._ranked(key, (self._rank_of(met), -place))

    def met(self, keys: Sequence[int], met: Met) -> None:
        own = self._rank_of(met)
        for key in keys:
            rank = own, -met.places[key]
            if key in self.chunks and self.ranks[key] < rank:
                self._ranked(key, rank)

    def missed(self, keys: Sequence[int]) -> None:
        """Nothing: they are not there."""

    def finished(self, keys: Iterable[int], stored: Collection[int], reused: Collection[int]) -> None:
        for key in keys:
            if key in self.chunks:
                self.next += 1
                self._ranked(key, (self.next, 0))
        if len(self.heap) > 4 * len(self.chunks) + 64:
            self.heap = [(rank, key) for key, rank in self.ranks.items()]
            heapq.heapify(self.heap)

    def evict(self, count: int, kept: Collection[int]) -> list[int] | None:
        found: list[tuple[tuple[int, int], int]] = []
        passed: list[tuple[tuple[int, int], int]] = []
        taken: set[int] = set()
        while self.heap and len(found) < count:
            entry = heapq.heappop(self.heap)
            rank, key = entry
            if self.ranks.get(key) != rank or key in taken:
                continue
            if self.chunks[key] or key in kept:
                passed.append(entry)
            else:
                found.append(entry)
                taken.add(key)
        for entry in passed if len(found) == count else (*passed, *found):
            heapq.heappush(self.heap, entry)
        if len(found) < count:
            return None
        for key in taken:
            del self.chunks[key], self.ranks[key]
        return [key for _, key in found]


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

    def set(self, key: int, references: int) -> None:
        (self.t1 if key in self.t1 else self.t2)[key] = references

    def met(self, keys: Sequence[int], met: Met) -> None:
        """Nothing: what a request met counts when it ends."""

    def insert(self, key: int, place: int, met: Met) -> None:
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

    def finished(self, keys: Iterable[int], stored: Collection[int], reused: Collection[int]) -> None:
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
