"""The layout of the table of assumptions: what judges it when it is written, and in the tests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvplan.errors import KvplanError
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.validation import explain_validation


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Entry(_Strict):
    """A positive value with its unit and source."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Literal["share", "s", "B/s", "ratio", "tokens"]
    source: Annotated[str, Field(min_length=1)]


class Table(_Strict):
    kvplan: Literal["speed/v1"]
    assumptions: dict[str, Entry]


def table_errors(located: Located) -> list[KvplanError]:
    """Everything that is wrong with a table; an empty list means nothing."""
    try:
        table = Table.model_validate(located.mapping("a table of assumptions"))
    except ValidationError as error:
        return explain_validation(error, located, model=Table, code="invalid-assumption")
    return [
        located.error("invalid-assumption", f"`{name}`: a share is at most 1", ("assumptions", name, "value"))
        for name, one in table.assumptions.items()
        if one.unit == "share" and one.value > 1
    ]
