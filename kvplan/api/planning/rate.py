"""Plans for requests that come at a rate and must keep times: as many replicas as a simulation says.

The search orders candidates by the estimate of a steady load. Each row of its table is then simulated with
the arrivals of the load (`kvplan.simulation`), in that layout and in its neighbours of other tensor parallel
sizes, on fewer and on more replicas, until enough requests keep their times on the fewest GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.api.planning.drafted import with_drafts
from kvplan.engines.budget.law import Rejection
from kvplan.engines.folders import part_of
from kvplan.errors import KvplanError
from kvplan.files.folders import is_file
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.planning.ask import CONTEXT, COST, MOST_GPUS, REQUESTS, TENSOR_WAYS, Ask
from kvplan.planning.confirm import has_slots
from kvplan.planning.found import Found, key_again
from kvplan.planning.money import cost_per_million, estimate_of
from kvplan.planning.options import option_of
from kvplan.planning.planner import plan_of
from kvplan.planning.results import Option, Simulated, SuggestedFix
from kvplan.planning.rows import Row
from kvplan.planning.search import search
from kvplan.plans.plan import FleetPlan, Plan
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.simulation.answer import check_served
from kvplan.simulation.deployed import drawn_for, in_ns, load_from, served_plan, target_of
from kvplan.simulation.fleet.run import ROUND_ROBIN as ROUTER
from kvplan.simulation.outcome import Outcome, Target, percentile
from kvplan.simulation.requirements import NOT_SIMULATED, deciding
from kvplan.simulation.search import MOST_REPLICAS, Runs, on_replicas, shown_alone
from kvplan.simulation.served import FAST, LIKELY, SAFE, SLOW, Served
from kvplan.simulation.sides import Sides, least_sides
from kvplan.units import SECOND, ceil_div, human_seconds

if TYPE_CHECKING:
    from kvplan.simulation.load.load import Load

_LOOSER = 2
"""So many times a limit is tried that would spare GPUs."""


def arrivals_of(workload: Workload, trace: str | Path | None) -> Load:
    """The load that is simulated: the trace at the workload's rate, else drawn for it. trace: where the
    workload's own lies. Raises KvplanError(no-trace, bad-trace, not-simulated …)."""
    rate = workload.requests_per_second
    if workload.trace is None:
        return drawn_for(workload)
    path = workload.trace if trace is None else trace
    if not is_file(Path(path)):
        raise KvplanError("no-trace", f"the workload's trace {path} is not here", help="trace=: where it is")
    load = load_from(path, workload.trace_format, workload.trace_columns, workload.trace_block)
    return load if rate is None else load.at_rate(rate)


def is_simulated(ask: Ask) -> bool:
    """Whether the scheduler of the engine is known, and its words are those of a fleet's servers."""
    return part_of(ask.choice.engine.name, "scheduling") is not None and not has_slots(ask)


def simulated_ask(ask: Ask, goodput: Fraction, acceptance: str | None) -> Ask:
    """The ask whose rows are simulated: the first token's time is left to that, and pipelines, whose steps
    are simulated one by one, are tried only where they are asked for. acceptance: of drafted tokens."""
    speed = ask.speed
    if speed is not None and acceptance is not None and ask.base.num_speculative_tokens:
        speed = with_drafts(speed, ask.choice, acceptance)
    return replace(ask, ttft=None, goodput=goodput, pp=(1,) if ask.pp is None else ask.pp, speed=speed)


class _Deployed(NamedTuple):
    """A candidate as it is simulated."""

    served: Served
    target: Target
    case: tuple[str, str]


