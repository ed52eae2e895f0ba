"""What a model card holds, beside the model itself: source, weights, variants and golden numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.model import Model
from kvplan.record import field, record, replace

if TYPE_CHECKING:
    from kvplan.weights.facts import WeightSources

FORMAT = "card/v1"
HOW = {
    "verbatim": "a config.json, unchanged",
    "retyped": "the published config.json, typed again key by key",
    "page": "the published config.json, read on the hub's page of it",
    "excerpt": "the keys that bear on size, from a public copy",
    "embedded": "a copy of the config inside another project's source",
    "converted": "values of another project's code or config",
    "assembled": "partial copies in tests or documentation, the rest from memory",
    "library-default": "the defaults that the library's config class documents for the model",
    "from-memory": "typed from memory",
}
WEIGHTS_HOW = ("headers", "index", "parameter count", "unknown")
TEXTS = ("architecture", "dtype", "quantization", "kv_cache_scheme")
OVERLAY = (*TEXTS, "max_model_len", "vocab_size", "facts")
"""What a variant may change."""


@record()
class Source:
    """Where a card's facts were read. ``verified``: someone held them against the published file."""

    how: str
    verified: bool
    repository: str | None = None
    revision: str | None = None
    path: str | None = None
    note: str | None = None

    def sentence(self) -> str:
        """``verbatim: owner/repo path``."""
        place = " ".join(part for part in (self.repository, self.path) if part)
        return f"{self.how}: {place}" if place else self.how


@record()
class Weights:
    """Bytes of the checkpoint by storage type; ``how`` they are known. Empty bytes: nobody said.

    tensors: what was counted, name → dtype and shape; ``[0-31]`` in a name stands for the layers.
    """

    how: str = "unknown"
    parameters: int | None = None
    bytes_by_dtype: Mapping[str, int] = field(default_factory=dict)
    note: str | None = None
    tensors: Mapping[str, str] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int | None:
        return sum(self.bytes_by_dtype.values()) if self.bytes_by_dtype else None


@record(eq=False)
class OnCard:
    """A card's bytes; how they are divided is known where its config, or the card itself, lists tensors."""

    stated: Weights

    def sources(self, model: Model) -> WeightSources:
        from kvplan.architectures.weights import sources_of_model
        from kvplan.weights.facts import CARD, Index, WeightSources, no_source

        found = sources_of_model(model) if model.config else None
        if found is not None and found.inventory is not None:
            return replace(found, inventory_source=CARD)
        if self.stated.total_bytes is None:
            problem = None if found is None else found.problem
            return WeightSources(problem=problem or no_source(model.id))
        where = f"the card of {model.id} ({self.stated.how})"
        index = Index(self.stated.total_bytes, (), where, CARD)
        return WeightSources(index=index, problem=no_source(model.id))


@record()
class Variant:
    """A released model with the card's layers. ``changes``: what differs from the card's own; ``facts`` are
    given whole."""

    id: str
    aliases: tuple[str, ...]
    changes: Mapping[str, Any]
    source: Source | None
    weights: Weights


@record()
class Expectation:
    """A number that an engine's rules must give for the card: its own test."""

    engine: str
    field: str
    value: int | list[int]
    settings: Mapping[str, Any]
    source: str | None = None


@record()
class Card:
    """A card as read: the model, its variants and what is known about the checkpoint."""

    slug: str
    model: Model
    aliases: tuple[str, ...]
    source: Source
    weights: Weights
    variants: tuple[Variant, ...]
    expect: tuple[Expectation, ...]
    evidence: tuple[Expectation, ...]

    def model_of(self, variant: int | None) -> Model:
        """The card's own model, or that of a variant (by position)."""
        if variant is None:
            return self.model
        chosen = self.variants[variant]
        tensors = chosen.weights.tensors
        counted = None if chosen.changes.get("quantization") else self.model.counted
        if tensors:
            from kvplan.files.cards.tensors import checkpoint_of

            counted = checkpoint_of(tensors, f"the card of {chosen.id}")
        model = replace(
            self.model, id=chosen.id, counted=counted, weights=OnCard(chosen.weights), **chosen.changes
        )
        if chosen.source is None:
            return model
        provenance = replace(model.provenance, how=chosen.source.sentence(), revision=chosen.source.revision)
        warnings = tuple(
            text for text in model.warnings if text not in unverified(self.model.id, self.source)
        )
        return replace(
            model, provenance=provenance, warnings=(*unverified(chosen.id, chosen.source), *warnings)
        )

    def weights_of(self, variant: int | None) -> Weights:
        return self.weights if variant is None else self.variants[variant].weights


_MARK = " is unverified ("


def is_unverified(model: Model) -> bool:
    """Whether the model is a card's whose facts nobody held against the published file."""
    return any(text.startswith("the card of ") and _MARK in text for text in model.warnings)


def unverified(name: str, source: Source) -> tuple[str, ...]:
    if source.verified:
        return ()
    return (f"the card of {name}{_MARK}{HOW[source.how]})",)
