"""Prompts on some replicas, answers on others, and a link between: disaggregated prefill.

vllm-project/vllm 0.33 vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py, with a proxy that
sends every request to a prefill replica for one token and then, as soon as that is made, to a decode replica.
Both kinds have the same engine and settings. Not in it: pushes layer by layer, leases that run out, answers
read back by a later turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from kvplan.errors import KvplanError
from kvplan.files.speed import speed_assumptions
from kvplan.planning.speed import link_bandwidth
from kvplan.plans.arrival import Arrival
from kvplan.record import record, replace
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.simulation.fleet import routers as fleet
from kvplan.simulation.fleet.lockstep import RankClock
from kvplan.simulation.fleet.ranks import Ranks
from kvplan.simulation.fleet.run import Picks, router_of
from kvplan.simulation.fleet.sided import Side, SidedLockstep
from kvplan.simulation.fleet.together import Joined
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target, counted, is_missed, most_missed
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.refusals import never_fits
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import LOOKS_EVERY, AnyEngine, Numbered
from kvplan.simulation.vllm.remote import RemoteScheduler
from kvplan.simulation.vllm.replica import Replica, Trace
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.scheduler import Scheduler
from kvplan.simulation.vllm.settings import Engine, check, check_remote
from kvplan.simulation.vllm.step import Step
from kvplan.units import SECOND

_BEYOND = 1 << 62


@record()
class Split:
    """How many replicas of each kind; block_ns: a block's time on the link, latency_ns: before the first."""

    prefill: int
    decode: int
    block_ns: int = 0
    latency_ns: int = 0


@record()
class AskedSplit:
    """link: bytes a second in one direction, all GPUs of an engine together; None: not said."""

    prefill: int
    decode: int
    link: int | None = None


def split_of(asked: AskedSplit, result: SizeResult, settings: Settings, notes: list[str]) -> Split:
    """The split of the engine whose pool ``result`` is. notes: takes what was assumed."""
    pool = result.pool
    assert pool is not None
    if settings.pipeline_parallel_size > 1:
        raise KvplanError(
            "not-simulated", "disaggregated prefill with pipelines is not simulated", help="--pp 1"
        )
    if asked.link is not None:
        copies = Fraction(result.total.kv_bytes_per_request, result.per_gpu.kv_bytes_per_request or 1)
        copies *= settings.data_parallel_size  # each rank has its part of the link
        return Split(asked.prefill, asked.decode, ceil(pool.bytes_per_block * copies * SECOND / asked.link))
    if settings.gpu is None:
        raise KvplanError(
            "no-link", "how fast the link between engines is is not known without a GPU",
            help="--link 50GB/s: bytes a second in one direction",
        )  # fmt: skip
    found = link_bandwidth(settings.gpu, NETWORK, speed_assumptions())
    notes.append(f"the link is taken to be {NETWORK}, one a GPU: --link 50GB/s says yours")
    return Split(asked.prefill, asked.decode, ceil(pool.bytes_per_block * SECOND / found.value))


NETWORK = "infiniband-ndr"


