"""Start-ups from 0.20 on: what is left of each beside the lines that are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.budget import choose
from kvplan.engines.budget.parts import KEPT_BY_DRIVER
from kvplan.engines.vllm.memory.coefficients import (
    UNIFIED,
    board_of,
    parts,
    vllm_coefficients,
)
from kvplan.engines.vllm.memory.cold_compile import compile_line
from kvplan.engines.vllm.memory.cuda_graphs import Captured, captured, graph_line
from kvplan.engines.vllm.memory.profile_peak import H100_MULTIPROCESSORS, activation_peak, kernel_buffer
from kvplan.engines.vllm.memory.profile_settings import load_of
from kvplan.engines.vllm.memory.rank_budget import (
    fusion_workspace,
    input_buffers,
    kept_by_sampler,
    of_multiprocessors,
)
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.errors import KvplanError
from kvplan.own_options import OwnOptions
from kvplan.results import SizeResult
from kvplan.settings import Settings
from scripts.field_rows import Row
from scripts.fitting.late_classes import (
    CONSUMED,
    ONE,
    ONE_CARD,
    ONE_CARD_V2,
    ONE_CONSUMED,
    ONE_CONSUMED_V2,
    ONE_V2,
    SINCE,
    SLOTS,
    Class,
)

ODD = ("deepseek_v4",)
"""Model types with buffers of their own that no line has."""
APART: Mapping[str, str] = yaml.safe_load((Path(__file__).parent / "apart.yaml").read_text(encoding="utf-8"))
"""Rows from which no constant of a class is learnt → why."""


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
        """What is kept, of a GPU with the multiprocessors of an H100."""
        return self.kept - of_multiprocessors(self.load, self.known)

    @property
    def kept(self) -> int:
        """Of logs that tell what stays beside the weights by mem_get_info, that; else what is left."""
        fused = fusion_workspace(self.shape, self.load, self.known)
        told = self.row.printed("non_torch_gib") if self.release >= CONSUMED else None
        if told is not None:
            return told - self._stays - fused
        peak = activation_peak(self.shape, self.load, self.known)
        return self.left - peak - self.compiled - self.graphs - fused - self._states

    @property
    def _states(self) -> int:
        """What the runner made between loading and profiling."""
        line = kept_by_sampler(self.shape, self.load, self.known)
        made = input_buffers(self.shape, self.load, self.known)
        return made + (line.bytes if line is not None else 0)

    @property
    def _stays(self) -> int:
        """What other lines have of it: the runner's tables, the experts' workspace, the buffer of the kernel
        that samples."""
        kept = activation_peak(self.shape, self.load, self.known)
        kept -= activation_peak(replace(self.shape, experts_per_token=0), self.load, self.known)
        return self._states + kept + kernel_buffer(self.shape, self.load, self.known)

    @property
    def multiprocessors(self) -> int:
        """Of the GPU; an H100's where nobody says."""
        return self.load.multiprocessors or H100_MULTIPROCESSORS

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
        "own": OwnOptions.of(
            {
                "compile_cache": state,
                "language_model_only": bool(options.get("language_model_only")),
                "flashinfer": options.get("flashinfer", "installed"),
                **{name: value for name, value in options.items() if name == "max_cudagraph_capture_size"},
            }
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


def is_plain(row: LateRow) -> bool:
    """Whether the other lines of the row are known: text, no draft, memory of its own, the release's sampler
    and batch."""
    odd = row.row.model.model_type in ODD or row.row.id in APART
    return not (row.shape.is_multimodal or row.load.drafts or row.board == UNIFIED or odd)
