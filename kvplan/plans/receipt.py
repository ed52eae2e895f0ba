"""A receipt: what a validation predicted and measured, on which hardware, for which plan.

``digest`` is the SHA-256 of the receipt's canonical JSON without that key: it shows an edited figure. It is
no signature: who can write the file can compute it anew.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.plans.plan import SIMULATED, Plan
from kvplan.record import Json, dumped, exact, field, field_names, record
from kvplan.settings import Settings

_AROUND = ("max_cost_per_hour", "shm_bytes")
"""Settings around the GPUs, which no validation measures."""
_SIMULATED = (*SIMULATED, "ttft_percentile", "tpot_percentile")
"""Requirements of a simulation, which no validation measures."""
_TRACE = ("trace", "trace_format", "trace_columns", "trace_block", "burstiness", "acceptance", "seed")
"""Where the lengths were read, how arrivals are drawn: the lengths and the rate count."""

RECEIPT_FORMAT = "receipt/v2"
FIRST_FORMAT = "receipt/v1"
"""Receipts of before: no figure has a class, and ``confirmed`` says that no figure that decides differs."""
PROOF, REHEARSAL = "proof", "rehearsal"
CONFIRMED, REFUTED, STOPPED = "confirmed", "refuted", "stopped"
CONSISTENT = "self-consistent"
"""As a verdict: nothing differs, and nothing was measured against a prediction of another origin."""
REPORTED = "reported"
CLASSES = (CONFIRMED, CONSISTENT, REPORTED)
"""Classes of proof, best first."""
HOLDS = (CONFIRMED, CONSISTENT)
"""Verdicts of a validation that ended and refuted nothing."""


@record()
class Figure:
    """One figure, predicted and measured."""

    name: str
    unit: str
    """bytes, blocks, requests, tokens, bytes_per_second, or count"""
    predicted: int | None
    measured: int | None
    allowed_ppm: int | None = None
    """how far the measurement may lie from the prediction, in millionths of the prediction; None where the
    figure is only reported"""
    stage: str = ""
    """where it was measured"""
    rank: int | None = None
    """None = of the whole plan"""
    independent: bool = False
    """what measured it does not share the formula that predicted it"""
    low: int | None = None
    """low, high: the interval in which an estimate lies; None where the prediction is one number"""
    high: int | None = None

    @property
    def evidence(self) -> str:
        """Its class: confirmed (measured against an independent prediction), self-consistent (kvplan's own
        arithmetic on both sides) or reported (decides nothing)."""
        if self.allowed_ppm is None:
            return REPORTED
        return CONFIRMED if self.independent else CONSISTENT

    @property
    def agrees(self) -> bool:
        """Whether the measurement is within what is allowed; a figure that is only reported agrees."""
        if self.allowed_ppm is None:
            return True
        if self.predicted is None or self.measured is None:
            return False
        low = self.predicted if self.low is None else self.low
        high = self.predicted if self.high is None else self.high
        off = max(low - self.measured, self.measured - high, 0)
        return off * 1_000_000 <= self.allowed_ppm * abs(self.predicted)


@record()
class Receipt:
    """One validation."""

    plan_hash: str
    plan_name: str
    model_id: str
    model_digest: str
    engine: str
    engine_version: str
    kvplan_version: str
    kind: str
    """``proof`` (on a GPU) or ``rehearsal`` (host memory: layout and arithmetic, never capacity)"""
    created: str
    """UTC, ISO 8601 with Z"""
    hardware: Json = field(default_factory=dict, hash=False)
    settings: Json = field(default_factory=dict, hash=False)
    figures: tuple[Figure, ...] = ()
    verdict: str = CONFIRMED
    stopped_at: str | None = None
    """the stage at which it ended early"""
    notes: tuple[str, ...] = ()
    stopped_by: str | None = None
    """time, memory, signal or fault"""
    attention: tuple[Json, ...] = field(default=(), hash=False)
    """each check with its kernel, error, tolerance and note"""
    engine_run: Json = field(default_factory=dict, hash=False)
    """where an engine measured, what ran (its version, torch's, the device, its settings), else empty"""
    run: Json = field(default_factory=dict, hash=False)
    """how it came about: kvplan's commit, seconds, variables; empty in receipts of before"""
    format: str = RECEIPT_FORMAT
    """the layout of the file that it was read from"""

    @property
    def has_classes(self) -> bool:
        """Whether its figures say what they are worth: not in a receipt of before."""
        return self.format != FIRST_FORMAT

    @property
    def confirmed_by(self) -> tuple[str, ...]:
        """Figures that were measured against an independent prediction and agree, on all ranks."""
        if not self.has_classes:
            return ()
        first = [one for one in self.figures if one.evidence == CONFIRMED]
        wrong = {one.name for one in first if not one.agrees}
        return tuple(dict.fromkeys(one.name for one in first if one.name not in wrong))

    def model_dump(self) -> dict[str, Any]:
        """The receipt file's JSON, digest last."""
        names = ("name", "unit", "predicted", "measured", "allowed_ppm", "stage", "rank")
        body: dict[str, Any] = {
            "kvplan": self.format,
            "plan_hash": self.plan_hash,
            "plan_name": self.plan_name,
            "model": {"id": self.model_id, "digest": self.model_digest},
            "engine": {"name": self.engine, "version": self.engine_version},
            "kvplan_version": self.kvplan_version,
            "kind": self.kind,
            "created": self.created,
            "hardware": dict(self.hardware),
            "settings": dict(self.settings),
            "figures": [
                {name: getattr(figure, name) for name in names}
                | ({"class": figure.evidence} if self.has_classes else {})
                | {name: end for name in ("low", "high") if (end := getattr(figure, name)) is not None}
                for figure in self.figures
            ],
            "verdict": self.verdict,
            **({"confirmed_by": list(self.confirmed_by)} if self.has_classes else {}),
            "stopped_at": self.stopped_at,
            "notes": list(self.notes),
        }
        # Receipts of before have neither: what is not there is not written, so that they stay what they were.
        if self.stopped_by is not None:
            body["stopped_by"] = self.stopped_by
        if self.attention:
            body["attention"] = [dict(one) for one in self.attention]
        if self.engine_run:
            body["engine_run"] = dict(self.engine_run)
        if self.run:
            body["run"] = dict(self.run)
        return {**body, "digest": digest_of(body)}


def receipt_from(data: Json) -> Receipt:
    """A receipt file's JSON as values; its layout is the caller's to check. Raises KeyError, TypeError."""
    model, engine = data["model"], data["engine"]
    return Receipt(
        plan_hash=data["plan_hash"],
        plan_name=data["plan_name"],
        model_id=model["id"],
        model_digest=model["digest"],
        engine=engine["name"],
        engine_version=engine["version"],
        kvplan_version=data["kvplan_version"],
        kind=data["kind"],
        created=data["created"],
        hardware=data["hardware"],
        settings=data["settings"],
        figures=tuple(_figure(entry) for entry in data["figures"]),
        verdict=data["verdict"],
        stopped_at=data["stopped_at"],
        notes=tuple(data["notes"]),
        stopped_by=data.get("stopped_by"),
        attention=tuple(data.get("attention", ())),
        engine_run=data.get("engine_run") or {},
        run=data.get("run") or {},
        format=data["kvplan"],
    )


_OF_SPEC = ("hardware.memory_nvml_bytes", "hardware.compute_capability", "hardware.unified_memory")
"""Facts of a GPU that its spec file has, too."""
_BOUND = (
    "kvplan", "plan_hash", "model.id", "model.digest", "engine.name", "engine.version", "kind", "verdict",
    "confirmed_by",
    "hardware.gpu", "hardware.memory_total_bytes", *_OF_SPEC, "engine_run.name", "engine_run.version",
    "engine_run.device", "engine_run.layers",
)  # fmt: skip
OF_REQUESTS = ("kv_cache_memory", "tokens", "encoder_tokens")
"""Beside the engine's settings in a receipt: the pool, held against the budget, and the request's lengths,
from which the requests follow that are held against the plan's."""
_AUTO = "auto"


_BOUND_FIGURES = (
    "num_blocks", "weights_bytes", "kv_pool_low_bytes",
    "engine_num_blocks", "engine_weights_bytes", "engine_pool_bytes",
)  # fmt: skip
_BOUND_SETTINGS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")


class Facts(NamedTuple):
    """A receipt's facts by their places, a figure by its name (and rank)."""

    bound: tuple[str, ...]
    """what a check computes anew from the plan: with another value it does not pass, whatever the digest"""
    paired: tuple[str, ...]
    """figures whose both sides stand in the receipt: with another value on one side it does not pass"""
    said: tuple[str, ...]
    """what the receipt alone says"""


def _by_figure(receipt: Receipt, names: dict[str, bool]) -> list[str]:
    """Figures with both sides in the receipt; the others go into names."""
    paired: list[str] = []
    for one in receipt.figures:
        rank = "" if one.rank is None else f"[{one.rank}]"
        named = one.name.removeprefix("engine_") in _BOUND_SETTINGS or one.name in _BOUND_FIGURES
        if one.evidence == REPORTED or named:
            names[f"figures.{one.name}{rank}"] = one.evidence != REPORTED
        else:
            paired.append(f"figures.{one.name}{rank}")
    return paired


def _places(key: str, value: object) -> list[str]:
    """A fact, or those of a table; an engine's settings have places of their own."""
    if not isinstance(value, dict):
        return [key]
    return [f"{key}.{one}" for one in value if (key, one) != ("engine_run", "settings")]


def facts_of(receipt: Receipt) -> Facts:
    """Which facts of a receipt are bound: the plan's and the model's hash, engine and release, the GPU by its
    spec and memory, settings, blocks, weights and pool. Figures that decide have two sides. Drivers,
    dates and figures that are only reported are bound to nothing: only a signature over the file would."""
    body = receipt.model_dump()
    resolved = {name for name in receipt.settings if name not in OF_REQUESTS}
    names: dict[str, bool] = {}
    for key, value in body.items():
        if key in ("figures", "digest"):
            continue
        for name in _places(key, value):
            names[name] = name in _BOUND or name.removeprefix("settings.") in resolved
    told = {f"hardware.{name}" for name, value in receipt.hardware.items() if value is not None}
    names |= {name: name in told for name in _OF_SPEC if name in names}
    names["hardware.name"] = bool(receipt.engine_run)
    for name, value in (receipt.engine_run.get("settings") or {}).items():
        names[f"engine_run.settings.{name}"] = name in resolved and value != _AUTO
    paired = _by_figure(receipt, names)
    bound = tuple(name for name, held in names.items() if held)
    return Facts(bound, tuple(paired), tuple(name for name, held in names.items() if not held))


def _figure(entry: Json) -> Figure:
    plain = {name: value for name, value in entry.items() if name != "class"}
    return Figure(**plain, independent=entry.get("class") == CONFIRMED)


def digest_of(body: Json) -> str:
    """``sha256:`` and the digest of the canonical JSON (sorted keys, no blanks) without ``digest``."""
    plain = {key: value for key, value in body.items() if key != "digest"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class ReadReceipt(NamedTuple):
    """A receipt, and whether its digest is that of its content."""

    receipt: Receipt
    intact: bool


def model_digest(model: Model, terms: Any) -> str:
    """A hash of the model's id and of the terms that its layers store (``SizeResult.layers``)."""
    layers = [
        {
            "count": entry.count,
            "family": entry.layer.family,
            "terms": [dumped(term) for term in entry.terms],
        }
        for entry in terms
    ]
    return digest_of({"id": model.id, "layers": layers})


def plan_hash(plan: Plan, digest: str) -> str:
    """A hash of model (its digest), engine, GPUs, every setting, the load and what is required.

    Names, paths, comments, tolerance and evidence are left out: they change nothing on the GPU.
    """
    workload, require, settings = plan.workload, plan.require, plan.settings
    said = _plain(settings, "answer_tokens", "gpus", "own", "spread", "starts")
    # A switch of two states when receipts were first written: what nobody asked for was said to be false.
    manager = "disable_hybrid_kv_cache_manager"
    said[manager] = {None: False, False: "enabled"}.get(said[manager], said[manager])
    return digest_of(
        {
            "model": digest,
            "engine": plan.engine,
            "gpus": plan.gpus,
            "settings": {**said, "engine_options": _plain(settings.own.pairs)},
            "workload": None if workload is None else _plain(workload, *_TRACE),
            "require": _plain(require, *_AROUND, *_SIMULATED),
        }
    )


def _plain(value: Any, *without: str) -> Any:
    if isinstance(value, Gpu):
        return value.slug
    if isinstance(value, Model):
        return value.id
    if isinstance(value, Fraction):
        return exact(value)
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, Settings) or hasattr(type(value), "_hashed_values"):
        return {
            name: _plain(getattr(value, name)) for name in field_names(type(value)) if name not in without
        }
    return value
