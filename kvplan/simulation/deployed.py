"""The simulation that a plan describes: deployment, trace, targets, rate."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.files.traces.arrivals import read_arrivals
from kvplan.model import Model
from kvplan.plans.plan import SAFE, USUAL_GOODPUT, Plan, trace_file
from kvplan.plans.question import start_of
from kvplan.plans.workload import Workload
from kvplan.simulation.fleet.disaggregated import AskedSplit
from kvplan.simulation.load.drawn import Drawn
from kvplan.simulation.load.load import Load, drawn_load
from kvplan.simulation.offload_tiers import AskedOffload, asked_offload
from kvplan.simulation.outcome import Target
from kvplan.simulation.served import Served, Speeds, serve
from kvplan.units import SECOND


def served_plan(
    plan: Plan, model: Model, *, speeds: Speeds | None = None, pool: str | None = None,
    offload: AskedOffload | None = None, split: AskedSplit | None = None, acceptance: str | None = None,
) -> Served:  # fmt: skip
    """The plan's engine as it starts, with one scheduler for each of its pools of requests. offload, split,
    acceptance: in place of the plan's own."""
    fleet = plan.fleet
    if split is None and fleet.prefill_replicas:
        split = AskedSplit(fleet.prefill_replicas, fleet.decode_replicas, fleet.link or None)
    return serve(
        model, choose(plan.engine), start_of(plan), speeds=speeds,
        pool=pool if pool is not None else (SAFE if plan.require.pool == SAFE else None),
        gpus=plan.gpus_per_replica, pools=plan.pools_per_replica,
        offload=offload if offload is not None else offload_said(plan), split=split,
        acceptance=acceptance or (plan.workload.acceptance if plan.workload is not None else None),
    )  # fmt: skip


def offload_said(plan: Plan) -> AskedOffload | None:
    """The tiers of the plan's ``fleet.offload``, else vLLM's own flag of its ``serve`` for host memory."""
    if plan.fleet.offload:
        return asked_offload(plan.fleet.offload)
    flags = dict(plan.serve)
    size = flags.get("kv_offloading_size")
    if not size:
        return None
    backend = str(flags.get("kv_offloading_backend") or "native")
    return asked_offload(f"cpu:{size}GiB,backend={backend}")


def trace_of(plan: Plan | None) -> tuple[str, str, tuple[str, ...] | None, int]:
    """The plan's trace: path, format, columns, tokens of one identity. Raises KvplanError(no-trace)."""
    workload = None if plan is None else plan.workload
    if plan is None or workload is None or workload.trace is None:
        raise KvplanError(
            "no-trace", "the plan has no trace" if plan is not None else "no trace is given",
            help=("--trace conversation.jsonl", "workload: {trace: conversation.jsonl} in the plan"),
        )  # fmt: skip
    return (
        trace_file(plan) or workload.trace,
        workload.trace_format,
        workload.trace_columns,
        workload.trace_block,
    )


def load_from(
    path: str | Path, form: str = "auto", columns: tuple[str, ...] | None = None, wide: int = 0,
    first: int | None = None,
) -> Load:  # fmt: skip
    """The requests of a file. Raises KvplanError(bad-trace …)."""
    if first is not None and first < 1:
        raise KvplanError("bad-usage", "a load has at least one request", help="--first 1000")
    read = read_arrivals(Path(path), name=str(path), form=form, columns=columns, wide=wide, most=first)
    return Load(read.arrivals, read.wide, Path(path).name, read.form, read.notes).over_its_steps()


def own_load(plan: Plan | None, first: int | None = None) -> Load:
    """The plan's trace at the plan's rate; without a trace the arrivals that are drawn for its rate. Raises
    KvplanError(no-trace, not-simulated …)."""
    workload = None if plan is None else plan.workload
    rate = None if workload is None else workload.requests_per_second
    if workload is not None and workload.trace is None and rate is not None:
        load = drawn_for(workload)
        return load if first is None else load.first(first)
    load = load_from(*trace_of(plan), first)
    return load if rate is None else load.at_rate(rate)


def drawn_for(workload: Workload) -> Load:
    """The arrivals of a workload that names no trace. Raises KvplanError(not-simulated)."""
    if workload.samples > 1:
        raise KvplanError(
            "not-simulated", "several samples of one prompt are not drawn as arrivals", help="a trace of them"
        )
    rate = workload.requests_per_second
    assert rate is not None
    return drawn_load(
        Drawn(
            workload.shapes,
            float(rate),
            float(workload.burstiness),
            workload.seed,
            workload.shared_prefix_tokens,
        )
    )


def target_of(plan: Plan) -> Target:
    """The target of the plan's requests, and the share that must meet it."""
    workload, goodput = plan.workload, plan.require.goodput or USUAL_GOODPUT
    ttft = None if workload is None else workload.ttft_seconds
    tpot = None if workload is None else workload.tpot_seconds
    return Target(in_ns(ttft), in_ns(tpot), float(goodput))


def in_ns(value: Fraction | float | None) -> int | None:
    """Seconds in whole nanoseconds."""
    return None if value is None else round(Fraction(value) * SECOND)
