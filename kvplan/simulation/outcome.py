"""One run of a fleet, counted: times of requests, hits, preemptions, whether the queue only grew."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from kvplan.plans.arrival import Arrival
from kvplan.record import record
from kvplan.simulation.over_time import LoadOverTime, Point, load_over_time, together
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine, Timeline
from kvplan.simulation.vllm.offload.settings import Offload
from kvplan.units import SECOND

if TYPE_CHECKING:
    from kvplan.simulation.vllm.offload.connector import Counts

TENTHS = 10
SATURATED_SHARE = 50
"""A queue whose median wait in the last tenth is more than this part of the trace, and more than before."""


@record()
class Target:
    """A request's latency targets, in ns, and the share of requests that must meet them. None: not set."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    goodput: float = 0.99

    @property
    def asked(self) -> bool:
        return self.ttft_ns is not None or self.tpot_ns is not None

    def kept_by(self, ttft_ns: int, tpot_ns: float) -> bool:
        """Whether one request keeps it."""
        return (self.ttft_ns is None or ttft_ns <= self.ttft_ns) and (
            self.tpot_ns is None or tpot_ns <= self.tpot_ns
        )


@record()
class TierUse:
    """A tier outside the GPU: prompt tokens that it had at first admission, bytes moved to and from it."""

    name: str
    hits: int
    stored_bytes: int
    loaded_bytes: int


@record(eq=False)
class Outcome:
    """Times in ns, sorted, in arrays: a run of a million requests is kept with its likes."""

    requests: int
    refused: int
    """prompts that are too long for the engine"""
    prompt_tokens: int
    served_prompt_tokens: int
    hits: int
    """prompt tokens found in the cache or a tier at first admission"""
    answer_tokens: int
    ttft: Sequence[int]
    tpot: Sequence[int]
    latency: Sequence[int]
    good: int
    """requests within the target"""
    preempted: int
    preemptions: int
    saturated: bool
    busy_ns: int
    end_ns: int
    steps: int
    blocks: int
    used: tuple[Point, ...]
    """of the pools' blocks, over time"""
    waits: Sequence[int]
    load: LoadOverTime
    """of the requests that the engine takes"""
    tiers: tuple[TierUse, ...] = ()
    """of those outside the GPU, load_ns: how long their loads took together, loads: how many"""
    loads: int = 0
    load_ns: int = 0
    transfers: int = 0
    """prompts that went from prefill to decode replicas, how long together, how many blocks"""
    transfer_ns: int = 0
    transferred_blocks: int = 0

    @property
    def hit_rate(self) -> float:
        return self.hits / self.served_prompt_tokens if self.served_prompt_tokens else 0.0

    @property
    def taken(self) -> int:
        """Requests that the engine takes."""
        return self.requests - self.refused

    @property
    def goodput(self) -> float:
        """Of all requests: one that is refused keeps nothing."""
        return self.good / self.requests if self.requests else 0.0

    @property
    def preempted_share(self) -> float:
        return self.preempted / self.taken if self.taken else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.answer_tokens * SECOND / self.end_ns if self.end_ns else 0.0

    def keeps(self, target: Target) -> bool:
        """Whether enough requests keep the target; without one: whether the queue does not only grow."""
        if target.asked:
            return self.goodput >= target.goodput
        return not self.saturated

    @property
    def peak(self) -> int:
        """The most blocks in use at once."""
        return max((count for _, count in self.used), default=0)


def is_missed(
    target: Target, came_ns: int, first: int, ends: int, now: int, tokens: int, frontend_ns: int
) -> bool | None:
    """Whether a request of so many answer tokens is certain to miss the target at a time; None while that is
    open. first, ends: when its first and last tokens were made, -1: not yet. A time that is running is
    already at least as long as it has lasted."""
    if target.ttft_ns is not None and (now if first < 0 else first) - came_ns + frontend_ns > target.ttft_ns:
        return True
    if first < 0:
        return None
    if target.tpot_ns is None or tokens < 2:
        return False
    if ((now if ends < 0 else ends) - first) / (tokens - 1) > target.tpot_ns:
        return True
    return None if ends < 0 else False


def most_missed(target: Target, requests: int) -> int:
    """Of so many requests those that may miss the target while the share that is asked for keeps it."""
    return requests - ceil(target.goodput * requests - _CLOSE)


class Misses:
    """Requests of a run that are certain to miss the target, counted while it is served: engine by engine,
    of each those whose place has been reached. Asked of a replica, whether they are more than may be.
    most: so many may."""

    def __init__(self, target: Target, frontend_ns: int, most: int) -> None:
        self.target, self.frontend, self.most = target, frontend_ns, most
        self.before = self.done = self.missed = 0
        self.unsure: list[int] = []

    def next_engine(self) -> None:
        """The next one that is asked about is another engine."""
        self.before += self.missed
        self.done = self.missed = 0
        self.unsure = []

    def alike(self) -> Misses:
        """Of another engine of the same run, beside this one."""
        return Misses(self.target, self.frontend, self.most)

    def __call__(self, replica: Timeline) -> bool:
        return self.before + self.look(replica) > self.most

    def look(self, replica: Timeline) -> int:
        """The misses of this engine until now."""
        columns, unsure = replica.answer.columns, []
        for place in (*self.unsure, *range(self.done, replica.coming)):
            missed = self._missed(replica, columns, place)
            if missed is None:
                unsure.append(place)
            else:
                self.missed += missed
        self.unsure, self.done = unsure, replica.coming
        return self.missed

    def _missed(self, replica: Timeline, columns: Mapping[str, Sequence[int]], place: int) -> bool | None:
        """Whether the request misses the target; None while that is open."""
        if columns["refused"][place]:
            return True
        row = replica.arrivals[place]
        return is_missed(
            self.target, row.at_ns, columns["first_token_ns"][place], columns["finished_ns"][place],
            replica.now, replica.limits.answered(row.prompt, row.answer), self.frontend,
        )  # fmt: skip


