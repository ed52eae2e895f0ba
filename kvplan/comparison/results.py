"""The answer of ``compare``: one line a figure, and whether prediction and report agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from fractions import Fraction
from typing import Any

from kvplan.engines.observed import Figure
from kvplan.record import record
from kvplan.results import SCHEMA_VERSION, EngineRef, ModelRef

Number = int | Fraction


LABELS = {
    "weights_bytes": "weights",
    "activation_peak_bytes": "activation peak",
    "non_torch_bytes": "non-torch memory",
    "cuda_graph_bytes": "CUDA graphs",
    "kv_pool_bytes": "KV pool",
    "available_kv_bytes": "KV pool",
    "kv_bytes": "KV cache",
    "block_size": "tokens a block",
    "padding_layers": "padding layers",
    "num_blocks": "blocks",
    "kv_tokens": "tokens",
    "max_concurrency": "max concurrency",
    "mamba_slots": "state slots",
    "swa_tokens": "window tokens",
    "running_requests": "max requests",
    "mamba_conv_bytes": "conv states",
    "mamba_ssm_bytes": "recurrent states",
    "needed_kv_bytes": "one full request",
    "estimated_max_model_len": "longest that fits",
    "starts": "starts",
}
"""What people call the figures."""


class Verdict(str, Enum):
    """Whether the prediction is what the engine said."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_COMPARE = "cannot compare"


@record()
class ComparedRow:
    """One figure. predicted is from the nearest value of what was printed; low … high is what its rounding,
    or an estimate, leaves open.

    unit: "bytes", "tokens", "blocks", "layers", "slots", "requests", "cells", "×" or "" (a yes or no).
    predicted None: nothing to compare with. agrees: one and the same pool prints this and every other figure
    that agrees.
    """

    name: str
    unit: str
    reported: Number
    printed: str
    predicted: Number | None = None
    low: Number | None = None
    high: Number | None = None
    agrees: bool = False
    line: int = 0
    explanation: str | None = None

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)

    @property
    def difference(self) -> Number | None:
        """predicted - reported; None for a yes or no."""
        return None if self.predicted is None or not self.unit else self.predicted - self.reported

    @property
    def ratio(self) -> Fraction | None:
        """predicted / reported; None where nothing was predicted or 0 reported."""
        if self.predicted is None or not self.unit or not self.reported:
            return None
        return Fraction(self.predicted) / Fraction(self.reported)

    def off_by(self) -> Fraction:
        """Distance of the report from low … high, as a share of what was reported; 0 where they agree."""
        if self.agrees or self.low is None or self.high is None:
            return Fraction(0)
        gap = max(self.low - self.reported, self.reported - self.high, 0)
        return Fraction(gap) / abs(Fraction(self.reported)) if self.reported else Fraction(int(gap > 0))

    def model_dump(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "predicted": _plain(self.predicted),
            "predicted_low": _plain(self.low),
            "predicted_high": _plain(self.high),
            "reported": _plain(self.reported),
            "difference": _plain(self.difference),
            "ratio": None if self.ratio is None else float(self.ratio),
            "agrees": self.agrees if self.predicted is not None else None,
            "explanation": self.explanation,
        }


def row_of(
    name: str,
    unit: str,
    figure: Figure,
    predicted: Number | None,
    low: Number | None = None,
    high: Number | None = None,
) -> ComparedRow:
    """A row out of a printed figure; without low and high the prediction is one number."""
    low, high = (predicted if low is None else low), (predicted if high is None else high)
    agrees = low is not None and high is not None and low <= figure.high and figure.low <= high
    return ComparedRow(name, unit, figure.value, figure.printed, predicted, low, high, agrees, figure.line)


@record()
class Comparison:
    """Prediction beside report. settings: as the engine's rules resolved them; recognised: those that the
    log, metrics or user named, with where.
    """

    model: ModelRef | None
    engine: EngineRef
    settings: Mapping[str, Any]
    recognised: Mapping[str, str]
    rows: tuple[ComparedRow, ...]
    verdict: Verdict
    reason: str
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def agrees(self) -> bool:
        return self.verdict is Verdict.AGREES

    def row(self, name: str) -> ComparedRow:
        """The row of that name; KeyError where the engine said nothing of it."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def model_dump(self) -> dict[str, Any]:
        """The JSON of ``kvplan compare --json``."""
        return {
            "schema_version": self.schema_version,
            "model": None if self.model is None else {"id": self.model.id, "source": self.model.source},
            "engine": {"name": self.engine.name, "version": self.engine.version},
            "settings": dict(self.settings),
            "recognised": dict(self.recognised),
            "rows": [row.model_dump() for row in self.rows],
            "verdict": self.verdict.value,
            "reason": self.reason,
            "notes": list(self.notes),
        }


def _plain(value: Number | None) -> int | float | None:
    if value is None or isinstance(value, int):
        return value
    return float(value)
