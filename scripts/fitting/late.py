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
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.budget import choose
from kvplan.engines.budget.parts import KEPT_BY_DRIVER
from kvplan.engines.vllm.boards import (
    BLACKWELL,
    GEFORCE,
    NVSWITCH,
    OLDER,
    OTHER,
    PCIE,
    RACK,
    UNIFIED,
    board_of,
)
from kvplan.engines.vllm.budget import load_of
from kvplan.engines.vllm.coefficients import parts, vllm_coefficients
from kvplan.engines.vllm.cold_compile import compile_line
from kvplan.engines.vllm.graph_memory import graph_line, graph_sums
from kvplan.engines.vllm.graphs import Captured, captured
from kvplan.engines.vllm.memory import kept_by_sampler
from kvplan.engines.vllm.non_torch import fusion_workspace
from kvplan.engines.vllm.profile_peak import activation_peak
from kvplan.engines.vllm.runner import V1, V2, runner_of
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.units import GIB, MIB
from scripts.field_rows import Row

SINCE, CONSUMED, MEASURED = (0, 20), (0, 27), (0, 29)
"""Graphs are inside; what stays is told by mem_get_info; the V2 runner estimates its graphs."""
COMPILE_COPIES = 3_300
"""Hidden states beside the embedding while kernels are benchmarked: cold and warm starts of one server."""
FOUR_RANKS = 4
H200_MULTIPROCESSORS = 132
"""vllm/v1/sample/ops/topk_topp_triton.py; starts without FlashInfer that tell what stays are on one."""
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
    ONE_V2: Prior(90 * MIB, 80 * MIB, 128 * MIB),
    ONE_CONSUMED: Prior(180 * MIB, 160 * MIB, 160 * MIB),
    ONE_CONSUMED_V2: Prior(110 * MIB, 128 * MIB, 160 * MIB),
    ONE_CARD: Prior(256 * MIB, 176 * MIB, 352 * MIB),
    ONE_CARD_V2: Prior(96 * MIB, 96 * MIB, 512 * MIB),
    Class("0.20", NVSWITCH, several=True): Prior(700 * MIB, 320 * MIB, 1300 * MIB),
    Class("0.20", BLACKWELL, several=True): Prior(1000 * MIB, 500 * MIB, 1500 * MIB),
    Class("0.20", RACK, several=True): Prior(1500 * MIB, 600 * MIB, 600 * MIB),
    Class("0.20", PCIE, several=True): Prior(700 * MIB, 450 * MIB, 500 * MIB),
    Class("0.20", OLDER, several=True): Prior(256 * MIB, 176 * MIB, 600 * MIB),
    Class("0.20", GEFORCE, several=True): Prior(256 * MIB, 176 * MIB, 600 * MIB),
    Class("0.20", UNIFIED, several=True): Prior(700 * MIB, 500 * MIB, 1500 * MIB),
    Class("0.20", OTHER, several=True): Prior(1000 * MIB, 500 * MIB, 1500 * MIB),
    **{
        Class("0.27", board, several=True): Prior(256 * MIB, 256 * MIB, 512 * MIB)
        for board in (NVSWITCH, BLACKWELL, RACK, PCIE, OLDER, GEFORCE, UNIFIED, OTHER)
    },
}
"""Several ranks: NCCL, custom and symmetric-memory all-reduce (vllm/distributed/device_communicators); the
high side of NVSwitch boards is what 0.19 printed on H100; GeForce cards: 0.25 GiB printed on two RTX 4090
(vllm-project/vllm#13061), the high side is that of cards that reach each other. A card in a slot: no start
prints the line; the sides are what a report of 0.26 on an RTX PRO 6000 leaves (its batch is not stated) and a
context without more. The V2 runner has on a card what it has on a board (a card of 16 GB prints 0.07 GiB with
0.26), and the same high end. Since 0.27 ranks keep less: 0.05 GiB of two, 0.08 to 0.5 of four and eight."""
_LONE = ((ONE, ONE, V1), (ONE_V2, ONE_V2, V2), (ONE_CONSUMED, ONE, V1), (ONE_CONSUMED_V2, ONE_V2, V2))
"""Classes of one GPU, the one that the constants of several count from, and the runner."""
READ = {NVSWITCH, RACK, PCIE, OLDER, GEFORCE}
"""Boards of several GPUs of which somebody's start-up was read."""
SLOTS = (PCIE, OLDER, GEFORCE)
UNREAD_HIGH = 2500 * MIB
"""One card of a vendor that no constant was learnt of: an MI300X kept 2 GiB beside its weights with 0.29."""
GRAPH_V1, GRAPH_V2, GRAPH_SPLIT, GRAPH_LATENT = 184 * 1024, 157 * 1024, 126 * 1024, 512 * 1024
GRAPH_RANKS, DRAFT_COPIES = 1_400, 5_000


