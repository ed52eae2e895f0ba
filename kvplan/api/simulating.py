"""The library's `simulate` and `replicas_for`: a model or a plan on a trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.api import ModelLike, in_our_words, load_model, make_settings
from kvplan.api.arguments import check_type
from kvplan.api.load import engine_for
from kvplan.engines import check_options
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.plans.arrival import Arrival
from kvplan.plans.plan import USUAL_GOODPUT, Plan
from kvplan.record import replace
from kvplan.simulation.answer import AUTO, simulate_load
from kvplan.simulation.deployed import (
    in_ns,
    load_from,
    own_load,
    served_plan,
    target_of,
)
from kvplan.simulation.fleet.disaggregated import AskedSplit
from kvplan.simulation.fleet.run import ROUND_ROBIN
from kvplan.simulation.load.load import Load
from kvplan.simulation.offload_tiers import asked_offload
from kvplan.simulation.outcome import Target
from kvplan.simulation.results import ReplicasNeeded, SimulationResult
from kvplan.simulation.served import LIKELY, Served, Speeds, serve
from kvplan.simulation.shown import Simulation, shown
from kvplan.simulation.time.clock import StepTime
from kvplan.units import parse_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvplan.api.keywords import SimulateOptions

TraceLike = str | Path | Load | Sequence[Arrival]
_TERM = regex(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ns|us|µs|ms|s)(?:\s*\*\s*(tokens?|context))?", re.ASCII)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_SECOND = 10**9


def simulate(
    model: ModelLike | Plan, *, trace: TraceLike | None = None, replicas: int | str | None = None,
    rate: Fraction | float | None = None, router: str | None = None, ttft: Fraction | float | None = None,
    tpot: Fraction | float | None = None, goodput: Fraction | float | None = None, pool: str | None = None,
    step_time: str | StepTime | Speeds | None = None, trace_format: str = "auto",
    trace_columns: Sequence[str] | None = None, trace_block: int = 0, first: int | None = None,
    search: bool = True, helps: bool = True, engine: str | None = None, offload: str | None = None,
    prefill_replicas: int | None = None, decode_replicas: int | None = None, link: int | str | None = None,
    concurrency: int | None = None, acceptance: float | str | None = None, hours: bool = False,
    **options: Unpack[SimulateOptions],
) -> Simulation:  # fmt: skip
    """How a deployment serves a trace: the engine's own scheduler in virtual time, under the likely and the
    safe pool and three speeds.

    model: as `size` takes it, with the same keywords (``gpu``, ``tensor_parallel_size`` …), or a plan, which
    says its own trace, replicas and targets. trace: a file, arrivals, or a `Load`. replicas: a number, or
    "auto" for as many as the target needs. rate: requests a second in place of the trace's own. ttft, tpot:
    seconds; goodput: the share of requests that must keep them. step_time: ``6ms+25us*tokens+25ns*context``
    where you know it. search: also find the rate that one replica sustains; helps: also simulate what else
    would help. offload: tiers outside the GPU, ``cpu:64GiB,nvme:2TiB``. prefill_replicas, decode_replicas:
    prompts on some and answers on others, over a link of so many bytes a second (``50GB/s``).
    concurrency: requests that are always under way, in place of the trace's times. acceptance: how many
    drafted tokens are right, where tokens are drafted (0.7, "2.4", "0.8,0.6"). hours: also the least
    replicas of every hour of the trace. Raises KvplanError.
    """
    served, plan = deployment(
        model, pool=pool, step_time=step_time, engine=engine, offload=offload,
        split=split_asked(prefill_replicas, decode_replicas, link), acceptance=acceptance, **options,
    )  # fmt: skip
    load = load_of(
        trace,
        plan,
        trace_format=trace_format,
        trace_columns=trace_columns,
        trace_block=trace_block,
        first=first,
    )
    workload = None if plan is None else plan.workload
    if rate is None and workload is not None and concurrency is None:
        rate = workload.requests_per_second
    result = simulate_load(
        served, load, replicas=replicas_of(replicas, plan),
        router=router or (plan.fleet.router if plan is not None else ROUND_ROBIN),
        target=target(plan, ttft, tpot, goodput), rate=None if rate is None else Fraction(rate),
        search=search, helps=helps, concurrency=_concurrency(concurrency), hours=hours,
    )  # fmt: skip
    return shown(result if plan is None else _held(result, plan))


def _concurrency(asked: int | None) -> int:
    if asked is None:
        return 0
    if type(asked) is not int or asked < 1:
        raise KvplanError("bad-usage", f"{asked!r} requests always under way", help="--concurrency 64")
    return asked


def _held(result: SimulationResult, plan: Plan) -> SimulationResult:
    """The answer with what of the plan's requirements does not hold, by the run that decides."""
    from kvplan.simulation.requirements import deciding, missed

    run = dict(result.runs).get(deciding(plan), result.likely)
    return replace(result, missed=tuple(finding.message for finding in missed(plan, run)))


