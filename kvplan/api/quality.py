"""The error of a KV format, measured, next to the bytes that it saves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvplan.api.load import load_model
from kvplan.model import Model
from kvplan.proof.numerics.results import QualityResult
from kvplan.proof.quality import SAMPLE, TOKENS, measured


def quality(
    model: Model | str | dict[str, Any], *, formats: str | Sequence[str] | None = None, tokens: int = TOKENS,
    activations: str | Path | None = None, text: str | Path | None = None, sample_tokens: int = SAMPLE,
    calibrated: bool = False, device: str = "cpu", seed: int = 0,
) -> QualityResult:  # fmt: skip
    """The error that each KV format makes in K, V and attention's output, beside the bytes it saves.

    formats: names, or beginnings of names (``turboquant``), by commas or in a sequence; ``all``. tokens: of
    the request whose bytes are shown. Inputs are drawn (proof/numerics/drawn.py), or with ``activations`` (a
    folder, or a name in the local cache) those of a real model on ``text`` (a file; default: Python's
    reference manual), ``sample_tokens`` long. calibrated: formats with one scale for a tensor take it from
    the inputs; without, it is 1, as servers take it where a checkpoint brings none. Errors are root mean
    squares relative to float64. Raises KvplanError: unknown-dtype, no-kv, bad-setting, bad-model;
    CannotRunHere: missing-extra, no-gpu.
    """
    loaded = model if isinstance(model, Model) else load_model(model)
    return measured(
        loaded, formats, tokens=tokens, activations=activations, text=text, sample_tokens=sample_tokens,
        calibrated=calibrated, device=device, seed=seed,
    )  # fmt: skip