def _by_ranks(entry: Class, runner: str, alone: int, several: int) -> Iterable[tuple[int, int]]:
    """(ranks, what they keep). What was read of cards in slots is of four RTX PRO 6000 with three peers each;
    two of them keep what two GeForce cards print. No start of the V1 runner tells two from four. Since 0.27
    two keep what one does."""
    if parts(entry.since) >= CONSUMED:
        return (1, alone), (FOUR_RANKS, several)
    if entry.board == PCIE and runner == V2:
        return (1, alone), (2, PRIORS[Class("0.20", GEFORCE, several=True)].amount), (FOUR_RANKS, several)
    return (1, alone), (2, several)


class Late(NamedTuple):
    """What the rows say: constants with margins by class, and what one graph and one draft take."""

    classes: dict[Class, Prior]
    graph_v1: int
    graph_ranks: int
    graph_v2: int
    graph_latent: int
    graph_split: int
    draft_copies: int
    compile_copies: int
    own: dict[str, int]

    def own_rows(self) -> list[dict[str, Any]]:
        """Model types with buffers that no line describes: what their starts keep, half of it either way."""
        amounts = [[name, amount] for name, amount in sorted(self.own.items())]
        return [
            {"since": "0.8", "own_copies_milli": [], "source": "no start was read"},
            {"since": "0.20", "own_copies_milli": amounts, "source": "left beside the other lines"},
            {
                "since": "0.23",
                "own_copies_milli": [],
                "source": "not compiled any more: its pass is counted (compressed_pass.py)",
            },
        ]

    def non_torch_rows(self) -> list[dict[str, Any]]:
        """Rows of the coefficient file: one GPU first, then several by board."""
        found: list[dict[str, Any]] = []
        for release, before, runner in _LONE:
            one, since = self.classes[release], release.since
            for entry in (entry for entry in PRIORS if entry.several and entry.since == since):
                board, slot = self.classes[entry], entry.board in SLOTS
                later = one.amount - self.classes[before].amount
                card = self.classes[ONE_CARD_V2 if runner == V2 else ONE_CARD]
                alone = card if slot else self.classes[before]
                if entry.board == OTHER:
                    alone = alone._replace(low=board.low, high=UNREAD_HIGH)
                found.append(
                    {
                        "since": release.since,
                        "runner": runner,
                        "board": entry.board,
                        "calibrated": entry.board in READ or entry.board == UNIFIED,
                        "non_torch_by_ranks": [
                            [ways, max(amount, alone.amount + later)]
                            for ways, amount in _by_ranks(entry, runner, alone.amount + later, board.amount)
                        ],
                        "non_torch_pipeline": alone.amount + later,
                        "one_low": max(alone.low, one.low),
                        "one_high": max(alone.high, one.high),
                        "several_low": board.low,
                        "several_high": board.high,
                        "fusion": True,
                        "fusion_stages": parts(release.since) >= CONSUMED,
                        "source": "what start-ups left beside the other lines",
                    }
                )
        return found

    def graph_rows(self) -> list[dict[str, Any]]:
        """Rows of the coefficient file."""
        wide = {"graph_margin": 64 * MIB, "graph_margin_milli": 400, "graph_low_milli": 650}
        unread = {"board": OTHER, "graph_margin": GIB, "source": "no estimate of such cards was read"}
        return [
            {
                "since": "0.20",
                "runner": V1,
                "graph_layer_bytes": self.graph_v1,
                **wide,
                "source": "estimated and taken off: the first of each kind, and the second for every other",
            },
            *(
                {
                    "since": "0.20",
                    "board": board,
                    "graph_ranks_milli": self.graph_ranks,
                    "source": "estimates of four ranks of one rack; eight of an NVSwitch board had none more",
                }
                for board in BLACKWELLS
            ),
            {"since": "0.20", **unread},
            {"since": "0.28", "graphs_wide": True, "source": "1,024 tokens on data-centre Blackwell"},
            {
                "since": "0.29",
                "runner": V2,
                "graph_layer_bytes": self.graph_v2,
                "graph_latent_layer_bytes": self.graph_latent,
                "graph_split_layer_bytes": self.graph_split,
                **wide,
                "source": "measured piecewise graphs, extrapolated full ones",
            },
            {
                "since": "0.29",
                "board": UNIFIED,
                "graph_latent_layer_bytes": 0,
                "source": "measured in memory that the host shares",
            },
            {"since": "0.29", "graphs_by_request": True, "source": "decode batches have sizes of their own"},
            {"since": "0.29", **unread},
        ]