def replicas_for(model: ModelLike | Plan, *, trace: TraceLike | None = None, **asked: Any) -> ReplicasNeeded:
    """The least replicas that keep the target, likely and safely. Keywords as of `simulate`."""
    needed = simulate(model, trace=trace, replicas="auto", helps=False, **asked).replicas_needed
    assert needed is not None
    return needed


def deployment(
    model: ModelLike | Plan, *, pool: str | None = None, step_time: str | StepTime | Speeds | None = None,
    engine: str | None = None, offload: str | None = None, split: AskedSplit | None = None,
    acceptance: float | str | None = None, **options: Any,
) -> tuple[Served, Plan | None]:  # fmt: skip
    """The deployment to simulate, and the plan that describes it."""
    speeds = speeds_given(step_time)
    tiers = None if offload is None else asked_offload(offload)
    right = None if acceptance is None else str(acceptance)
    if isinstance(model, Plan):
        if options or engine is not None:
            wrong = "engine" if engine is not None else next(iter(options))
            raise KvplanError(
                "bad-usage", f"{wrong} belongs to a model: a plan says its own",
                help="beside a plan: trace, rate, replicas, router, ttft, tpot, goodput, pool, step_time",
            )  # fmt: skip
        loaded = load_model(model.model)
        return served_plan(
            model, loaded, speeds=speeds, pool=pool, offload=tiers, split=split, acceptance=right
        ), model
    loaded = load_model(model, weights_from=options.pop("weights_from", None))
    choice = choose(engine or engine_for([loaded], options))
    settings = make_settings(**in_our_words(options, (choice.engine.name,)))
    check_options((choice.engine,), settings)
    return serve(
        loaded, choice, settings, speeds=speeds, pool=pool, offload=tiers, split=split, acceptance=right
    ), None


def split_asked(
    prefill: int | str | None, decode: int | str | None, link: int | str | None
) -> AskedSplit | None:
    """Replicas that prefill and that decode, or None. Raises KvplanError(bad-replicas, bad-usage)."""
    if prefill is None and decode is None:
        if link is not None:
            raise KvplanError(
                "bad-usage", "a link lies between replicas that prefill and that decode",
                help="--prefill-replicas 1 --decode-replicas 2",
            )  # fmt: skip
        return None
    if prefill is None or decode is None:
        raise KvplanError(
            "bad-usage", "replicas that prefill and replicas that decode are both asked for",
            help="--prefill-replicas 1 --decode-replicas 2",
        )  # fmt: skip
    counts = replicas_of(prefill, None), replicas_of(decode, None)
    if AUTO in counts:
        raise KvplanError("bad-replicas", "of two kinds of replicas both numbers are said",
                          help="--prefill-replicas 1 --decode-replicas 2")  # fmt: skip
    text = link.strip().removesuffix("/s") if isinstance(link, str) else link
    rate = None if text is None else parse_bytes(text)
    if rate == 0:
        raise KvplanError("bad-size", f"a link of {link} moves nothing", help="--link 50GB/s")
    return AskedSplit(*counts, rate)


