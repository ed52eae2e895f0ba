"""Releases from 0.20 on, whose logs print weights and pool: what is left, against the other lines.

    left = ceil(total · utilisation) − weights − pool
    rest = left − activation peak − cold compile − CUDA graphs − FlashInfer's workspace − sampler states

The rest is context, NCCL and what an allocator keeps: a constant of its class. A class is a range of
releases, a board, and one GPU or several. Families (sources of rows) count once each: the constant is the
median of their medians. A family's error is measured with a constant that has not seen it; a class's margin
is the largest such error, never less than its prior's, which is what two readings of the same start differ
by.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from kvplan.engines.vllm.memory.coefficients import (
    UNIFIED,
)
from kvplan.engines.vllm.memory.cold_compile import compile_line
from kvplan.engines.vllm.memory.cuda_graphs import graph_line, graph_sums
from kvplan.engines.vllm.memory.profile_peak import activation_peak
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.units import GIB
from scripts.fitting.late_classes import (
    BLACKWELLS,
    COMPILE_COPIES,
    DRAFT_COPIES,
    FOUR_RANKS,
    GRAPH_LATENT,
    GRAPH_RANKS,
    GRAPH_SPLIT,
    GRAPH_V1,
    GRAPH_V2,
    MEASURED,
    MULTIPROCESSOR,
    ONE,
    PRIORS,
    SINCE,
    Class,
    Prior,
)
from scripts.fitting.late_constants import Late
from scripts.fitting.late_rows import ODD, LateRow, is_plain

_PASS_COUNTED = (0, 23)


def by_family(rows: Iterable[LateRow], value: Callable[[LateRow], int]) -> dict[str, int]:
    """The median of each family."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row.family].append(value(row))
    return {family: int(median(values)) for family, values in found.items()}


def _middle(values: Mapping[str, int], prior: int, without: str | None = None) -> int:
    known = [value for family, value in values.items() if family != without]
    return int(median(known)) if known else prior


