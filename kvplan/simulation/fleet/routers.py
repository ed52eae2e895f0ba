"""Which replica serves a request: the routers that people run, and a fleet without time to compare them
by."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol
from zlib import crc32

from kvplan.errors import KvplanError
from kvplan.simulation.cache_only.evict import NEVER, Cache, Chain
from kvplan.simulation.time.refusals import unknown

APART, TIMES = 64, 1.5


class Router(Protocol):
    """``pick`` says which of ``replicas`` serves a request. chain: its prompt's identities; loads: requests
    under way at each replica; key: its session's. timeless: there is no time, so nothing is under way: loads
    say what each replica has computed so far."""

    @property
    def replicas(self) -> int: ...

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int: ...

    def timeless(self) -> None: ...


class _Plain:
    def __init__(self, replicas: int) -> None:
        self.replicas = replicas

    def timeless(self) -> None:
        """Marks routers that need no clock."""


class RoundRobin(_Plain):
    """One after another."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self.next = 0

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        found = self.next
        self.next = (found + 1) % self.replicas
        return found


class LeastLoaded(_Plain):
    """Fewest requests under way, the first of equal ones."""

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        return least(loads)


class PowerOfTwo(_Plain):
    """Of two drawn at random (by a seed) the less loaded."""

    def __init__(self, replicas: int, seed: int = 0) -> None:
        super().__init__(replicas)
        self.chance = random.Random(seed)

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        if self.replicas == 1:
            return 0
        one, other = self.chance.sample(range(self.replicas), 2)
        return one if loads[one] <= loads[other] else other


class PrefixHash(_Plain):
    """By the first ``first`` identities of the prompt."""

    def __init__(self, replicas: int, first: int = 2) -> None:
        super().__init__(replicas)
        self.first = first

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        return stable_hash(tuple(chain[: self.first])) % self.replicas


class Session(_Plain):
    """By a key of the caller's (a conversation, a user)."""

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        return stable_hash(key) % self.replicas


class CacheAware(_Plain):
    """sgl-project/sglang sgl-model-gateway, policies/cache_aware.rs: where loads lie more than 64 and half
    again apart the least loaded, else the longest match in what was sent to each so far if it is more than
    ``share`` of the prompt. Prompts are kept without limit (SGLang: 2^26 characters a replica)."""

    def __init__(self, replicas: int, share: float = 0.3) -> None:
        super().__init__(replicas)
        self.share, self.apart = share, APART
        self.sent: list[set[Hashable]] = [set() for _ in range(replicas)]

    def timeless(self) -> None:
        self.apart = NEVER

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        low, high = min(loads), max(loads)
        found = least(loads)
        if not (high - low > self.apart and high > TIMES * low):
            best, matched = longest(chain, self.sent)
            if chain and matched / len(chain) > self.share:
                found = best
        self.sent[found].update(chain)
        return found


class LongestMatch(CacheAware):
    """The longest match alone: never leaves the first replica where all prompts begin alike."""

    def pick(self, chain: Chain, loads: Sequence[int], key: Hashable = None) -> int:
        found, _ = longest(chain, self.sent)
        self.sent[found].update(chain)
        return found


ROUTERS: dict[str, Callable[[int], Router]] = {
    "round-robin": RoundRobin, "least-loaded": LeastLoaded, "power-of-two": PowerOfTwo,
    "prefix-hash": PrefixHash, "session": Session, "cache-aware": CacheAware, "longest-match": LongestMatch,
}  # fmt: skip


def router(policy: str, replicas: int) -> Router:
    """KvplanError for an unknown policy, or no replica."""
    if policy not in ROUTERS:
        raise unknown("router", policy, ROUTERS)
    if replicas < 1:
        raise KvplanError("bad-router", f"a fleet of {replicas} replicas", help="give it at least one")
    return ROUTERS[policy](replicas)


def least(loads: Sequence[int]) -> int:
    """The first of those with the least load."""
    return min(range(len(loads)), key=loads.__getitem__)


def longest(chain: Chain, sent: Sequence[set[Hashable]]) -> tuple[int, int]:
    """(the first replica with the longest match, its blocks)."""
    best, most = 0, 0
    for place, known in enumerate(sent):
        matched = 0
        for name in chain:
            if name not in known:
                break
            matched += 1
        if matched > most:
            best, most = place, matched
    return best, most


def stable_hash(key: Hashable) -> int:
    """The same in every process (Python's own of whole numbers is; texts' is not)."""
    parts = key if isinstance(key, tuple) else (key,)
    if all(isinstance(part, int) for part in parts):
        return hash(parts)
    return crc32(repr(key).encode())


class Shares:
    """hits: blocks found, per request; served: requests of each replica; load: blocks that each computed."""

    def __init__(self, replicas: int) -> None:
        self.hits: list[int] = []
        self.served, self.load = [0] * replicas, [0] * replicas


def replay(
    policy: Router,
    chains: Sequence[Chain],
    size: int,
    *,
    eviction: str = "lru",
    keys: Sequence[Hashable] = (),
) -> Shares:
    """Requests one after another over replicas of ``size`` blocks each, without time: a replica's load is how
    many blocks it has computed."""
    policy.timeless()
    caches = [Cache(eviction, size) for _ in range(policy.replicas)]
    found = Shares(policy.replicas)
    for number, chain in enumerate(chains):
        place = policy.pick(chain, found.load, keys[number] if keys else None)
        hits = caches[place].serve(chain)
        found.hits.append(hits)
        found.served[place] += 1
        found.load[place] += len(chain) - hits
    return found
