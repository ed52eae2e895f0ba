"""Where the engines of a plan run: replicas, nodes, which GPUs each process sees, what it loads."""

from __future__ import annotations

from kvplan.engines.base import MIG_SLICES
from kvplan.engines.command import Across, EngineTable
from kvplan.engines.folders import having, part_of
from kvplan.engines.release_rules import reached
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.plans.plan import Plan
from kvplan.record import record

_VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}


@record()
class Replica:
    """One engine: its number, its first node, its GPUs by their numbers on each of its nodes."""

    number: int
    node: int
    gpus: tuple[int, ...]
    nodes: int = 1


def table_of(plan: Plan) -> tuple[EngineTable, str]:
    """The plan's engine and its version. Raises KvplanError(no-server)."""
    name, _, version = plan.engine.partition("@")
    part = part_of(name, "command")
    if part is None:
        raise KvplanError(
            "no-server",
            f"{name} is no server that could be started",
            help="one of " + ", ".join(having("command")),
        )
    if not version:
        raise KvplanError("bad-version", f"the plan names no version of {name}", help=f"write {name}@VERSION")
    return part.TABLE, version


def replicas_of(plan: Plan) -> tuple[Replica, ...]:
    """Every engine with the GPUs that it sees; nodes are filled one after another. One that a node does not
    hold takes the fewest on which it has equally many GPUs.

    Raises KvplanError(too-few-gpus | several-nodes).
    """
    each, gpu = plan.gpus_per_replica, plan.settings.gpu
    if plan.replicas < 1:
        raise KvplanError(
            "too-few-gpus",
            f"one engine takes {each} GPUs, and the plan has {plan.gpus}",
            help=f"gpus: {each}",
        )
    in_node = gpu.gpus_per_node if gpu is not None else None
    if in_node is not None and traits_of(plan.engine.partition("@")[0]).spread is not None:
        in_node = max(in_node, each)  # it takes the GPUs of one machine, whatever their number
    if in_node is not None and each > in_node:
        across_of(plan)
        nodes = next(count for count in range(2, each + 1) if not each % count and each // count <= in_node)
        seen = tuple(range(each // nodes))
        return tuple(Replica(number, number * nodes, seen, nodes) for number in range(plan.replicas))
    beside = max(in_node // each, 1) if in_node is not None else plan.replicas
    found = []
    for number in range(plan.replicas):
        node, place = divmod(number, beside)
        found.append(Replica(number, node, tuple(range(place * each, (place + 1) * each))))
    return tuple(found)


def across_of(plan: Plan) -> Across:
    """The words of an engine over several nodes. Raises KvplanError(several-nodes)."""
    table, version = table_of(plan)
    each, across = plan.gpus_per_replica, table.across
    if across is None or not reached(version, across.since or ""):
        raise KvplanError(
            "several-nodes",
            f"one engine takes {each} GPUs, more than a node has, and {plan.engine} is started over nodes by"
            " other programs",
            help="keep an engine within a node, or "
            + (f"use {table.engine}@{across.since} or newer" if across else "start it with MPI by hand"),
        )
    return across


def gpu_of(plan: Plan) -> Gpu:
    """The plan's GPU, one that a container can be given. Raises KvplanError(no-device)."""
    gpu = plan.settings.gpu
    if gpu is None or gpu.vendor not in _VISIBLE:
        what = "no GPU" if gpu is None else gpu.name
        raise KvplanError(
            "no-device", f"kvplan does not know how {what} is given to a container",
            help="an NVIDIA or AMD GPU",
        )  # fmt: skip
    if gpu.is_mig_slice and plan.gpus_per_replica > 1:
        raise KvplanError(
            MIG_SLICES,
            f"one engine takes {plan.gpus_per_replica} MIG slices, and one process sees one",
            help="tensor, pipeline and data parallel size 1, and more replicas",
        )  # fmt: skip
    return gpu


def visible_variable(plan: Plan) -> str | None:
    """The variable that says which GPUs a process sees; None where a process sees them all anyway.

    Raises KvplanError(no-device) where several engines would need one and none is known.
    """
    gpu = plan.settings.gpu
    if gpu is None or gpu.vendor in _VISIBLE:
        return _VISIBLE[gpu.vendor if gpu is not None else "nvidia"]
    if plan.replicas > 1 or spare_gpus(plan):
        raise KvplanError(
            "no-device",
            f"kvplan does not know how several engines share the {plan.gpus} × {gpu.name} of one machine",
            help="a plan for one engine",
        )
    return None


def spare_gpus(plan: Plan) -> int:
    """GPUs that make up no whole engine."""
    return plan.gpus - plan.replicas * plan.gpus_per_replica