def fit_late(rows: Sequence[LateRow], without: str | None = None) -> Late:
    """Constants and margins of every class. without: a family that the constants must not see."""
    plain = [row for row in rows if is_plain(row) and row.release >= SINCE]
    classes = {}
    for entry, prior in PRIORS.items():
        mine = [row for row in plain if row.group == entry]
        rests = by_family(mine, lambda row: row.rest)
        constant = max(0, _middle(rests, prior.amount, without))
        errors = [0]
        for row in mine:
            if row.family != without:
                unseen = row.family if len(rests) > 1 else None
                errors.append(row.rest - _middle(rests, prior.amount, unseen))
        classes[entry] = Prior(constant, max(prior.low, -min(errors)), max(prior.high, *errors))
    printed = [row for row in rows if _estimated(row)]
    small = by_family(
        [row for row in printed if row.load.tensor_parallel_size < FOUR_RANKS or row.board not in BLACKWELLS],
        _one_graph,
    )
    large = by_family(
        [row for row in printed if row.load.tensor_parallel_size >= FOUR_RANKS and row.board in BLACKWELLS],
        _one_graph,
    )
    graph = _middle(small, GRAPH_V1, without)
    measured = [row for row in plain if _measured(row)]
    latent = [row for row in rows if _measured(row) and row.board != UNIFIED]
    return Late(
        classes=classes,
        multiprocessor=_multiprocessor(plain, without),
        graph_v1=graph,
        graph_ranks=max(1000, _middle(large, graph * GRAPH_RANKS // 1000, without) * 1000 // graph),
        graph_v2=_middle(
            by_family(
                [row for row in measured if not row.load.latent and not row.load.split_bytes], _v2_graph
            ),
            GRAPH_V2,
            without,
        ),
        graph_latent=_middle(
            by_family([row for row in latent if row.load.latent], _split_graph), GRAPH_LATENT, without
        ),
        graph_split=_middle(
            by_family(
                [row for row in measured if not row.load.latent and row.load.split_bytes], _split_graph
            ),
            GRAPH_SPLIT,
            without,
        ),
        draft_copies=_middle(
            by_family([row for row in rows if _drafted(row)], _draft_copies), DRAFT_COPIES, without
        ),
        compile_copies=COMPILE_COPIES,
        own={name: _own(rows, name, classes, without) for name in ODD},
    )


def _multiprocessor(rows: Sequence[LateRow], without: str | None) -> int:
    """What one more multiprocessor keeps: the median slope between two starts of a class, each pair counted
    once for every multiprocessor between them (Theil and Sen)."""
    slopes = [
        ((one.kept - other.kept) // (one.multiprocessors - other.multiprocessors), distance)
        for one, other in combinations(rows, 2)
        if one.group == other.group and without not in (one.family, other.family)
        for distance in [abs(one.multiprocessors - other.multiprocessors)]
        if distance
    ]
    half, seen = sum(weight for _, weight in slopes) / 2, 0
    for slope, weight in sorted(slopes):
        seen += weight
        if seen >= half:
            return max(0, slope)
    return MULTIPROCESSOR


def _own(rows: Sequence[LateRow], name: str, classes: Mapping[Class, Prior], without: str | None) -> int:
    """What starts of a model type keep beside everything else, in thousandths of the batch's hidden states; 0
    where none was read."""

    def kept(row: LateRow) -> int:
        line = graph_line(row.shape, row.load, row.known, "")
        graphs = row.graphs - (line.bytes if line is not None else 0)
        hidden = row.load.max_num_batched_tokens * row.shape.hidden_size * row.shape.element_bytes
        return (row.rest + graphs - classes[row.group].amount) * 1000 // hidden

    mine = [row for row in rows if row.row.model.model_type == name and row.release < _PASS_COUNTED]
    return max(0, _middle(by_family(mine, kept), 0, without))


def _estimated(row: LateRow) -> bool:
    """Rows whose V1 runner printed its estimate: memory of its own, nothing that only their type has."""
    odd = row.board == UNIFIED or row.row.model.model_type in ODD or row.load.indexed
    return row.runner == V1 and not odd and row.row.raw["cudagraph_estimated_gib"] is not None


def _one_graph(row: LateRow) -> int:
    return max(0, (row.row.printed("cudagraph_estimated_gib") or 0) - row.buffers) // row.captured


def _measured(row: LateRow) -> bool:
    """From 0.27 on the printed peak has the graphs in it."""
    return row.runner == V2 and row.release >= MEASURED and row.row.raw["activation_peak_gib"] is not None


def _v2_graph(row: LateRow) -> int:
    """The estimate where a log has it, else what the printed peak has beyond the predicted one."""
    graphs = row.row.printed("cudagraph_estimated_gib")
    if graphs is None:
        peak = activation_peak(row.shape, row.load, row.known) + row.compiled
        graphs = (row.row.printed("activation_peak_gib") or 0) - peak
    return max(0, graphs - row.buffers) // row.captured


def _split_graph(row: LateRow) -> int:
    """Without what FlashAttention 3's partial sums add."""
    return max(0, _v2_graph(row) - graph_sums(row.load))


def _drafted(row: LateRow) -> bool:
    return row.load.reads_hidden and row.board != UNIFIED and not row.shape.is_multimodal


def _draft_copies(row: LateRow) -> int:
    """Of what is left beside the lines that a start without a draft has."""
    hidden = row.load.max_num_batched_tokens * row.shape.hidden_size * row.shape.element_bytes
    bare = replace(row.known, draft_copies_milli=0)
    line = compile_line(row.shape, row.load, bare)
    peak = activation_peak(row.shape, row.load, bare) + (line.bytes if line is not None else 0)
    return max(0, (row.left - peak - row.graphs - PRIORS[ONE].amount) * 1000 // hidden)


def late_report(rows: Sequence[LateRow]) -> list[str]:
    """Leave one family out: constants without it against its rows, in GiB of the rest."""
    lines = []
    for family in sorted({row.family for row in rows}):
        fitted = fit_late(rows, without=family)
        own = [row for row in rows if row.family == family and row.release >= SINCE]
        wrong = [(row.rest - fitted.classes[row.group].amount) / GIB for row in own]
        if not own:
            continue
        spans = f"{min(wrong):+.2f} … {max(wrong):+.2f}"
        lines.append(f"without {family}: its {len(own)} starts keep {spans} GiB more than predicted")
    return lines
