"""TensorRT-LLM's printed lines as settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvplan.engines.observed.reading import Reading


class _Trtllm(Reading):
    names: ClassVar[Mapping[str, str]] = {"tokens_per_block": "block_size"}
    prints_peak = True


READING = _Trtllm()