_CLOSE = 1e-9
"""Of a share of requests in floating point."""


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that a share of them does not exceed; 0 of nothing."""
    if not values:
        return 0
    return values[max(0, ceil(share * len(values)) - 1)]


def late_share(times: Sequence[int], most_ns: float, requests: int) -> Fraction:
    """Of so many requests those whose time is above; a request without one keeps it."""
    return Fraction(len(times) - bisect_right(times, most_ns), requests or 1)


def counted(
    arrivals: Sequence[Arrival], answers: Sequence[tuple[Answer, Sequence[int]]], engine: AnyEngine,
    pools: int, target: Target, frontend_ns: int, used: Sequence[Sequence[Point]],
) -> Outcome:  # fmt: skip
    """Totals of a run. answers: of each pool, with the places in the trace of its requests."""
    ttft, tpot, latency, admitted, finished = (array("q") for _ in range(5))
    came = array("q", [-1]) * len(arrivals)
    refused = hits = served = made = good = preempted = preemptions = 0
    for answer, places in answers:
        columns = answer.columns
        firsts, ends = columns["first_token_ns"], columns["finished_ns"]
        preemptions += answer.preemptions
        for number, place in enumerate(places):
            row = arrivals[place]
            if columns["refused"][number]:
                refused += 1
                continue
            first = firsts[number] - row.at_ns + frontend_ns
            tokens = engine.answered(row.prompt, row.answer)
            each = (ends[number] - firsts[number]) / (tokens - 1) if tokens > 1 else 0
            served += row.prompt
            made += tokens
            hits += columns["cached_tokens"][number]
            preempted += columns["preemptions"][number] > 0
            ttft.append(first)
            latency.append(ends[number] - row.at_ns + frontend_ns)
            came[place] = columns["admitted_ns"][number] - row.at_ns
            admitted.append(columns["admitted_ns"][number])
            finished.append(ends[number])
            if tokens > 1:
                tpot.append(round(each))
            good += target.kept_by(first, each)
    counts = [answer.offloaded for answer, _ in answers if answer.offloaded is not None]
    tiers = () if engine.offload is None else _tiers(engine.offload, counts)
    hits += sum(tier.hits for tier in tiers)
    waits, span = _in_order(arrivals, came)
    end_ns = max((answer.end_ns for answer, _ in answers), default=0)
    taken = sorted(row.at_ns for row, wait in zip(arrivals, came) if wait >= 0)
    return Outcome(
        requests=len(arrivals), refused=refused, prompt_tokens=sum(row.prompt for row in arrivals),
        served_prompt_tokens=served, hits=hits, answer_tokens=made, ttft=_sorted(ttft),
        tpot=_sorted(tpot), latency=_sorted(latency), good=good, preempted=preempted,
        preemptions=preemptions, saturated=saturated(waits, span),
        busy_ns=max((answer.busy_ns for answer, _ in answers), default=0),
        end_ns=end_ns,
        steps=sum(answer.steps for answer, _ in answers), blocks=engine.blocks * pools, used=together(used),
        waits=_sorted(waits), load=load_over_time(taken, sorted(admitted), sorted(finished), end_ns),
        tiers=tiers,
        loads=sum(one.loads for one in counts), load_ns=sum(one.load_ns for one in counts),
    )  # fmt: skip


def _sorted(times: Iterable[int]) -> Sequence[int]:
    return array("q", sorted(times))


def _in_order(arrivals: Sequence[Arrival], waited: Sequence[int]) -> tuple[Sequence[int], int]:
    """(Waits in order of arrival, of those that come at once the shorter first; ns from the first to the last
    of them). waited: by place, -1: refused."""
    places: Sequence[int] = range(len(arrivals))
    if any(one.at_ns > after.at_ns for one, after in pairwise(arrivals)):  # a closed load on several pools
        places = sorted(places, key=lambda place: arrivals[place].at_ns)
    waits, begun = array("q"), 0
    first = last = -1
    for place in places:
        at_ns, wait = arrivals[place].at_ns, waited[place]
        if wait < 0:
            continue
        if at_ns != last:
            waits[begun:] = array("q", sorted(waits[begun:]))
            begun, last = len(waits), at_ns
            first = last if first < 0 else first
        waits.append(wait)
    waits[begun:] = array("q", sorted(waits[begun:]))
    return waits, last - first


def _tiers(offload: Offload, counts: Sequence[Counts]) -> tuple[TierUse, ...]:
    """Totals of the tiers of all pools."""
    return tuple(
        TierUse(
            tier.name,
            sum(one.loaded[place] for one in counts),
            sum(one.stored_blocks[place] for one in counts) * offload.block_bytes,
            sum(one.loaded_blocks[place] for one in counts) * offload.block_bytes,
        )
        for place, tier in enumerate(offload.tiers)
    )


def saturated(waits: Sequence[int], span: int) -> bool:
    """Whether a queue only grew: the median wait of the last tenth of requests is more than a fiftieth of the
    trace, and more than in any tenth of its first half. waits: until admitted, in order of arrival."""
    size = len(waits) // TENTHS
    if not size or not span:
        return False
    medians = [sorted(waits[part * size : (part + 1) * size])[size // 2] for part in range(TENTHS)]
    return medians[-1] * SATURATED_SHARE > span and medians[-1] > max(medians[: TENTHS // 2])
