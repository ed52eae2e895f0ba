"""The JSON of ``kvplan explain --json``."""

from __future__ import annotations

from typing import Any

from kvplan.model import Model
from kvplan.record import dumped, fields
from kvplan.results import LayerTerms, SizeResult


def explain_dump(model: Model, result: SizeResult) -> dict[str, Any]:
    """The JSON of ``kvplan explain --json``: that of size, and formula, source, keys, positions and sums."""
    layers = [_layer_dump(model, entry, result) for entry in result.layers]
    return {**result.model_dump(), "layers": layers, "data_bytes": sum(entry["bytes"] for entry in layers)}


def _layer_dump(model: Model, entry: LayerTerms, result: SizeResult) -> dict[str, object]:
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    one = sum(term.bytes_at(tokens, encoder) for term in entry.terms)
    return {
        "family": entry.layer.family,
        "count": entry.count,
        "positions": [at for at, layer in enumerate(model.layers()) if layer == entry.layer],
        "parts": [
            {
                "family": part.family,
                "formula": part.formula,
                "source": part.source,
                "parameters": {field.name: getattr(part, field.name) for field in fields(part)},
                "keys": dict(model.provenance.keys.get(part.family, {})),
            }
            for part in entry.layer.parts
        ],
        "terms": [
            {
                **dumped(term),
                "entries": term.entries(tokens, encoder),
                "bytes": term.bytes_at(tokens, encoder),
            }
            for term in entry.terms
        ],
        "bytes_per_layer": one,
        "bytes": one * entry.count,
    }