def speeds_given(step_time: str | StepTime | Speeds | None) -> Speeds | None:
    """A step time of the user's own. Raises KvplanError(bad-step-time)."""
    if step_time is None or isinstance(step_time, Speeds):
        return step_time
    clock = step_time if isinstance(step_time, StepTime) else parse_step_time(step_time)
    return Speeds(
        ((LIKELY, clock),),
        f"given: {clock.fixed_ns / 1e6:g} ms + {clock.token_ns / 1e3:g} µs a token"
        f" + {clock.context_ns:g} ns a token of context",
    )


def parse_step_time(text: str) -> StepTime:
    """``6ms + 25us*tokens + 25ns*context`` in whole nanoseconds. Raises KvplanError(bad-step-time)."""
    found = {"": 0, "tokens": 0, "context": 0}
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise KvplanError(
                "bad-step-time", f"{term.strip()!r} is no part of a step time",
                help="--step-time 6ms+25us*tokens+25ns*context",
            )  # fmt: skip
        amount = round(Fraction(match[1]) * _UNITS[match[2]])
        name = {None: "", "token": "tokens"}.get(match[3], match[3]) or ""
        found[name] += amount
    if not any(found.values()) or max(found.values()) > 3600 * _SECOND:
        raise KvplanError(
            "bad-step-time", f"{text!r}: a step takes some time, and less than an hour",
            help="--step-time 6ms+25us*tokens+25ns*context",
        )  # fmt: skip
    return StepTime(found[""], found["tokens"], found["context"])


def replicas_of(replicas: int | str | None, plan: Plan | None) -> int:
    """A number, or `AUTO`. Raises KvplanError(bad-replicas)."""
    if replicas is None:
        return AUTO if plan is None else max(1, plan.replicas)
    if isinstance(replicas, str) and replicas.strip().lower() == "auto":
        return AUTO
    digits = str(replicas).strip()
    if (
        isinstance(replicas, bool)
        or not (digits.isascii() and digits.isdigit())
        or not 1 <= int(digits) <= 4096
    ):
        raise KvplanError("bad-replicas", f"{replicas!r} replicas", help="--replicas 4, or --replicas auto")
    return int(digits)


def target(plan: Plan | None, ttft: Any, tpot: Any, goodput: Any) -> Target:
    """Targets as given, else the plan's. Raises KvplanError(bad-time, bad-setting)."""
    own = Target(goodput=float(USUAL_GOODPUT)) if plan is None else target_of(plan)
    for name, value in (("ttft", ttft), ("tpot", tpot)):
        if value is not None:
            check_type(name, value, (int, float, Fraction))
            if not 0 < value < 10**6:
                raise KvplanError("bad-time", f"{name} is {value}: seconds above 0")
    if goodput is not None and not 0 < goodput <= 1:
        raise KvplanError(
            "bad-setting", f"goodput is {float(goodput):g}: a share of 1, above 0", help="--goodput 99%"
        )
    return Target(
        own.ttft_ns if ttft is None else in_ns(ttft), own.tpot_ns if tpot is None else in_ns(tpot),
        own.goodput if goodput is None else float(goodput),
    )  # fmt: skip


def load_of(
    trace: TraceLike | None, plan: Plan | None, *, trace_format: str = "auto",
    trace_columns: Sequence[str] | None = None, trace_block: int = 0, first: int | None = None,
) -> Load:  # fmt: skip
    """The requests of a trace, or of the plan's own. Raises KvplanError(no-trace, bad-trace …)."""
    if isinstance(trace, Load):
        return trace if first is None else trace.first(first)
    if trace is not None and not isinstance(trace, (str, Path)):
        rows = tuple(trace)
        if not rows:
            raise KvplanError("bad-trace", "the trace has no requests")
        return Load(rows if first is None else rows[:first], trace_block or 1)
    if trace is None:
        return own_load(plan, first)
    columns = None if trace_columns is None else tuple(trace_columns)
    return load_from(trace, trace_format, columns, trace_block, first)


def with_replicas(plan: Plan, replicas: int) -> Plan:
    """The same plan with so many replicas."""
    return replace(plan, gpus=replicas * plan.gpus_per_replica)