class LateRow:
    """One start with its lines as predicted; what the log told of runner and cache is used."""

    def __init__(self, row: Row) -> None:
        assert row.version is not None
        self.row, self.family = row, row.family
        self.release, self.board = parts(row.version), board_of(row.gpu)
        stated = str(row.raw.get("model_runner") or "")
        told = {"model_runner": stated.lower()} if stated in ("V1", "V2") else {}
        result = _answer(row, told)
        budget = result.budget
        if budget is None:
            raise KvplanError("no-budget", "; ".join(result.warnings))
        settings = Settings(**_settings(row, result.settings))
        choice = choose(f"vllm@{row.version}")
        self.shape = shape_of(row.model, 2)
        load = load_of(
            row.model,
            settings,
            choice.version,
            self.shape,
            int(result.settings["max_num_seqs"]),
            int(result.settings["max_num_batched_tokens"]),
            int(result.settings["max_model_len"]),
        )
        self.load = load
        self.runner = stated.lower() if told else runner_of(row.model, settings, choice.version)
        self.known = vllm_coefficients(self.release, self.runner, self.board)
        own = {line.name: line.bytes for line in budget.lines}
        weights = row.printed("weights_gib") or own["weights"] + own.get("rotary tables", 0) + own.get(
            "beside the weights", 0
        )
        pool = row.printed("available_kv_gib")
        assert pool is not None
        held = own.get("page cache, loaders", 0) + own.get(KEPT_BY_DRIVER, 0)
        self.left = budget.total_bytes - budget.unused_bytes - weights - pool - held
        self.several = load.tensor_parallel_size * load.pipeline_parallel_size > 1

    @property
    def graphs(self) -> int:
        """Printed, else predicted."""
        line = graph_line(self.shape, self.load, self.known, "")
        return self.row.printed("cudagraph_estimated_gib") or (line.bytes if line else 0)

    @property
    def captured(self) -> int:
        """Graphs times layers."""
        return self.sizes.number * self.shape.num_layers

    @property
    def sizes(self) -> Captured:
        """Piecewise and full graphs."""
        load = self.load
        batch = load.max_num_seqs, load.max_num_batched_tokens, load.drafts
        return captured(*batch, largest=load.largest_graph, uniform=load.flashinfer.uniform)

    @property
    def buffers(self) -> int:
        """What attention's kernels made while graphs were profiled."""
        sums = self.sizes.largest_full * self.load.split_bytes if self.known.graph_split_layer_bytes else 0
        return self.load.flashinfer.kept(self.load.max_num_batched_tokens, self.sizes.full) + sums

    @property
    def compiled(self) -> int:
        """What a cold cache took."""
        line = compile_line(self.shape, self.load, self.known)
        return line.bytes if line is not None else 0

    @property
    def rest(self) -> int:
        """Of logs that tell what stays beside the weights by mem_get_info, that; else what is left."""
        fused = fusion_workspace(self.shape, self.load, self.known)
        told = self.row.printed("non_torch_gib") if self.release >= CONSUMED else None
        if told is not None:
            return told - self._stays - fused
        peak = activation_peak(self.shape, self.load, self.known)
        return self.left - peak - self.compiled - self.graphs - fused - self._states

    @property
    def _states(self) -> int:
        line = kept_by_sampler(self.shape, self.load, self.known)
        return line.bytes if line is not None else 0

    @property
    def _stays(self) -> int:
        """What other lines have of it: the sampler's tables, the experts' workspace, and where FlashInfer
        does not sample the buffer of Triton's kernel, a row of the vocabulary for each multiprocessor."""
        rows = 0 if self.load.fused_sampler else H200_MULTIPROCESSORS
        kept = activation_peak(self.shape, self.load, self.known)
        kept -= activation_peak(replace(self.shape, experts_per_token=0), self.load, self.known)
        return self._states + kept + rows * self.shape.vocab_size * 4

    @property
    def group(self) -> Class:
        """The class that the rest is a constant of."""
        if not self.several and self.board in SLOTS:
            return ONE_CARD_V2 if self.runner == V2 else ONE_CARD
        if not self.several and self.release >= CONSUMED:
            return ONE_CONSUMED_V2 if self.runner == V2 else ONE_CONSUMED
        if not self.several:
            return ONE_V2 if self.runner == V2 else ONE
        return Class("0.27" if self.release >= CONSUMED else "0.20", self.board, several=True)


