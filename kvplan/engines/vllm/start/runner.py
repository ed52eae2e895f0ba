"""Which of vLLM's two model runners serves: they profile memory differently.

vllm-project/vllm vllm/config/vllm.py, use_v2_model_runner: VLLM_USE_V2_MODEL_RUNNER where it is set (here the
option ``model_runner``), else the release's default for the class, unless a feature is not supported yet.
``data/runners.json`` has a row for every release in which that changed. Features that nothing here can ask
for (plugins, prompt embeddings, dual batch overlap …) are taken as off.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.engines.base import has_kind, parse_version
from kvplan.engines.vllm.classes import class_of, is_within
from kvplan.engines.vllm.options import VllmOptions
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.architectures.config import activation_shape
else:
    activation_shape = later("kvplan.architectures.config", "activation_shape")

FILE = Path(__file__).parents[1] / "data" / "runners.json"
V1, V2 = "v1", "v2"
_STAGES = ("eagle3",)
"""Drafts that the V2 runner did not run beside a pipeline before it served all classes but one release."""
_STAGES_UNTIL = (0, 30)
_MIXED = (0, 26)
"""Since then a DFlash draft with layers of both kinds is run by V2 alone (_dflash_needs_multi_kv_group)."""


@record()
class Row:
    """Releases from ``since`` on; what the words mean stands in the file."""

    since: str
    serves: str
    states: bool
    methods: tuple[str, ...]
    forced: tuple[str, ...]


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """The file's rows, oldest first."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    return tuple(
        Row(
            since=entry["since"],
            serves=entry["serves"],
            states=entry["states"],
            methods=tuple(entry["methods"]),
            forced=tuple(entry["forced"]),
        )
        for entry in raw
    )


@lru_cache(maxsize=64)
def row_of(version: str) -> Row:
    """The row in force in a release."""
    asked, table = parse_version(version), rows()
    return next((row for row in reversed(table) if asked >= parse_version(row.since)), table[0])


def runner_of(model: Model, settings: Layout, version: str) -> str:
    """``v1`` or ``v2``."""
    asked = VllmOptions.of(settings).model_runner
    if asked in (V1, V2):
        return asked
    row = row_of(version)
    drafted = settings.speculative_method if settings.num_speculative_tokens else None
    if drafted in row.forced or (
        drafted == "dflash" and _mixed(settings) and parse_version(version) >= _MIXED
    ):
        return V2
    if not _by_default(model, settings, row, version):
        return V1
    if drafted is not None and drafted not in row.methods:
        return V1
    if drafted in _STAGES and settings.pipeline_parallel_size > 1 and parse_version(version) < _STAGES_UNTIL:
        return V1
    return V2


def _mixed(settings: Layout) -> bool:
    """Whether some of the draft's layers have a window and some have none."""
    draft = settings.speculative_model
    return draft is not None and has_kind(draft, Kind.SLIDING) and has_kind(draft, Kind.FULL)


def _by_default(model: Model, settings: Layout, row: Row, version: str) -> bool:
    """Whether the class is one that the V2 runner serves unasked."""
    if row.serves in ("none", "all"):
        return row.serves == "all"
    known = class_of(model.architecture)
    amd = settings.gpu is not None and settings.gpu.vendor.lower() == "amd"
    named = is_within(version, known.v2_runner)
    named = named and not (amd and known.v2_runner_not_on_amd)
    states = has_kind(model, Kind.STATE)
    if states and not (named and row.states):
        return False
    if row.serves == "dense":
        return named or not activation_shape.num_experts(model)
    plain = (
        not activation_shape.num_experts(model) and not model.quantization and settings.quantization is None
    )
    return named and (row.serves == "classes" or plain)
