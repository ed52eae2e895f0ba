"""The JSON of ``kvplan compare --json`` as pydantic models: the schema, and a check that the two agree."""

from __future__ import annotations

from typing import Any, Literal, Optional, Union

from pydantic import Field, TypeAdapter

from kvplan.report.schema import EngineEntry, ModelEntry, _Strict

Number = Union[bool, int, float]


class RowEntry(_Strict):
    """One figure."""

    name: str
    unit: Literal["bytes", "tokens", "blocks", "layers", "slots", "requests", "cells", "×", ""] = Field(
        description="empty: a yes or no"
    )
    predicted: Optional[Number] = Field(description="null: nothing to compare with")  # noqa: UP045
    predicted_low: Optional[Number] = Field(description="what rounding or an estimate leaves open")  # noqa: UP045
    predicted_high: Optional[Number]  # noqa: UP045
    reported: Number
    difference: Optional[Union[int, float]] = Field(description="predicted - reported")  # noqa: UP045
    ratio: Optional[float] = Field(description="predicted / reported")  # noqa: UP045
    agrees: Optional[bool] = Field(  # noqa: UP045
        description="one pool prints this and every other figure that agrees"
    )
    explanation: Optional[str]  # noqa: UP045


class ComparisonEntry(_Strict):
    """The answer of `kvplan compare --json` and of `kvplan.compare(...).model_dump()`."""

    schema_version: Literal[1]
    model: Optional[ModelEntry]  # noqa: UP045
    engine: EngineEntry
    settings: dict[str, Any] = Field(description="as the engine's rules resolved them")
    recognised: dict[str, str] = Field(description="settings of the log, the metrics or the user, and where")
    rows: list[RowEntry]
    verdict: Literal["agrees", "differs", "cannot compare"]
    reason: str
    notes: list[str]


def comparison_schema() -> dict[str, Any]:
    """The JSON Schema of one answer."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(ComparisonEntry).json_schema(),
        "title": "kvplan compare --json",
    }


def validate_comparison(data: dict[str, Any]) -> ComparisonEntry:
    """The answer as a model. Raises pydantic.ValidationError where it does not follow the schema."""
    import json

    return ComparisonEntry.model_validate_json(json.dumps(data))