class Sizer:
    """Gives each row of a plan's table the layout and the replicas that keep the times."""

    def __init__(self, load: Load, workload: Workload, named: str) -> None:
        self.load, self.workload, self.named = load, workload, named
        self.refusals: list[str] = []
        self.rows: list[tuple[Row, Runs]] = []
        self.guesses: dict[str, int] = {}
        """replicas of a layout that another row needs: where the search for it begins"""

    def __call__(self, row: Row) -> Row | Rejection:
        ask, best = row.ask, None
        why: Rejection | None = None
        made: Runs | None = None
        for one in _layouts(row):
            limit = _most(ask, one, best)
            if limit < 1 or (best is not None and one.gpus > best.found.gpus):
                continue
            try:
                sized = self._sized(ask, one, limit, first=best is None)
            except KvplanError as error:
                if error.code not in NOT_SIMULATED:
                    raise
                self.refusals.append(error.message)
                sized = Rejection(error.code, error.message)
            if isinstance(sized, Rejection):
                why = why or sized
            else:
                best, made = Row(ask, sized[0]), sized[1]
        if best is None or made is None:
            return why or Rejection("too-few-gpus", "no layout of it fits the GPUs that may be used")
        self.rows.append((best, made))
        return best

    def figures_of(self, best: Option) -> tuple[Simulated, tuple[SuggestedFix, ...]]:
        """Figures of an option's row, and the looser limit that would spare GPUs."""
        return self.figures(*next(each for each in self.rows if option_of(*each[0]) == best))

    def _sized(self, ask: Ask, one: Found, limit: int, *, first: bool) -> tuple[Found, Runs] | Rejection:
        """The candidate on as few replicas as keep the times, and its runs. first: none was found until now,
        so the reason is of interest; else one run at the limit says whether it is better."""
        made = self.deployed(ask, one)
        served, target, case = made
        check_served(self.load, served.engine(case[0]))
        runs = Runs(served, self.load, ROUTER, target, case)
        if ask.objective == REQUESTS:
            if runs.keeps(one.replicas):
                return one, runs
            return Rejection("too-few-gpus", f"{one.gpus} GPUs do not keep the times")
        if not first and not runs.keeps(limit):
            return Rejection("too-few-gpus", "")
        layout = one.one.layout
        start = max(one.replicas, self.guesses.get(layout.words(), 0)) if first else limit
        replicas = runs.least(min(start, limit), limit)
        if replicas is None:
            return self._why(made, one, limit)
        self.guesses[layout.words()] = replicas
        return _on(ask, one, replicas), runs

    def _why(self, made: _Deployed, one: Found, limit: int) -> Rejection:
        """Why no number of replicas keeps the times."""
        served, target, case = made
        alone = shown_alone(served, self.load, target, case)
        if not alone.keeps(target):
            for name, times, most in (
                ("ttft", alone.ttft, target.ttft_ns), ("tpot", alone.tpot, target.tpot_ns)
            ):  # fmt: skip
                time = percentile(times, target.goodput)
                if most is not None and time > most:
                    p = f"p{target.goodput * 100:g} of {name.upper()} is {human_seconds(time / SECOND)}"
                    said = (
                        f"even with one request at a time {p}; the target is {human_seconds(most / SECOND)}"
                    )
                    return Rejection(name, said, one.one.layout.gpus)
            said = f"even one at a time only {alone.goodput * 100:.1f} % of requests keep their times"
            return Rejection("ttft", said, one.one.layout.gpus)
        gpus = limit * one.one.layout.gpus
        return Rejection("too-few-gpus", f"{gpus:,} GPUs do not keep the times", gpus)

    def plan(self, ask: Ask, one: Found) -> Plan:
        """The candidate as the plan that is written."""
        return plan_of(ask, one, option_of(ask, one), self.named, self.workload)

    def deployed(self, ask: Ask, one: Found, *, whole: bool = False) -> _Deployed:
        """The candidate as `kvplan simulate` serves its plan. whole: with the likely and the safe pool."""
        plan = self.plan(ask, one)
        case = deciding(plan)
        served = served_plan(plan, one.one.variant.model, pool=None if whole and case[0] != SAFE else case[0])
        return _Deployed(served, target_of(plan), case)

    def figures(self, row: Row, decided: Runs) -> tuple[Simulated, tuple[SuggestedFix, ...]]:
        """Figures of a row, and the looser limit that would spare GPUs. decided: runs that it rests on."""
        ask, one = row
        made = self.deployed(ask, one, whole=True)
        served, target, case = made
        runs = {case: decided}
        for other in ((case[0], FAST), (case[0], LIKELY), (SAFE, SLOW)):
            if other not in runs:
                runs[other] = Runs(served, self.load, ROUTER, target, other)
        limit = _most(ask, one, None)
        safe: int | None = one.replicas
        if case != (SAFE, SLOW):
            safe = runs[SAFE, SLOW].least(one.replicas, limit)
        fast, likely, slow = (
            runs[of].whole(one.replicas) for of in ((case[0], FAST), (case[0], LIKELY), (SAFE, SLOW))
        )
        notes = on_replicas(served, self.load, one.replicas, ROUTER).load.notes
        gpus = None if safe is None else safe * one.one.layout.gpus
        found = _shown(self.load, self.workload, target, (fast, likely, slow), gpus, notes)
        return found, tuple(self._looser(made, one, likely))

    def _looser(self, made: _Deployed, one: Found, run: Outcome) -> Iterator[SuggestedFix]:
        """The GPUs that this layout takes where the limit that the run comes nearest to is twice as long."""
        served, target, case = made
        near: dict[str, float] = {}
        for name, times, most in (("ttft", run.ttft, target.ttft_ns), ("tpot", run.tpot, target.tpot_ns)):
            if most is not None:
                near[name] = percentile(times, target.goodput) / most
        name = max(near, key=lambda one: near[one])
        limit = getattr(self.workload, f"{name}_seconds") * _LOOSER
        looser = (
            replace(target, ttft_ns=in_ns(limit)) if name == "ttft" else replace(target, tpot_ns=in_ns(limit))
        )
        runs = Runs(served, self.load, ROUTER, looser, case)
        if one.replicas > 1 and runs.keeps(one.replicas - 1):
            gpus = (runs.least(one.replicas - 1, one.replicas) or one.replicas) * one.one.layout.gpus
            flags = f"--{name} {_time(limit)}"
            then = f"{gpus} × {one.offer.gpu.slug} ({one.one.layout.words()}), or fewer"
            yield SuggestedFix(flags.removeprefix("--"), flags, then, gpus)


