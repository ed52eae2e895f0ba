"""Rates of the links between GPUs, hosts, drives and nodes, and the time of a collective over them.

``link_bandwidth`` answers for one device and one direction: what the link moves in practice, not the
seller's rate, which sums both directions for NVLink.
"""

from __future__ import annotations

from math import log2

from kvplan.assumption import Assumption, Assumptions
from kvplan.errors import RefusedError, did_you_mean
from kvplan.gpu import Gpu
from kvplan.planning.speed.figures import Figure
from kvplan.record import record

NVLINK, PCIE = "nvlink", "pcie"
RATED = "link."
"""Links whose rate is in the table by name: ``link.infiniband-ndr``, ``link.nvlink-c2c`` …"""
_FROM_GPU = {NVLINK: "nvlink_bytes_per_second", PCIE: "pcie_bytes_per_second"}
_BOTH_WAYS = {NVLINK: 2, PCIE: 1}


def link_kinds(assumptions: Assumptions) -> tuple[str, ...]:
    """Every kind that `link_bandwidth` takes."""
    rated = (name.removeprefix(RATED) for name in assumptions.by_name if name.startswith(RATED))
    return (NVLINK, PCIE, *sorted(rated))


def link_bandwidth(gpu: Gpu, kind: str, assumptions: Assumptions) -> Figure:
    """Bytes per second in one direction that one GPU gets out of a link.

    ``nvlink`` (the scale-up link, whatever its maker calls it) and ``pcie``: the spec's rate times a
    stated efficiency. Other kinds are rates of the table. Raises RefusedError(unknown-link).
    """
    spread = (assumptions["spread.link.low"], assumptions["spread.link.high"])
    if kind in _FROM_GPU:
        rate = getattr(gpu, _FROM_GPU[kind])
        if rate is None:
            raise RefusedError(
                "unknown-link",
                f"{gpu.slug} has no {kind} whose rate is known",
                help="write a spec file for the GPU with the link's rate and its source",
            )
        source = gpu.provenance.get(f"interconnect.{_FROM_GPU[kind]}", "unverified")
        one_way = Assumption(f"rate.{kind}", rate / _BOTH_WAYS[kind], "B/s", source)
        share = assumptions[f"link_efficiency.{kind}"]
        value = one_way.value * share.value
        used: tuple[Assumption, ...] = (one_way, share, *spread)
    elif f"{RATED}{kind}" in assumptions:
        known = assumptions[f"{RATED}{kind}"]
        value, used = known.value, (known, *spread)
    else:
        near = did_you_mean(kind, link_kinds(assumptions))
        raise RefusedError(
            "unknown-link",
            f"unknown link {kind!r}",
            help=f"did you mean {near!r}?" if near else ", ".join(link_kinds(assumptions)),
        )
    return Figure(value, value * spread[0].value, value * spread[1].value, "B/s", used)


@record()
class Fabric:
    """The link that a group of ranks talks over: seconds per byte, seconds of a message's hop, its ranks."""

    ranks: int
    seconds_per_byte: float
    hop: float
    assumptions: tuple[Assumption, ...] = ()

    @property
    def latency(self) -> float:
        """Of a collective: log2(ranks) hops one after another, as in recursive doubling (Thakur, Rabenseifner
        & Gropp, Optimization of Collective Communication Operations in MPICH, 2005, §3)."""
        return self.hop * log2(self.ranks)

    def all_reduce(self, amount: float) -> float:
        """A ring: latency + 2 · (ranks − 1) / ranks · bytes / rate. 0 for one rank."""
        if self.ranks == 1:
            return 0.0
        return self.latency + 2 * (self.ranks - 1) / self.ranks * amount * self.seconds_per_byte

    def all_to_all(self, amount: float) -> float:
        """Every rank sends (ranks − 1) / ranks of its bytes once. 0 for one rank."""
        if self.ranks == 1:
            return 0.0
        return self.latency + (self.ranks - 1) / self.ranks * amount * self.seconds_per_byte


def fabric(gpu: Gpu, ranks: int, network: str | int | None, assumptions: Assumptions) -> Fabric:
    """The slowest link among ``ranks`` neighbouring GPUs: NVLink or PCIe in a node, the network beyond it.

    Raises RefusedError(unknown-link): the ranks span nodes and no network is named; the GPU's links are not
    known.
    """
    if ranks == 1:
        return Fabric(1, 0.0, 0.0)
    inside = gpu.gpus_per_node
    if inside is None:
        raise RefusedError(
            "unknown-link",
            f"how many {gpu.slug} a node has is not known",
            help="write a spec file for the GPU with gpus_per_node",
        )
    if ranks > inside:
        if network is None:
            raise RefusedError(
                "unknown-link",
                f"{ranks} ranks need {-(-ranks // inside)} nodes of {inside} × {gpu.slug}, "
                "and no network is named",
                help=("name it, for example infiniband-ndr", "node_bandwidth: 40GB/s in a fleet file"),
            )
        latency = assumptions["collective_latency.network"]
        if isinstance(network, int):
            stated = Assumption("rate.network", network, "B/s", "as stated")
            return Fabric(ranks, 1.0 / network, latency.value, (stated, latency))
        kind = network
    else:
        kind = NVLINK if gpu.nvlink_bytes_per_second is not None else PCIE
        latency = assumptions[f"collective_latency.{kind}"]
    found = link_bandwidth(gpu, kind, assumptions)
    return Fabric(ranks, 1.0 / found.value, latency.value, (*found.assumptions, latency))
