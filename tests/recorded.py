"""What is recorded under tests/data: read once, the same in every checkout.

Where a folder ``../shared`` stands beside the checkout, the tests take what it has besides.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.architectures.config.read import read_config
from kvplan.files.sources import read_directory
from kvplan.model import Model

DATA = Path(__file__).resolve().parent / "data"
BESIDE = Path(__file__).resolve().parents[2] / "shared"


@cache
def record(name: str) -> Any:
    """``tests/data/NAME.json.gz``."""
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def packed(value: Any) -> bytes:
    """The file of a record: keys in the order given, no time in the header; the same makes the same."""
    return gzip.compress(json.dumps(value, separators=(",", ":")).encode(), mtime=0)


def _folder(name: str) -> Path:
    return BESIDE / "configs" / name


@cache
def config_names() -> tuple[str, ...]:
    """``org__name`` of every published config: those recorded, those of the folder beside the checkout."""
    beside = (path.parent.name for path in _folder("").glob("*__*/config.json"))
    return tuple(sorted({*record("configs"), *beside}))


def config_of(name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A config's keys that bear on sizes, and its hf_quant_config.json (None: it has none)."""
    if name not in record("configs"):
        quant = _folder(name) / "hf_quant_config.json"
        raw = json.loads((_folder(name) / "config.json").read_text(encoding="utf-8"))
        return raw, json.loads(quant.read_text(encoding="utf-8")) if quant.is_file() else None
    entry = json.loads(json.dumps(record("configs")[name]))  # a test may change what it gets
    return entry["config"], entry.get("hf_quant_config")


def model_of(name: str) -> Model:
    """The model of a published config."""
    raw, quant = config_of(name)
    return read_config(raw, id=name, source="recorded", hf_quant_config=quant)


def as_published(name: str) -> Model | None:
    """The same model from the whole file, where that stands beside the checkout."""
    return read_directory(_folder(name)) if (_folder(name) / "config.json").is_file() else None