def _layouts(row: Row) -> Iterator[Found]:
    """The row's own candidate, then those of its formats in other tensor parallel sizes, by GPUs."""
    ask, own = row
    yield own
    if ask.objective in (REQUESTS, CONTEXT):
        return
    same = replace(
        ask, offers=(own.offer,), variants=(own.one.variant,), kv_dtypes=(own.one.kv,),
        lengths=(own.max_model_len,),
    )  # fmt: skip
    others = [
        found
        for size in ask.tp or TENSOR_WAYS
        if size != own.one.layout.tp
        for found in search(replace(same, tp=(size,)), wanted=1).found
    ]
    yield from sorted(others, key=lambda one: one.key)


def _most(ask: Ask, one: Found, best: Row | None) -> int:
    """The most replicas of a candidate that may be, and are fewer GPUs than those of the best."""
    limit = ask.limit(one.offer)
    gpus = MOST_GPUS if limit is None else limit
    if best is not None:
        gpus = min(gpus, best.found.gpus - 1)
    return min(gpus // one.one.layout.gpus, MOST_REPLICAS)


def _on(ask: Ask, one: Found, replicas: int) -> Found:
    """The candidate on so many replicas, with the requests under way that are then on each."""
    engines = replicas * one.one.layout.pools
    each = min(one.capacity, max(1, ceil_div(one.under_way, engines)))
    found = one._replace(replicas=replicas, gpus=replicas * one.one.layout.gpus, per_engine=each)
    if ask.objective == COST:
        cost = cost_per_million(ask, found, estimate_of(ask, found))
        found = found._replace(million=None if cost is None else cost[1])
    return found._replace(key=key_again(ask.objective, found))


def _shown(
    load: Load, workload: Workload, target: Target, runs: tuple[Outcome, Outcome, Outcome],
    safe_gpus: int | None, notes: tuple[str, ...],
) -> Simulated:  # fmt: skip
    """The figures of a deployment's runs with fast, likely and slow steps."""
    fast, likely, slow = runs

    def times(of: Callable[[Outcome], Sequence[int]]) -> tuple[float, float, float]:
        found = [percentile(of(each), target.goodput) / SECOND for each in runs]
        return found[0], found[1], found[2]

    return Simulated(
        rate=float(load.rate),
        arrivals=load.drawn.words if load.drawn is not None else load.name,
        requests=likely.requests,
        ttft_at_most=_seconds(workload.ttft_seconds),
        tpot_at_most=_seconds(workload.tpot_seconds),
        goodput_at_least=target.goodput,
        goodput=(slow.goodput, likely.goodput, fast.goodput),
        ttft=times(lambda each: each.ttft),
        tpot=times(lambda each: each.tpot),
        safe_gpus=safe_gpus,
        notes=notes,
    )


def _seconds(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _time(seconds: Fraction) -> str:
    """``2s``, ``100ms``."""
    return f"{seconds}s" if seconds.denominator == 1 else f"{ceil(seconds * 1000)}ms"


class Divided(NamedTuple):
    """plan: with as few replicas of both kinds as keep the times; simulated: their figures; said: why they
    are not simulated (the plan is then as it was), or that no number keeps the times (there is none)."""

    plan: Plan | None
    simulated: Simulated | None = None
    said: tuple[str, ...] = ()


def with_split(
    plan: Plan, model: Model, first: Sides, goodput: Fraction, trace: str | Path | None
) -> Divided:
    """As few replicas for prompts and for answers as keep the times, looked for from ``first`` on."""
    assert plan.workload is not None
    load = plan.workload
    asked = replace(
        plan.require, goodput=goodput, ttft_seconds=load.ttft_seconds, ttft_percentile=goodput * 100,
        tpot_seconds=load.tpot_seconds, tpot_percentile=goodput * 100, requests=None, tokens=None,
    )  # fmt: skip
    fleet = FleetPlan(prefill_replicas=first.prefill, decode_replicas=first.decode)
    split = replace(plan, require=asked, fleet=fleet, workload=replace(load, requests_in_flight=None))
    try:
        arrivals = arrivals_of(load, trace)
        case = deciding(split)
        served = served_plan(split, model, pool=None if case[0] != SAFE else SAFE)
        check_served(arrivals, served.engine(case[0]))
        most = MOST_GPUS // plan.gpus_per_replica
        found = least_sides(served, arrivals, first, target_of(split), case, most)
    except KvplanError as error:
        if error.code not in NOT_SIMULATED:
            raise
        return Divided(plan, said=(f"not simulated, estimated for a steady load: {error.message}",))
    if found is None:
        none = "none of the numbers of prefill and decode engines that were tried keeps the times"
        return Divided(None, said=(none,))
    gpus = sum(found) * plan.gpus_per_replica
    fleet = replace(fleet, prefill_replicas=found.prefill, decode_replicas=found.decode)
    split = replace(split, fleet=fleet, gpus=gpus)
    return Divided(split, _both_kinds(split, served, arrivals, found, most))


def _both_kinds(plan: Plan, served: Served, arrivals: Load, found: Sides, most: int) -> Simulated:
    """Figures of replicas for prompts and for answers."""
    assert plan.workload is not None
    assert served.split is not None
    target, case = target_of(plan), deciding(plan)
    served = replace(served, split=replace(served.split, prefill=found.prefill, decode=found.decode))
    fast, likely, slow = (
        Runs(served, arrivals, ROUTER, target, of).whole(sum(found))
        for of in ((case[0], FAST), (case[0], LIKELY), (SAFE, SLOW))
    )
    safe: Sides | None = found
    if not slow.keeps(target):
        safe = least_sides(served, arrivals, found, target, (SAFE, SLOW), most)
    gpus = None if safe is None else sum(safe) * plan.gpus_per_replica
    notes = on_replicas(served, arrivals, sum(found), ROUTER).load.notes
    return _shown(arrivals, plan.workload, target, (fast, likely, slow), gpus, notes)
