"""The contents of a model card besides the model itself: source, weights, variants and golden numbers.

The config that a card carries: JSON text in the YAML, parsed when a weight or a width is asked for.

A variant has only the keys on the top in which it differs from its card (``config``) and the names of those
that it lacks (``config_without``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kvplan.model import Model
from kvplan.record import Json, field, record, replace

if TYPE_CHECKING:
    from kvplan.weights.facts import WeightSources

FORMAT = "card/v1"
HOW = {
    "verbatim": "a config.json, unchanged",
    "shortened": "a copy of the config.json from which another project left keys out",
    "retyped": "the published config.json, typed again key by key",
    "page": "the published config.json, read on the hub's page of it",
    "excerpt": "the keys that bear on size, from a public copy",
    "embedded": "a copy of the config inside another project's source",
    "converted": "values of another project's code or config",
    "assembled": "partial copies in tests or documentation, the rest from memory",
    "library-default": "the defaults that the library's config class documents for the model",
    "from-memory": "typed from memory",
}
WHOLE = frozenset({"verbatim", "retyped", "page"})
"""Ways in which every key of the published file was seen: elsewhere an absent key says nothing."""
WEIGHTS_HOW = ("headers", "index", "parameter count", "unknown")
TEXTS = ("architecture", "dtype", "quantization", "kv_cache_scheme")
OVERLAY = (*TEXTS, "max_model_len", "vocab_size", "facts")
"""Keys that a variant may change."""


@record()
class Source:
    """Where a card's facts were read. ``verified``: someone held them against the published file."""

    how: str
    verified: bool
    repository: str | None = None
    revision: str | None = None
    path: str | None = None
    note: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every key of the published config was seen."""
        return self.how in WHOLE

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
    changes: Json
    source: Source | None
    weights: Weights


@record()
class Expectation:
    """A number that an engine's rules must give for the card: its own test."""

    engine: str
    field: str
    value: int | list[int]
    settings: Json
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
        provenance = replace(
            model.provenance,
            how=chosen.source.sentence(),
            revision=chosen.source.revision,
            whole=chosen.source.whole,
        )
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


_WIDTH = 96


class CardConfig(Json):
    """A config that is parsed at its first use: most questions asked of a card never look at it.

    Raises KvplanError(bad-json | bad-config) then, naming the card.
    """

    __slots__ = ("_base", "_name", "_parsed", "_text", "_without")

    def __init__(
        self,
        text: str,
        name: str,
        base: Json | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        self._text = text
        self._name = name
        self._base = base
        self._without = without
        self._parsed: dict[str, Any] | None = None

    def _values(self) -> dict[str, object]:
        if self._parsed is None:
            from kvplan.files.json_input import parse_json

            own = parse_json(self._text.encode(), name=f"{self._name}: config") if self._text else {}
            kept = {key: value for key, value in (self._base or {}).items() if key not in self._without}
            self._parsed = {**kept, **own}
        return self._parsed

    def __getitem__(self, key: str) -> object:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())


def changed_keys(
    base: Mapping[str, object], other: Mapping[str, object]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """The keys on the top in which ``other`` differs from ``base``, and those that it lacks."""
    absent = object()
    order = dict.fromkeys((*base, *other))
    different = {key: other[key] for key in order if key in other and base.get(key, absent) != other[key]}
    return different, tuple(key for key in base if key not in other)


def config_lines(config: Mapping[str, object]) -> list[str]:
    """The config as JSON, broken after commas so that a line has at most about 100 columns."""
    lines: list[str] = []
    for piece in json.dumps(dict(config), ensure_ascii=False, separators=(",\n", ": ")).split("\n"):
        if lines and len(lines[-1]) + len(piece) < _WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines
