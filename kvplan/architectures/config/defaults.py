"""What transformers' configuration classes default to, from the generated table in ``data/``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).parents[1] / "data" / "transformers_defaults.json"


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def class_facts(model_type: str) -> dict[str, Any] | None:
    """The table's entry of a model type (defaults, aliases, sub_configs, text, builds …), or None."""
    entry: dict[str, Any] | None = _table()["models"].get(model_type)
    return entry


def known_model_types() -> list[str]:
    """Every model type of the table."""
    return list(_table()["models"])


def release() -> str:
    """The transformers release whose classes the table records."""
    text: str = _table()["head"]["packages"]["transformers"]
    return text
