"""What ``kvplan quality`` measured of a KV format on drawn numbers, for a plan to cite."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kvplan.dtypes import kv_dtype
from kvplan.engines.base import has_kind
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model

FILE = Path(__file__).parent / "data" / "kv_errors.json"
"""Written by ``python -m scripts.make_kv_errors``."""
HEADS, LATENT = "heads", "latent"


@cache
def kv_errors() -> dict[str, dict[str, list[float]]]:
    """Heads or latent → format → error of attention's output in percent: normal, outlier channels."""
    found: dict[str, dict[str, list[float]]] = json.loads(FILE.read_text(encoding="utf-8"))["errors"]
    return found


def measured(model: Model, word: str) -> str | None:
    """One line on a format, or None for 16 bit and for words that name no format of numbers."""
    try:
        form = kv_dtype(word).name
    except KvplanError:
        return None
    errors = kv_errors()[LATENT if has_kind(model, Kind.MLA) else HEADS].get(form)
    if errors is None:
        return None
    normal, outliers = map(percent, errors)
    return f"{word} cache: attention off by {normal} on normal numbers, {outliers} with outlier channels"


def percent(value: float) -> str:
    """Two significant digits.

    >>> percent(0.91), percent(13.0), percent(140.0)
    ('0.91 %', '13 %', '140 %')
    """
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"
