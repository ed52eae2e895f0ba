"""The answer of ``quality``: error of each KV format, layer by layer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from kvplan.record import dumped, field, record
from kvplan.results import SCHEMA_VERSION, Documented


@record()
class FormatError:
    """Of one format on one set of inputs. Errors are root mean squares relative to what float64 gives."""

    key: float
    """Of the stored keys, or of the latent and its rope key together."""
    value: float
    """Of the stored values; of an MLA latent the same numbers, which are read as values."""
    output: float
    """Of attention's output over what is stored."""
    moved: float
    """Share of attention's weight that lies on other tokens (total variation, mean over queries)."""


@record()
class LayerErrors:
    """One layer, or one kind of layer where inputs are drawn: ``errors`` in the order of the formats."""

    layer: str
    shape: str
    """Heads and widths: ``8 × 128``."""
    layers: int
    """How many of the model's layers this stands for."""
    errors: tuple[FormatError, ...]


@record()
class InputErrors:
    """One set of inputs."""

    inputs: str
    description: str
    layers: tuple[LayerErrors, ...]

    def mean(self, place: int) -> FormatError:
        """Over the layers, for the format at this place."""
        total = sum(one.layers for one in self.layers)

        def of(name: str) -> float:
            return float(sum(getattr(one.errors[place], name) * one.layers for one in self.layers) / total)

        return FormatError(of("key"), of("value"), of("output"), of("moved"))

    def worst(self, place: int) -> LayerErrors:
        """The layer whose output is furthest off."""
        return max(self.layers, key=lambda one: one.errors[place].output)


@record()
class FormatCost:
    """The size of a format."""

    format: str
    kv_bytes_per_request: int | None
    """Of a request of ``tokens``; None where the engine does not lay this model out in it."""
    saved: float | None
    """Share of the cache in 16 bit that it saves."""


@record()
class QualityResult(Documented):
    """The error of KV quantisation for a model."""

    model: str
    engine: str
    """Whose layout the bytes are of."""
    tokens: int
    """Of the request whose bytes are shown."""
    sample_tokens: int
    """Stored, and read by the newest ``queries`` of them."""
    queries: int
    calibrated: bool
    """Whether formats with one scale for a tensor took it from the inputs; else it is 1."""
    seed: int
    device: str
    versions: dict[str, str]
    formats: tuple[FormatCost, ...]
    inputs: tuple[InputErrors, ...]
    notes: tuple[str, ...] = ()
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON: ClassVar[tuple[str, ...]] = (
        "schema_version", "model", "engine", "tokens", "sample_tokens", "queries", "calibrated", "seed",
        "device", "versions", "formats", "inputs", "notes",
    )  # fmt: skip

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each format: what a request takes, and what is saved."""
        return [dumped(one) for one in self.formats]
