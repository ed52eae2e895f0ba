"""The identities of a trace's prompts as *runs*: stretches of blocks that no request forks off.

Two requests share a block where the tokens up to its end are the same; a trace says so with one id for so
many tokens (Mooncake: 512). An id that is always followed by the same id, which always follows it, makes one
run with it. A request's *path* is then a few runs in a row in place of thousands of blocks, and last its own
run: what nobody else has (answers, the part of a block that prompt and answer share).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvplan.plans.arrival import Arrival
from kvplan.record import record

Segment = tuple[int, int, int]
"""(first block, block after the last, run)."""

_FORK = object()
_START = object()


@record(eq=False)
class Names:
    """Paths of all requests in blocks of one size. runs: how many runs there are (the last one's number +
    1)."""

    paths: tuple[tuple[Segment, ...], ...]
    runs: int


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
    keys, knowns = [], []
    for arrival in arrivals:
        known = known_blocks(arrival, wide, hashed) // (block // hashed)
        knowns.append(known)
        keys.append(_keys(arrival.ids, known, wide, block))
    after, before = _neighbours(keys)
    lengths: dict[Hashable, int] = {}
    numbers: dict[Hashable, int] = {}
    paths = []
    for row, known in zip(keys, knowns):
        path: list[Segment] = []
        place = 0
        while place < len(row):
            key = row[place]
            if key not in lengths:
                numbers[key] = len(numbers)
                lengths[key] = _length(key, after, before)
            stop = min(place + lengths[key], len(row))
            path.append((place * parts, min(stop * parts, known), numbers[key]))
            place = stop
        paths.append(tuple(path))
    return Names(tuple(paths), len(numbers))


def _keys(ids: Sequence[int], known: int, wide: int, block: int) -> Sequence[Hashable]:
    if not known:
        return ()
    if wide % block == 0:
        return ids[: -(-known * block // wide)]
    if block % wide == 0:
        step = block // wide
        return ids[step - 1 :: step][:known]
    ends = [(place + 1) * block - 1 for place in range(known)]
    return [(ids[end // wide], end % wide) for end in ends]


def _neighbours(rows: Sequence[Sequence[Hashable]]) -> tuple[dict[Hashable, object], dict[Hashable, object]]:
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


def _length(key: Hashable, after: dict[Hashable, object], before: dict[Hashable, object]) -> int:
    length, here = 1, key
    while True:
        following = after.get(here, _FORK)
        if following is _FORK or before.get(following) != here:
            return length
        length, here = length + 1, following
