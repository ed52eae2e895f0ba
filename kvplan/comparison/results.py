"""The answer of ``compare``: one line a figure, and whether prediction and report agree."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, Literal

from kvplan.engines.observed import Figure
from kvplan.record import Json, field, record, replace
from kvplan.results import SCHEMA_VERSION, Documented, EngineRef, Entry, ModelRef

Number = int | Fraction
JsonNumber = bool | int | float
Unit = Literal["bytes", "tokens", "blocks", "layers", "slots", "requests", "cells", "numbers", "×", "%", ""]


LABELS = {
    "weights_bytes": "weights",
    "activation_peak_bytes": "activation peak",
    "transient_peak_bytes": "peak, graphs",
    "non_torch_bytes": "non-torch memory",
    "cuda_graph_bytes": "CUDA graphs",
    "free_before_bytes": "free before weights",
    "peak_bytes": "peak",
    "compute_bytes": "compute buffer",
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
    "loaded_bytes": "loaded",
    "loaded_gpu_percent": "on the GPU",
    "file_bytes": "file",
    "parameters": "parameters",
    "own_context": "context of the model",
    "embedding_length": "embedding length",
}
"""Display names of the figures."""


class Verdict(str, Enum):
    """Whether the prediction is what the engine said."""

    AGREES = "agrees"
    INSIDE = "inside"
    """the pool is off by more than the tolerance, and the estimate's interval holds it"""
    DIFFERS = "differs"
    CANNOT_COMPARE = "cannot compare"


@record()
class ComparedRow(Entry):
    """One figure."""

    name: str
    unit: Unit
    """empty: a yes or no"""
    exact_reported: Number
    printed: str
    """as the engine wrote it"""
    exact_predicted: Number | None = None
    exact_low: Number | None = None
    exact_high: Number | None = None
    overlaps: bool = False
    """one value is both printed like this and predicted"""
    line: int = 0
    """of the log"""
    explanation: str | None = None
    inside: bool = False
    """off by more than the tolerance, and held by an estimate's interval"""

    _JSON = (
        "name", "unit", "predicted", "predicted_low", "predicted_high", "reported", "difference", "ratio",
        "agrees", "inside", "explanation",
    )  # fmt: skip

    @property
    def predicted(self) -> JsonNumber | None:
        """from the nearest value of what was printed; null: nothing to compare with"""
        return _plain(self.exact_predicted)

    @property
    def predicted_low(self) -> JsonNumber | None:
        """what rounding or an estimate leaves open"""
        return _plain(self.exact_low)

    @property
    def predicted_high(self) -> JsonNumber | None:
        return _plain(self.exact_high)

    @property
    def reported(self) -> JsonNumber:
        return _number(self.exact_reported)

    @property
    def difference(self) -> int | float | None:
        """predicted - reported"""
        if self.exact_predicted is None or not self.unit:
            return None
        return _number(self.exact_predicted - self.exact_reported)

    @property
    def ratio(self) -> float | None:
        """predicted / reported"""
        return None if self.exact_ratio is None else float(self.exact_ratio)

    @property
    def agrees(self) -> bool | None:
        """one pool prints this and every other figure that agrees"""
        return self.overlaps and not self.inside if self.exact_predicted is not None else None

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)

    @property
    def exact_ratio(self) -> Fraction | None:
        if self.exact_predicted is None or not self.unit or not self.exact_reported:
            return None
        return Fraction(self.exact_predicted) / Fraction(self.exact_reported)

    def without_prediction(self, why: str) -> ComparedRow:
        """The same where nothing can be predicted, and the reason."""
        return replace(
            self, exact_predicted=None, exact_low=None, exact_high=None, overlaps=False, explanation=why
        )

    def inside_by(self) -> Fraction:
        """Distance of the report from the likely figure, as a share of what was reported, where it is taken
        because it lies in an estimate's interval."""
        likely, seen = self.exact_predicted, self.exact_reported
        if not self.overlaps or likely is None or self.exact_low == self.exact_high or not seen:
            return Fraction(0)
        return abs(Fraction(likely - seen)) / abs(Fraction(seen))

    def off_by(self) -> Fraction:
        """Distance of the report from low … high, as a share of what was reported; 0 where they agree."""
        low, high, seen = self.exact_low, self.exact_high, self.exact_reported
        if self.overlaps or low is None or high is None:
            return Fraction(0)
        gap = max(low - seen, seen - high, 0)
        return Fraction(gap) / abs(Fraction(seen)) if seen else Fraction(int(gap > 0))


def row_of(
    name: str,
    unit: Unit,
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
class Comparison(Documented):
    """The answer of `kvplan compare --json` and of `kvplan.compare(...).model_dump()`."""

    model: ModelRef | None
    engine: EngineRef
    settings: Json
    """as the engine's rules resolved them"""
    recognised: Mapping[str, str]
    """settings of the log, the metrics or the user, and where"""
    rows: tuple[ComparedRow, ...]
    verdict: Verdict
    reason: str
    notes: tuple[str, ...] = ()
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON = (
        "schema_version",
        "model",
        "engine",
        "settings",
        "recognised",
        "rows",
        "verdict",
        "reason",
        "notes",
    )

    @property
    def agrees(self) -> bool:
        return self.verdict is Verdict.AGREES

    def row(self, name: str) -> ComparedRow:
        """The row of that name; KeyError where the engine said nothing of it."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each figure: ``pandas.DataFrame(found.to_rows())``."""
        names = ("name", "unit", "predicted", "reported", "difference", "agrees", "explanation")
        return [{name: getattr(row, name) for name in names} for row in self.rows]


def _number(value: Number) -> int | float:
    return value if isinstance(value, int) else float(value)


def _plain(value: Number | None) -> int | float | None:
    return None if value is None else _number(value)
