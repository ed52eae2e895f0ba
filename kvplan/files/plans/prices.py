"""Price files: what a GPU costs an hour, in YAML or CSV. kvplan has no prices of its own."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.folders import is_file
from kvplan.files.gpus.find import gpu_of_size, load_gpu
from kvplan.files.json_input import check_text, read_limited
from kvplan.files.plans.file import together
from kvplan.files.plans.fleet import gpu_at
from kvplan.files.plans.schema import Strict
from kvplan.files.plans.values import Amount, GpuName, Text
from kvplan.files.writing import write_whole
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import MAX_BYTES, load_yaml
from kvplan.files.yaml.validation import explain_validation
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.plans.fleet import PRICES_FORMAT, Price, Prices

_NAMES = ("prices.yaml", "prices.csv")
"""Of the file in the user's config folder."""
_NEEDED = ("gpu", "price_per_gpu_hour")
_COLUMNS = (*_NEEDED, "where", "currency", "date", "source")
_NUMBER = regex(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_MOST_ROWS = 10_000


class PriceEntry(Strict):
    """One kind of GPU at one place."""

    gpu: GpuName = Field(description="slug, alias, 80GiB, or a spec file beside this file")
    price_per_gpu_hour: Amount = Field(description="what one GPU costs in an hour")
    where: Text | None = Field(default=None, description="cloud, region, contract: only shown")
    date: Text | None = Field(default=None, description="when it was read, where it is another day")
    source: Text | None = Field(default=None, description="where it was read")


class PriceFile(Strict):
    """Prices of GPUs; of several for one kind the lowest counts."""

    kvplan: Literal[PRICES_FORMAT]  # type: ignore[valid-type]
    currency: Text | None = Field(default=None, description="only shown: USD")
    date: Text | None = Field(default=None, description="when the prices were read: only shown")
    prices: Annotated[list[PriceEntry], Field(min_length=1, max_length=_MOST_ROWS)] = Field(
        description="a list, or a mapping of GPU to price: {h100: 2.5}"
    )


class _PriceTable(PriceFile):
    """The same as a mapping."""

    prices: Annotated[dict[str, Amount], Field(min_length=1, max_length=_MOST_ROWS)]  # type: ignore[assignment]


def read_prices(path: Path | str, *, name: str | None = None) -> Prices:
    """The prices in a YAML or CSV file. Raises KvplanError with every mistake, each with its line."""
    path = Path(path)
    shown = name if name is not None else str(path)
    content = read_limited(path, MAX_BYTES)
    if path.suffix.lower() == ".csv":
        return _of_rows(content, shown)
    return _of_file(load_yaml(content, name=shown), path.parent)


def remembered(folder: Path | None) -> Path | None:
    """The price file that the user keeps in the config folder; None where there is none."""
    paths = [] if folder is None else [folder / name for name in _NAMES]
    return next((path for path in paths if is_file(path)), None)


def remember(path: Path, folder: Path) -> Path:
    """Keep a price file in the config folder, in the place of another; where it lies there.

    Raises KvplanError where it is no price file, or cannot be written.
    """
    read_prices(path)
    content = read_limited(path, MAX_BYTES)
    kept = folder / _NAMES[path.suffix.lower() == ".csv"]
    write_whole(kept, content, folders=True)
    for other in (folder / name for name in _NAMES):
        if other != kept:
            other.unlink(missing_ok=True)
    return kept


def prices_schema() -> dict[str, Any]:
    """The JSON Schema of a price file."""
    schema = PriceFile.model_json_schema()
    listed = schema["properties"]["prices"]
    said = listed.pop("description")
    table = _PriceTable.model_json_schema()["properties"]["prices"]
    schema["properties"]["prices"] = {"anyOf": [listed, table], "description": said}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "kvplan prices",
    }