def _answer(row: Row, told: Mapping[str, str]) -> SizeResult:
    """With the cache's own format where the row's is refused: the budget does not depend on it."""
    try:
        found = row.predict(**told)
    except KvplanError:
        found = None
    if found is not None and found.budget is not None:
        return found
    return row.predict(kv_cache_dtype="auto", **told)


def _settings(row: Row, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The row's settings as values of `Settings`."""
    options = row.options
    cache = str(row.raw.get("compile_cache") or "")
    state = cache if cache in ("cold", "warm") else "unknown"
    return {
        "gpu": row.gpu,
        "tensor_parallel_size": options["tensor_parallel_size"],
        "pipeline_parallel_size": options["pipeline_parallel_size"],
        "kv_cache_dtype": options.get("kv_cache_dtype", "auto"),
        "attention_backend": options.get("attention_backend"),
        "enforce_eager": bool(options.get("enforce_eager")),
        "enable_expert_parallel": bool(options.get("enable_expert_parallel")),
        "speculative_method": options.get("speculative_method"),
        "num_speculative_tokens": options.get("num_speculative_tokens", 0),
        "engine_options": (
            ("compile_cache", state),
            ("language_model_only", bool(options.get("language_model_only"))),
            ("flashinfer", options.get("flashinfer", "installed")),
            *(pair for pair in options.items() if pair[0] == "max_cudagraph_capture_size"),
        ),
    }


def late_rows(rows: Iterable[Row]) -> list[LateRow]:
    """Rows with release, utilisation and pool whose weights are known; of 0.19 those that print an estimate
    of their graphs, which were not taken off yet."""
    found = []
    for row in rows:
        flags = row.raw["flags"] or {}
        if row.version is None or not row.raw["available_kv_gib"]:
            continue
        if parts(row.version) < SINCE and row.raw["cudagraph_estimated_gib"] is None:
            continue
        if flags.get("gpu_memory_utilization") is None or "fixed" in " ".join(flags.get("other") or ()):
            continue
        try:
            found.append(LateRow(row))
        except KvplanError:
            continue
    return found


def _plain(row: LateRow) -> bool:
    """Whether the other lines of the row are known: text, no draft, memory of its own, the release's sampler
    and batch."""
    odd = row.row.model.model_type in _ODD or row.row.id in APART
    return not (row.shape.is_multimodal or row.load.drafts or row.board == UNIFIED or odd)


_PASS_COUNTED = (0, 23)
_ODD = ("deepseek_v4",)
"""Model types with buffers of their own that no line has."""
APART: Mapping[str, str] = yaml.safe_load((Path(__file__).parent / "apart.yaml").read_text(encoding="utf-8"))
"""Rows from which no constant of a class is learnt → why."""


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
    plain = [row for row in rows if _plain(row) and row.release >= SINCE]
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
        own={name: _own(rows, name, classes, without) for name in _ODD},
    )


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
    """Rows whose V1 runner printed its estimate: memory of its own, no states, no buffers of their own."""
    odd = row.board == UNIFIED or row.row.model.model_type in _ODD
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
