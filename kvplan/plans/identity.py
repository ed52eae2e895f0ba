"""What makes a plan this very plan: a hash of what decides its memory, not of names, comments or layout."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.plans.receipt import digest_of
from kvplan.record import dumped, exact, field_names
from kvplan.settings import Settings


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


_AROUND = ("max_cost_per_hour", "shm_bytes")
"""What surrounds the GPUs: nothing that a validation measures."""
_SIMULATED = ("goodput", "hit_rate", "preemptions", "ttft_seconds", "tpot_seconds")
"""What a simulation is asked for: nothing that a validation measures."""
_TRACE = ("trace", "trace_format", "trace_columns", "trace_block")
"""Where the lengths were read: the lengths themselves count."""


def plan_hash(plan: Plan, digest: str) -> str:
    """A hash of model (its digest), engine, GPUs, every setting, the load and what is required.

    Names, paths, comments, tolerance and evidence are left out: they change nothing on the GPU.
    """
    workload, require, settings = plan.workload, plan.require, plan.settings
    said = _plain(settings, "answer_tokens", "gpus", "own", "spread", "starts")
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
