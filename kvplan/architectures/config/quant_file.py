"""ModelOpt's hf_quant_config.json, which lies beside a config and travels with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUANT_KEY = "hf_quant_config"
"""Under this key a model's config has the file that ModelOpt writes beside it."""


def split_quant(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """A model's config as the file and ModelOpt's file beside it."""
    quant = config.get(QUANT_KEY)
    if not isinstance(quant, Mapping):
        return config, None
    return {key: value for key, value in config.items() if key != QUANT_KEY}, quant