class _Holding(Scheduler):
    """Keeps the blocks of requests that have ended until they are read. ended: those not yet passed on."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, jump=True)
        self.ended: list[Request] = []

    def leave(self, request: Request) -> None:
        self.ended.append(request)


class _Sided(Joined, Replica):
    """stalled: nothing can be scheduled until something comes, or is there."""

    stalled = False

    def known(self) -> int:
        """When the next thing happens to it that is known already."""
        return self.given[self.coming].at_ns if self.coming < len(self.given) else _BEYOND

    def next_ns(self) -> int:
        return min(self.known(), self.until)

    def wait(self) -> None:
        self.stalled = True
        self.now = max(self.now, self.next_ns())

    def note(self, step: Step) -> None:
        self.stalled = self.stalled and not step.tokens
        super().note(step)

    @property
    def active(self) -> bool:
        """Whether it has anything to do, or will have."""
        scheduler = self.scheduler
        return bool(scheduler.busy or self.queue or self.coming < len(self.given))

    @property
    def at(self) -> int:
        """When it goes on."""
        return max(self.now, self.known()) if self.stalled else self.now

    @property
    def first_end(self) -> int | None:
        return self.queue[0].ends_ns if self.queue else None


class Prefill(_Sided):
    """A replica that computes prompts and one token of each, whose blocks stay held until a decode replica
    has read them. passed: requests that are done, with when; held: theirs by place; freed: when blocks that
    were read are free."""

    def __init__(self, trace: Trace, engine: Engine, time: Clock) -> None:
        super().__init__(trace, engine, time)
        self.holder = _Holding(engine)
        self.scheduler = self.holder
        self.passed: list[tuple[int, int]] = []
        self.held: dict[int, Request] = {}
        self.freed: list[tuple[int, int]] = []
        self.out_free = 0

    def arrive(self) -> None:
        while self.freed and self.freed[0][0] <= self.now:
            self.scheduler.memory.let_go(self.held.pop(heapq.heappop(self.freed)[1]))
        super().arrive()

    def known(self) -> int:
        return min(super().known(), self.freed[0][0]) if self.freed else super().known()

    def made(self, made: Sequence[tuple[Numbered, bool]]) -> None:
        super().made(made)
        for request in self.holder.ended:
            place = self.places[request.number]
            self.held[place] = request
            self.passed.append((self.now, place))
        self.holder.ended.clear()


class _Pull:
    """A decode replica's connector. sources: of requests that are still to be read, who has them."""

    within = False

    def __init__(self, split: Split, block: int) -> None:
        self.split, self.block, self.version = split, block, 0
        self.sources: dict[Request, tuple[Prefill, int]] = {}
        self.begun: list[tuple[Request, int]] = []
        self.moving: list[tuple[int, int, Request]] = []
        self.in_free = self.moved = self.move_ns = self.moves = 0

    def matched(self, request: Request, local: int) -> int:
        return request.prompt - local if request in self.sources else 0

    def begin(self, request: Request, local: int, tokens: int) -> None:
        self.begun.append((request, -(-tokens // self.block)))
        self.version += 1

    def owes(self, request: Request) -> bool:
        return False

    def preempted(self, request: Request) -> None:
        """Its prompt is computed here from now on."""

    def left(self, request: Request) -> None:
        self.sources.pop(request, None)

    def scheduled(self, starts: int) -> None:
        """Reads begin with the step that admitted them, one after another into a decode replica and out of a
        prefill replica."""
        for request, blocks in self.begun:
            source, place = self.sources.pop(request)
            begins = max(starts, self.in_free, source.out_free)
            ends = begins + self.split.latency_ns + self.split.block_ns * blocks
            self.in_free = source.out_free = ends
            heapq.heappush(source.freed, (ends, place))
            self.moves += 1
            self.moved += blocks
            self.move_ns += ends - starts
            heapq.heappush(self.moving, (ends, self.moves, request))
        self.begun.clear()

    def arrived(self, now: int, there: set[Request]) -> None:
        while self.moving and self.moving[0][0] <= now:
            there.add(heapq.heappop(self.moving)[2])
            self.version += 1


class Decode(_Sided):
    """A replica that makes answers of prompts that another has computed: blocks beyond its own prefix cache
    are read between steps (WAITING_FOR_REMOTE_KVS, `vllm.remote`), and the prompt's last token is computed
    again."""

    def __init__(self, trace: Trace, engine: Engine, time: Clock, split: Split) -> None:
        super().__init__(trace, engine, time)
        self.pull = _Pull(split, engine.block)
        self.remote = RemoteScheduler(engine, True, self.pull)
        self.scheduler = self.remote
        self.sources: dict[int, Prefill] = {}

    def take(self, place: int, at_ns: int, source: Prefill) -> None:
        """A request whose prompt is done comes."""
        self.give(place)
        row = self.given[-1]
        self.given[-1] = Arrival(at_ns, row.prompt, row.answer, row.ids, row.priority)
        self.sources[place] = source

    def request(self, number: int, row: Arrival) -> Request:
        made, place = super().request(number, row), self.place(number)
        if made.prompt > 1:
            self.pull.sources[made] = self.sources[place], place
        else:  # nothing of it is worth a transfer
            heapq.heappush(self.sources[place].freed, (self.now, place))
        return made

    def arrive(self) -> None:
        self.pull.arrived(self.now, self.remote.remote.there)
        super().arrive()

    def known(self) -> int:
        return min(super().known(), self.pull.moving[0][0]) if self.pull.moving else super().known()

    def note(self, step: Step) -> None:
        starts = max(self.now, self.free_at)
        super().note(step)
        self.pull.scheduled(starts)


class Disaggregated:
    """A load on replicas that prefill and replicas that decode. ranks: schedulers of each, to all of which
    alike requests are dealt."""

    def __init__(self, load: Load, split: Split, router: str, ranks: Ranks | None = None) -> None:
        for name, count in (("prefill", split.prefill), ("decode", split.decode)):
            if not 1 <= count <= _MOST:
                raise KvplanError("bad-replicas", f"{count} {name} replicas", help=f"1 to {_MOST}")
        self.load, self.split, self.router = load, split, router
        self.each = 1 if ranks is None else ranks.count
        self.lockstep = ranks is not None and ranks.lockstep
        router_of(router, split.prefill * self.each)
        self.first = Trace(
            [Arrival(one.at_ns, one.prompt, 1, one.ids, one.priority) for one in load.arrivals], load.wide
        )
        self.second = load.trace()

    def run(self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome:
        """One run. Raises KvplanError where a request can never be admitted."""
        return self._outcome(self._served(engine, clock, None), target, frontend_ns)

    def kept(self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0) -> Outcome | None:
        """The run, where it keeps the target; None as soon as it is known not to."""
        found = self.kept_or_late(engine, clock, target, frontend_ns)
        return found if isinstance(found, Outcome) else None

    def kept_or_late(
        self, engine: AnyEngine, clock: Clock, target: Target, frontend_ns: int = 0
    ) -> Outcome | Late:
        """The run, where it keeps the target; else, as soon as that is known, who makes requests late."""
        late = Late(self, engine, target, frontend_ns) if target.asked else None
        made = self._served(engine, clock, late)
        if late is not None and late.too_many:
            return late
        outcome = self._outcome(made, target, frontend_ns)
        return outcome if outcome.keeps(target) else Late(self, engine, target, frontend_ns)

    def _served(self, engine: AnyEngine, clock: Clock, late: Late | None) -> _Run:
        if not isinstance(engine, Engine):
            raise KvplanError(
                "not-simulated", "disaggregated prefill of another engine than vLLM is not simulated",
                help="-e vllm, or replicas of one kind",
            )  # fmt: skip
        check(engine)
        check_remote(engine, "disaggregated prefill")
        if engine.offload is not None:
            raise KvplanError("not-simulated", "tiers beside disaggregated prefill are not simulated",
                              help="one of --offload and --prefill-replicas")  # fmt: skip
        self.first.check()
        self.second.check()
        made = _Run(self, engine, clock)
        made.run(late)
        return made

    def _outcome(self, made: _Run, target: Target, frontend_ns: int) -> Outcome:
        answer = made.answer()
        outcome = counted(
            self.load.arrivals, [(answer, range(len(self.load.arrivals)))],
            made.engine, len(made.prefill) + len(made.decode), target, frontend_ns,
            [one.series() for one in (*made.prefill, *made.decode)],
        )  # fmt: skip
        pulls = [one.pull for one in made.decode]
        return replace(
            outcome,
            transfers=sum(pull.moves for pull in pulls),
            transfer_ns=sum(pull.move_ns for pull in pulls),
            transferred_blocks=sum(pull.moved for pull in pulls),
        )


_MOST = 1024


class Late:
    """Requests of a run that are certain to miss the target, counted while it is served, and which side makes
    them late: the one in which a request without its first token in time waited longer (for a step of a
    prefill replica; for a place, the link and a step of a decode replica), and the decode side where it is
    later tokens that are late."""

    def __init__(self, of: Disaggregated, engine: AnyEngine, target: Target, frontend_ns: int) -> None:
        self.rows, self.split, self.engine = of.load.arrivals, of.split, engine
        self.target, self.frontend = target, frontend_ns
        self.most = most_missed(target, len(self.rows))
        self.prefill = self.decode = self.refused = 0
        self.come = 0
        self.unsure: list[int] = []

    @property
    def too_many(self) -> bool:
        """Whether they are more than may be."""
        return self.prefill + self.decode + self.refused > self.most

    def look(self, run: _Run, come: int, now: int) -> bool:
        """Look at the requests that had come by a time, ``come`` of them; whether too many are late."""
        unsure = []
        for place in (*self.unsure, *range(self.come, come)):
            missed = self._missed(run, place, now)
            if missed is None:
                unsure.append(place)
        self.unsure, self.come = unsure, come
        return self.too_many

    def _missed(self, run: _Run, place: int, now: int) -> bool | None:
        """Whether it misses the target, counted on the side that is to blame; None while that is open."""
        side, number = run.sent[place]
        sent, row = run.prefill[side].answer.columns, self.rows[place]
        if sent["refused"][number]:
            self.refused += 1
            return True
        first = ends = -1
        taken = run.taken.get(place)
        if taken is not None:
            made = run.decode[taken[0]].answer.columns
            first, ends = made["first_token_ns"][taken[1]], made["finished_ns"][taken[1]]
        tokens = self.engine.answered(row.prompt, row.answer)
        missed = is_missed(self.target, row.at_ns, first, ends, now, tokens, self.frontend)
        if not missed:
            return missed
        if self._waits_to_prefill(run, place, sent["admitted_ns"][number], now if first < 0 else first):
            self.prefill += 1
        else:
            self.decode += 1
        return True

    def _waits_to_prefill(self, run: _Run, place: int, admitted: int, first: int) -> bool:
        """Of a request that misses the target whether more prefill replicas would help. first: its first
        token, or now."""
        row, passed = self.rows[place], run.passed_ns.get(place)
        if self.target.ttft_ns is None or first - row.at_ns + self.frontend <= self.target.ttft_ns:
            return False
        if passed is None:
            return True
        blocks = -(-row.prompt // self.engine.block)
        read = self.split.latency_ns + self.split.block_ns * blocks
        return admitted - row.at_ns >= first - passed - read


class _Run:
    """Both kinds of replicas side by side in one virtual time: whoever is furthest behind goes on, as far as
    nothing that the others do may still reach it."""

    def __init__(self, of: Disaggregated, engine: Engine, clock: Clock) -> None:
        self.of, self.rows, self.engine = of, of.load.arrivals, engine
        each: Clock = RankClock() if of.lockstep else clock
        self.prefill = [Prefill(of.first, engine, each) for _ in range(of.split.prefill * of.each)]
        self.decode = [Decode(of.second, engine, each, of.split) for _ in range(of.split.decode * of.each)]
        self.prefilling: list[Side] = [*self.prefill]
        self.decoding: list[Side] = [*self.decode]
        if of.lockstep:
            self.prefilling = _together(self.prefill, of.each, clock, engine.depth)
            self.decoding = _together(self.decode, of.each, clock, engine.depth)
        self.picks = Picks(of.load, of.router, len(self.prefill))
        self.passed: list[tuple[int, int, int]] = []
        self.sent: dict[int, tuple[int, int]] = {}
        self.taken: dict[int, tuple[int, int]] = {}
        self.passed_ns: dict[int, int] = {}

    def run(self, late: Late | None = None) -> None:
        """Serve everything. late: looked at now and then, and where too many are the rest is not served."""
        coming, rows = 0, self.rows
        everyone = [*self.prefilling, *self.decoding]
        while True:
            floor, following = _BEYOND, None
            for one in everyone:
                if one.active and (following is None or one.at < floor):
                    floor, following = one.at, one
            arrival = rows[coming].at_ns if coming < len(rows) else _BEYOND
            done = self.passed[0][0] if self.passed else _BEYOND
            if arrival <= min(floor, done) and coming < len(rows):
                if late is not None and coming % LOOKS_EVERY == 0 and late.look(self, coming, arrival):
                    return
                self._route(coming)
                coming += 1
            elif done <= floor and self.passed:
                self._pass_on(*heapq.heappop(self.passed))
            elif following is not None and floor < _BEYOND:
                self._advance(following, min(arrival, done))
            elif following is not None:
                self._never_fits()
            else:
                break
        if late is not None:
            late.look(self, coming, max(one.now for one in everyone))

    def _never_fits(self) -> None:
        """Raise KvplanError: nothing more happens, and a request waits."""
        one = next(one for one in (*self.prefill, *self.decode) if one.active and one.scheduler.waiting)
        head = one.scheduler.waiting.head()
        raise never_fits(one.places[head.number], head.tokens, one.engine.blocks)

    def _route(self, place: int) -> None:
        chosen = self.picks(place, self.rows[place].at_ns, self.prefill)
        self.sent[place] = chosen, len(self.prefill[chosen].places)
        self.prefill[chosen].give(place)

    def _pass_on(self, at: int, place: int, source: int) -> None:
        chosen = fleet.least([one.load(at) for one in self.decode])
        self.passed_ns[place] = at
        self.taken[place] = chosen, len(self.decode[chosen].places)
        self.decode[chosen].take(place, at, self.prefill[source])

    def _advance(self, one: Side, until: int) -> None:
        """Serve as long as nothing that the others do may still reach it. What prefill replicas pass on comes
        at the ends of their steps; what decode replicas read is free when it is read."""
        one.now = one.at
        prefills = one in self.prefilling
        if prefills:
            others = [other for other in self.decoding if other.active]
            bounds = [other.at + (not other.stalled) for other in others]
        else:
            bounds = []
            for other in self.prefilling:
                if other.first_end is not None:
                    bounds.append(other.first_end)
                elif other.active:
                    bounds.append(other.at + 1 if other.at < _BEYOND else one.now + 1)
        one.advance(max(min([until, *bounds]), one.now + 1))
        if prefills:
            for rank in self.prefill:
                for at, place in rank.passed:
                    heapq.heappush(self.passed, (at, place, self.sent[place][0]))
                rank.passed.clear()

    def answer(self) -> Answer:
        """Columns of all requests: admitted and cached where the prompt was computed, made where decoded."""
        found = Answer(len(self.rows), False)
        for one in (*self.prefill, *self.decode):
            columns = one.answer.columns
            first = isinstance(one, Prefill)
            for number, place in enumerate(one.places):
                for name in ("admitted_step", "admitted_ns", "cached_tokens", "refused") if first else (
                    "first_token_ns", "finished_ns",
                ):  # fmt: skip
                    found.columns[name][place] = columns[name][number]
                found.columns["preemptions"][place] += columns["preemptions"][number]
            found.steps += one.answer.steps
            found.preemptions += one.answer.preemptions
            found.busy_ns = max(found.busy_ns, one.answer.busy_ns)
            found.end_ns = max(found.end_ns, one.now)
        return found


def _together(ranks: Sequence[Prefill] | Sequence[Decode], each: int, clock: Clock, depth: int) -> list[Side]:
    """Ranks by replicas, whose ranks step together."""
    parts = [ranks[first : first + each] for first in range(0, len(ranks), each)]
    return [SidedLockstep(part, part, clock, depth) for part in parts]
