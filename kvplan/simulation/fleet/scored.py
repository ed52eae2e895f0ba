"""Routers that weigh what a replica has against what it does: llm-d's scorers and Dynamo's cost.

Both know what was sent to each replica, the last of it that fits into its pool (their indexers follow the
engines' events). Of equal ones the first is taken, where they draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record
from kvplan.simulation.cache_only.evict import Chain


@record()
class State:
    """A replica when a request comes. waiting: requests not admitted; used, blocks: of its pool, in blocks
    that requests hold; prefill: prompt tokens still to be computed, queued: blocks that waiting requests will
    take; block: tokens of one."""

    waiting: int
    used: int
    blocks: int
    prefill: int
    queued: int
    block: int


class Known:
    """The identities that a replica was sent, the last used ones."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, None] = OrderedDict()

    def matched(self, chain: Chain) -> int:
        found = 0
        for name in chain:
            if name not in self.kept:
                break
            found += 1
        return found

    def add(self, chain: Chain, most: int) -> None:
        kept = self.kept
        for name in reversed(chain):
            kept[name] = None
            kept.move_to_end(name)
        while len(kept) > most:
            kept.popitem(last=False)


class Scored(ABC):
    """``choose`` says which replica serves a prompt of so many tokens, whose identities stand for ``wide``
    tokens each."""

    usual: ClassVar[Mapping[str, float]] = {}

    def __init__(self, replicas: int, weights: Mapping[str, float]) -> None:
        self.replicas, self.weights = replicas, {**self.usual, **weights}
        self.known = [Known() for _ in range(replicas)]

    def choose(self, chain: Chain, tokens: int, wide: int, states: Sequence[State]) -> int:
        matched = [one.matched(chain) for one in self.known]
        scores = self.scores(chain, tokens, wide, states, matched)
        best = max(range(self.replicas), key=scores.__getitem__)
        state = states[best]
        self.known[best].add(chain, max(1, state.blocks * state.block // wide))
        return best

    @abstractmethod
    def scores(
        self, chain: Chain, tokens: int, wide: int, states: Sequence[State], matched: Sequence[int]
    ) -> list[tuple[float, int]]:
        """Of each replica: the highest is taken. matched: identities of the prompt that it was sent."""


class LlmD(Scored):
    """llm-d/llm-d-router pkg/epp/framework/plugins/scheduling/scorer/ (prefix, queuedepth,
    kvcacheutilization).

        prefix · m/t + queue · (longest − waiting)/(longest − shortest) + kv · (1 − usage)

    m of the prompt's t blocks are known to the replica; equal queues all score 1. The weights: its guides'.
    """

    usual: ClassVar[Mapping[str, float]] = {"prefix": 3.0, "queue": 2.0, "kv": 2.0}

    def scores(
        self, chain: Chain, tokens: int, wide: int, states: Sequence[State], matched: Sequence[int]
    ) -> list[tuple[float, int]]:
        longest, shortest = max(one.waiting for one in states), min(one.waiting for one in states)
        weights = self.weights
        return [
            (
                weights["prefix"] * (matched[place] / len(chain) if chain else 0.0)
                + weights["queue"]
                * ((longest - one.waiting) / (longest - shortest) if longest > shortest else 1.0)
                + weights["kv"] * (1 - one.used / one.blocks),
                0,
            )
            for place, one in enumerate(states)
        ]


class Dynamo(Scored):
    """ai-dynamo/dynamo lib/kv-router/src/scheduling/selector.rs (DefaultWorkerSelector), temperature 0.

    The lowest weight · prefill + decode, in blocks: prompt tokens that the replica is still to compute, and
    blocks in use, with this request's new ones. Of equal ones the replica that knows fewer blocks.
    """

    usual: ClassVar[Mapping[str, float]] = {"weight": 1.0}

    def scores(
        self, chain: Chain, tokens: int, wide: int, states: Sequence[State], matched: Sequence[int]
    ) -> list[tuple[float, int]]:
        found = []
        for place, one in enumerate(states):
            new = max(0, tokens - matched[place] * wide)
            prefill = (one.prefill + new) / one.block
            decode = one.used + one.queued + -(-new // one.block)
            found.append((-(self.weights["weight"] * prefill + decode), -len(self.known[place].kept)))
        return found


SCORED: dict[str, type[Scored]] = {"llm-d": LlmD, "dynamo": Dynamo}


def scored(policy: str, replicas: int) -> Scored | None:
    """``llm-d``, ``llm-d:prefix=3,queue=2`` or ``dynamo:weight=2``; None for another router.

    Raises KvplanError(bad-router) for a weight that there is not.
    """
    name, _, text = policy.partition(":")
    kind = SCORED.get(name)
    if kind is None:
        return None
    weights: dict[str, float] = {}
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        try:
            weights[key.strip()] = number = float(value)
        except ValueError:
            raise _bad(policy, f"{part!r} is no weight", kind) from None
        if key.strip() not in kind.usual or not 0 <= number <= 1e6:
            near = did_you_mean(key.strip(), kind.usual)
            raise _bad(policy, f"{part!r} is no weight" + (f": did you mean {near}?" if near else ""), kind)
    return kind(replicas, weights)


def _bad(policy: str, why: str, kind: type[Scored]) -> KvplanError:
    usual = ",".join(f"{key}={value:g}" for key, value in kind.usual.items())
    return KvplanError(
        "bad-router", f"router {policy!r}: {why}", help=f"--router {policy.partition(':')[0]}:{usual}"
    )