def _of_file(located: Located, directory: Path) -> Prices:
    data = located.mapping("a price file")
    if not str(data.get("kvplan")).startswith("prices/"):
        raise located.error(
            "not-prices",
            f"{located.name} is no price file",
            ("kvplan",),
            help=f"begin it with kvplan: {PRICES_FORMAT}",
        )
    kind = _PriceTable if isinstance(data.get("prices"), Mapping) else PriceFile
    try:
        file = kind.model_validate(data)
    except ValidationError as error:
        raise together(explain_validation(error, located, model=kind, code="invalid-prices")) from None
    found: list[Price] = []
    errors: list[KvplanError] = []
    for place, entry in _entries(file):
        gpu = gpu_at(str(entry.gpu), directory, located, place)
        if isinstance(gpu, KvplanError):
            errors.append(gpu)
        else:
            found.append(Price(gpu, entry.price_per_gpu_hour, entry.where or "", entry.date or ""))
    if errors:
        raise together(errors)
    return _lowest(found, file.currency or "", file.date or "", located.name)


def _entries(file: PriceFile) -> Iterator[tuple[tuple[int | str, ...], PriceEntry]]:
    """Where each entry stands in the file, and the entry."""
    if isinstance(file.prices, Mapping):
        for gpu, price in file.prices.items():
            yield ("prices", gpu), PriceEntry.model_construct(gpu=gpu, price_per_gpu_hour=price)
    else:
        for place, entry in enumerate(file.prices):
            yield ("prices", place, "gpu"), entry


def _of_rows(content: bytes, name: str) -> Prices:
    """A CSV file with a line of column names."""
    check_text(content, name)
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise KvplanError("invalid-prices", f"{name} is no CSV file: {error}") from None
    head = [word.strip() for word in rows[0]] if rows else []
    if missing := [column for column in _NEEDED if column not in head]:
        raise KvplanError(
            "invalid-prices",
            f"{name}:1: there is no column {' and no column '.join(missing)}",
            help=f"the first line names them: {','.join(_NEEDED)}; {', '.join(_COLUMNS[2:])} may follow",
        )
    if unknown := [word for word in head if word not in _COLUMNS]:
        near = did_you_mean(unknown[0], _COLUMNS)
        raise KvplanError(
            "invalid-prices",
            f"{name}:1: there is no column {unknown[0]!r}",
            help=f"did you mean {near}?" if near else f"columns are {', '.join(_COLUMNS)}",
        )
    found: list[Price] = []
    errors: list[KvplanError] = []
    said: dict[str, str] = {"currency": "", "date": ""}
    for number, cells in enumerate(rows[1 : _MOST_ROWS + 1], 2):
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip(head, (cell.strip() for cell in cells)))
        try:
            found.append(_priced(row, len(cells) == len(head)))
        except KvplanError as error:
            errors.append(KvplanError("invalid-prices", f"{name}:{number}: {error.message}", help=error.help))
        said = {key: value or row.get(key, "") for key, value in said.items()}
    if errors:
        raise together(errors)
    if not found:
        raise KvplanError("invalid-prices", f"{name} has no price", help="h100,2.50 below the column names")
    return _lowest(found, said["currency"], said["date"], name)


def _priced(row: Mapping[str, str], whole: bool) -> Price:
    """whole: the line has as many cells as there are columns."""
    if not whole:
        raise KvplanError("invalid-prices", "the line has another number of cells than there are columns")
    text = row["price_per_gpu_hour"]
    if not _NUMBER.fullmatch(text) or not Fraction(text):
        raise KvplanError("invalid-prices", f"price_per_gpu_hour is {text!r}, no number above 0")
    return Price(_gpu(row["gpu"]), Fraction(text), row.get("where", ""), row.get("date", ""))


def _gpu(text: str) -> Gpu:
    return gpu_of_size(text) or load_gpu(text)


def _lowest(found: Iterable[Price], currency: str, date: str, source: str) -> Prices:
    """The lowest price of each kind, in the order of the file."""
    lowest: dict[str, Price] = {}
    for one in found:
        known = lowest.get(one.gpu.slug)
        if known is None or one.per_gpu_hour < known.per_gpu_hour:
            lowest[one.gpu.slug] = one
    return Prices(tuple(lowest.values()), currency, date, source)
