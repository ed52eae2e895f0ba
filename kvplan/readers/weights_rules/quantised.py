"""quantization_config → Quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.readers.text_part import TextPart
from kvplan.weights.formats import UNQUANTISED, Quantisation


def quantisation_of(part: TextPart, hf_quant_config: Mapping[str, Any] | None) -> Quantisation:
    return UNQUANTISED
