"""Classes of start-ups from 0.20 on: what each is taken for before its rows are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvplan.engines.vllm.memory.coefficients import (
    BLACKWELL,
    GEFORCE,
    NVSWITCH,
    OLDER,
    OTHER,
    PCIE,
    RACK,
    UNIFIED,
    parts,
)
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.units import MIB

SINCE, CONSUMED, MEASURED = (0, 20), (0, 27), (0, 29)
"""Graphs are inside; what stays is told by mem_get_info; the V2 runner estimates its graphs."""
COMPILE_COPIES = 3_300
"""Hidden states beside the embedding while kernels are benchmarked: cold and warm starts of one server."""
FOUR_RANKS = 4
MULTIPROCESSOR = MIB
"""What one more multiprocessor keeps: half a KiB of local memory for each of 2,048 threads."""
BLACKWELLS = (BLACKWELL, RACK)


class Class(NamedTuple):
    """since: of its range of releases. board: "any" for one GPU. several: more than one rank. runner: of both
    where the rows do not tell them apart."""

    since: str
    board: str
    several: bool
    runner: str = ""


class Prior(NamedTuple):
    """A class's constant before its rows, and the least margins below and above."""

    amount: int
    low: int
    high: int


ONE, ONE_CONSUMED = Class("0.20", "any", several=False), Class("0.27", "any", several=False)
ONE_V2 = Class("0.20", "any", several=False, runner=V2)
ONE_CONSUMED_V2 = Class("0.27", "any", several=False, runner=V2)
ONE_CARD = Class("0.20", PCIE, several=False)
ONE_CARD_V2 = Class("0.20", PCIE, several=False, runner=V2)
PRIORS: Mapping[Class, Prior] = {
    ONE: Prior(120 * MIB, 80 * MIB, 128 * MIB),
    ONE_V2: Prior(90 * MIB, 80 * MIB, 120 * MIB),
    ONE_CONSUMED: Prior(180 * MIB, 160 * MIB, 160 * MIB),
    ONE_CONSUMED_V2: Prior(110 * MIB, 128 * MIB, 160 * MIB),
    ONE_CARD: Prior(170 * MIB, 90 * MIB, 438 * MIB),
    ONE_CARD_V2: Prior(96 * MIB, 96 * MIB, 512 * MIB),
    Class("0.20", NVSWITCH, several=True): Prior(700 * MIB, 320 * MIB, 1300 * MIB),
    Class("0.20", BLACKWELL, several=True): Prior(1000 * MIB, 500 * MIB, 1500 * MIB),
    Class("0.20", RACK, several=True): Prior(1500 * MIB, 600 * MIB, 600 * MIB),
    Class("0.20", PCIE, several=True): Prior(700 * MIB, 650 * MIB, 500 * MIB),
    Class("0.20", OLDER, several=True): Prior(256 * MIB, 176 * MIB, 600 * MIB),
    Class("0.20", GEFORCE, several=True): Prior(256 * MIB, 176 * MIB, 600 * MIB),
    Class("0.20", UNIFIED, several=True): Prior(700 * MIB, 500 * MIB, 1500 * MIB),
    Class("0.20", OTHER, several=True): Prior(1000 * MIB, 500 * MIB, 1500 * MIB),
    Class("0.27", PCIE, several=True): Prior(600 * MIB, 450 * MIB, 512 * MIB),
    **{
        Class("0.27", board, several=True): Prior(256 * MIB, 256 * MIB, 512 * MIB)
        for board in (BLACKWELL, RACK, OLDER, GEFORCE, UNIFIED, OTHER)
    },
    Class("0.27", NVSWITCH, several=True): Prior(256 * MIB, 256 * MIB, 768 * MIB),
}
"""Several ranks: NCCL, custom and symmetric-memory all-reduce (vllm/distributed/device_communicators); the
high side of NVSwitch boards is what 0.19 printed on H100; GeForce cards: 0.25 GiB printed on two RTX 4090
(vllm-project/vllm#13061), the high side is that of cards that reach each other. A card in a slot keeps
what a board keeps, under V1 (158, 176 and 181 MiB were read) as under V2 (a card of 16 GB prints 0.07 with
0.26), and V2 has V1's high end: what a report of 0.26 on an RTX PRO 6000 leaves (its batch is not stated).
Since 0.27 ranks keep less: 0.05 GiB of two, 0.08 to 0.5 of four and eight; four cards in slots what starts of
four on a board keep, of which some were read. Ends alone are set by starts that no constant saw: four A40
with 0.25 kept nothing, four and two H100 with 0.28, under V2, 0.6 and 0.9 GiB more than the constant.
One GPU under V2 has 8 MiB less of a high end than under V1: no start that was read needs them, and without
them half of the dense text models' intervals are within the 0.5 GiB either way that are asked of them."""
LONE = ((ONE, ONE, V1), (ONE_V2, ONE_V2, V2), (ONE_CONSUMED, ONE, V1), (ONE_CONSUMED_V2, ONE_V2, V2))
"""Classes of one GPU, the one that the constants of several count from, and the runner."""
READ = {NVSWITCH, RACK, PCIE, OLDER, GEFORCE}
"""Boards of several GPUs of which somebody's start-up was read."""
SLOTS = (PCIE, OLDER, GEFORCE)
UNREAD_HIGH = 2500 * MIB
"""One card of a vendor that no constant was learnt of: an MI300X kept 2 GiB beside its weights with 0.29."""
UNREAD_KEPT = 1300 * MIB
"""The same since 0.27, which counts all that stays (mem_get_info): an MI300X with 0.28 leaves as much beside
the other lines, whose weights agree with what it prints (mglim-mi300x-050)."""
GRAPH_V1, GRAPH_V2, GRAPH_SPLIT, GRAPH_LATENT = 184 * 1024, 157 * 1024, 126 * 1024, 512 * 1024
GRAPH_RANKS, DRAFT_COPIES = 1_400, 5_000


def by_ranks(entry: Class, alone: int, several: int) -> Iterable[tuple[int, int]]:
    """(ranks, what they keep). What was read of cards in slots is of four RTX PRO 6000 with three peers each;
    two of them keep what two GeForce cards print, under either runner: NCCL does not know which it serves;
    three starts of two H200 NVL leave nothing beside the other lines. Since 0.27 two keep what one does."""
    if parts(entry.since) >= CONSUMED:
        return (1, alone), (FOUR_RANKS, several)
    if entry.board == PCIE:
        return (1, alone), (2, PRIORS[Class("0.20", GEFORCE, several=True)].amount), (FOUR_RANKS, several)
    return (1, alone), (2, several)
