"""The identities of a trace's prompts as *runs*: stretches of blocks that no request forks off.

Two requests share a block where the tokens up to its end are the same; a trace says so with one id for so
many tokens (Mooncake: 512). An id that is always followed by the same id, which always follows it, makes one
run with it. A request's *path* is then a few runs in a row in place of thousands of blocks. It ends where
nobody else has a name for what follows: the rest is the request's own run, as answers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kvplan.plans.arrival import Arrival
from kvplan.record import record
from kvplan.simulation.time.stretches import Headed, stretches_of

Segment = tuple[int, int, int]
"""(first block, block after the last, run)."""
Keys = Sequence[Hashable]

_FORK = object()
_START = object()


@record(eq=False)
class Names:
    """Paths of all requests in blocks of one size. lengths: of the runs, in blocks, by their numbers."""

    paths: tuple[tuple[Segment, ...], ...]
    lengths: tuple[int, ...]

    @property
    def runs(self) -> int:
        return len(self.lengths)

    def of(self, places: Sequence[int]) -> Names:
        """The same of some of the requests: runs that only others fork off are one run there."""
        paths = [self.paths[place] for place in places]
        rows = [[run for _, _, run in path] for path in paths]
        return _named(rows, self.lengths.__getitem__, [path[-1][1] if path else 0 for path in paths])


class Book:
    """Names of the requests of a load, whatever their times: worked out once for blocks of a size, and for
    some of the requests from those of all."""

    def __init__(self) -> None:
        self.whole: tuple[Book, Sequence[Arrival], Sequence[int]] | None = None
        self.known: dict[tuple[int, int], Names] = {}

    def part(self, arrivals: Sequence[Arrival], places: Sequence[int]) -> Book:
        """The book of the requests at some places of its own, ``arrivals``."""
        found = Book()
        found.whole = self, arrivals, places
        return found

    def names(self, arrivals: Sequence[Arrival], wide: int, hashed: int, block: int) -> Names:
        """As `name`, of its requests."""
        found = self.known.get((hashed, block))
        if found is None:
            if self.whole is None:
                found = name(arrivals, wide, hashed, block)
            else:
                book, every, places = self.whole
                found = book.names(every, wide, hashed, block).of(places)
            self.known[hashed, block] = found
        return found


def known_blocks(arrival: Arrival, wide: int, hashed: int) -> int:
    """Blocks of ``hashed`` tokens whose identity the trace knows; ``wide``: tokens of one of its ids.

    Ids that do not reach the answer's end say nothing of it: then only blocks within the prompt count.
    """
    if not arrival.ids:
        return 0
    reach, whole = len(arrival.ids) * wide, arrival.prompt + arrival.answer
    return min(reach, whole) // hashed if reach >= whole else min(reach, arrival.prompt) // hashed


def name(arrivals: Sequence[Arrival], wide: int, hashed: int, block: int) -> Names:
    """Names for groups of blocks of ``block`` tokens, a multiple of ``hashed``, the tokens of one hash.

    A block is known by the hash at its end (vllm-project/vllm 0.32 vllm/v1/core/kv_cache_utils.py,
    BlockHashListWithBlockSize).
    """
    parts = wide // block if wide % block == 0 else 1
    knowns = [known_blocks(arrival, wide, hashed) // (block // hashed) for arrival in arrivals]
    rows = (_keys(arrival.ids, known, wide, block) for arrival, known in zip(arrivals, knowns))
    if any(isinstance(arrival.ids, (range, Headed)) for arrival in arrivals):
        found = stretches_of(rows, max(1, block // wide))
        if found is not None:
            stretches, sizes = found
            return _named(stretches, lambda key: sizes[key] * parts, knowns)
        rows = (_keys(arrival.ids, known, wide, block) for arrival, known in zip(arrivals, knowns))
    return _named(list(rows), lambda key: parts, knowns)


def _keys(ids: Sequence[int], known: int, wide: int, block: int) -> Keys:
    if not known:
        return ()
    if wide % block == 0:
        return ids[: -(-known * block // wide)]
    if block % wide == 0:
        step = block // wide
        return ids[step - 1 : known * step : step]
    ends = [(place + 1) * block - 1 for place in range(known)]
    return [(ids[end // wide], end % wide) for end in ends]


def _named(rows: Sequence[Keys], size: Callable[[Any], int], knowns: Sequence[int]) -> Names:
    """Paths over rows of keys, each of ``size(key)`` blocks; of a row at most ``knowns`` of its blocks."""
    after, before = _neighbours(rows)
    lengths: dict[Hashable, tuple[int, int]] = {}
    paths: list[list[tuple[int, int, Hashable]]] = []
    used = Counter[Hashable]()
    for row, known in zip(rows, knowns):
        path: list[tuple[int, int, Hashable]] = []
        place = start = 0
        while place < len(row):
            key = row[place]
            if key not in lengths:
                lengths[key] = _length(key, after, before, size)
            keys, blocks = lengths[key]
            if place + keys > len(row):
                keys = len(row) - place
                blocks = sum(map(size, row[place:]))
            path.append((start, min(start + blocks, known), key))
            used[key] += 1
            place, start = place + keys, start + blocks
        paths.append(path)
    numbers: dict[Hashable, int] = {}
    found = []
    same: dict[tuple[Segment, ...], tuple[Segment, ...]] = {}
    for path in paths:
        while path and used[path[-1][2]] == 1:  # nobody else has it: of the request's own run
            path.pop()
        named = tuple((start, stop, numbers.setdefault(key, len(numbers))) for start, stop, key in path)
        found.append(same.setdefault(named, named))
    return Names(tuple(found), tuple(lengths[key][1] for key in numbers))


def _neighbours(rows: Sequence[Keys]) -> tuple[dict[Hashable, object], dict[Hashable, object]]:
    """Of each key the only one that follows it and the only one before it, or that there are several."""
    after: dict[Hashable, object] = {}
    before: dict[Hashable, object] = {}
    for row in rows:
        last: object = _START
        for key in row:
            if before.setdefault(key, last) != last:
                before[key] = _FORK
            if last is not _START and after.setdefault(last, key) != key:
                after[last] = _FORK
            last = key
    return after, before


def _length(
    key: Hashable, after: dict[Hashable, object], before: dict[Hashable, object], size: Callable[[Any], int]
) -> tuple[int, int]:
    """(Keys, blocks) of the run that begins with a key."""
    keys, blocks, here = 1, size(key), key
    while True:
        following = after.get(here, _FORK)
        if following is _FORK or before.get(following) != here:
            return keys, blocks
        keys, blocks, here = keys + 1, blocks + size(following), following
