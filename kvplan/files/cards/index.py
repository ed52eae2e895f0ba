"""``model_cards/index.json``: every name of every card, and what a list of the cards shows.

One lookup costs this file and one card. Names are in a normal form (`key_of`): lower case, with blanks and
underscores as hyphens. A name points at ``slug`` or, for a variant, at ``slug#position``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.files.cards.card import Card
from kvplan.files.cards.file import card_from_located
from kvplan.files.cards.installed import Installed, installed
from kvplan.files.datafiles import data_dir, packaged_slugs, read_packaged
from kvplan.later import later, regex
from kvplan.record import Json, JsonDict, record

if TYPE_CHECKING:
    from kvplan.files.cards import formats as endings
    from kvplan.files.yaml import strict
else:
    strict = later("kvplan.files.yaml", "strict")
    endings = later("kvplan.files.cards", "formats")

FOLDER = "model_cards"
INDEX = "index.json"
_BLANKS = regex(r"[\s_]+")
_SQUEEZED = regex(r"[\s_.:-]+")


@record()
class CardSummary:
    """One line of ``kvplan list models``. families: family → number of layers that have it."""

    id: str
    slug: str
    model_type: str
    families: Mapping[str, int]
    num_layers: int
    max_model_len: int | None
    parameters: int | None
    weight_bytes: int | None
    how: str
    verified: bool
    variants: tuple[str, ...]
    aliases: tuple[str, ...]


@record()
class Target:
    """The meaning of a name: a card, or one of its variants."""

    slug: str
    variant: int | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        slug, _, number = text.partition("#")
        return cls(slug, int(number) if number else None)

    def __str__(self) -> str:
        return self.slug if self.variant is None else f"{self.slug}#{self.variant}"


def key_of(text: str) -> str:
    """The normal form of a name: ``meta-llama/Llama-3.1-8B`` is ``meta-llama/llama-3.1-8b``."""
    return _BLANKS.sub("-", text.strip().lower())


def squeezed(key: str) -> str:
    """A name without its separators: ``llama3.1:8b`` and ``llama-3.1-8b`` are both ``llama318b``."""
    return _SQUEEZED.sub("", key)


def names_of(name: str, aliases: Iterable[str]) -> list[str]:
    """The keys of an id and its aliases, each with and without the organisation."""
    keys: dict[str, None] = {}
    for one in (name, *aliases):
        key = key_of(one)
        keys[key] = None
        keys[key.rpartition("/")[2]] = None
    return list(keys)


def claims_of(card: Card) -> dict[str, Target]:
    """Every key that a card claims. Its own names come before those of its variants."""
    claims: dict[str, Target] = {}
    for key in (key_of(card.slug), *names_of(card.model.id, card.aliases)):
        claims.setdefault(key, Target(card.slug))
    for position, variant in enumerate(card.variants):
        for key in names_of(variant.id, variant.aliases):
            claims.setdefault(key, Target(card.slug, position))
    return claims


def summary_of(card: Card) -> JsonDict:
    """The card's line of the index."""
    model = card.model
    families: dict[str, int] = {}
    for layer, count in model.distinct().items():
        for part in dict.fromkeys(part.family for part in layer.parts):
            families[part] = families.get(part, 0) + count
    return {
        "id": model.id,
        "model_type": model.model_type,
        "families": families,
        "num_layers": model.num_layers,
        "max_model_len": model.max_model_len,
        "parameters": card.weights.parameters,
        "weight_bytes": card.weights.total_bytes,
        "how": card.source.how,
        "verified": card.source.verified,
        "variants": [variant.id for variant in card.variants],
        "aliases": list(card.aliases),
    }


def read_cards(folder: Path | None = None) -> list[Card]:
    """All cards of a folder (default: the packaged ones), by slug. Raises what `card_from_located` raises."""
    if folder is None:
        read = (
            strict.load_yaml(read_packaged(FOLDER, slug), name=f"{FOLDER}/{slug}.yaml")
            for slug in packaged_slugs(FOLDER)
        )
        return [card_from_located(one) for one in read]
    return [card_from_located(strict.load_yaml_file(path)) for path in sorted(folder.glob("*.yaml"))]


def build_index(folder: Path | None = None) -> JsonDict:
    """The index of a folder of cards.

    Raises:
        KvplanError: ``duplicate-model-name`` where two cards claim one name; any error of a card.
    """
    return index_of(read_cards(folder))


def index_of(cards: Iterable[Card]) -> JsonDict:
    """The index of some cards. Raises KvplanError(duplicate-model-name)."""
    names: dict[str, str] = {}
    summaries: JsonDict = {}
    for card in cards:
        summaries[card.slug] = summary_of(card)
        for key, target in claims_of(card).items():
            other = names.setdefault(key, str(target))
            if other != str(target):
                raise KvplanError(
                    "duplicate-model-name",
                    f"`{key}` means both {other} and {target}",
                    help="remove the name from one of the two cards",
                )
    return {"format": "kvplan card index 1", "cards": summaries, "names": dict(sorted(names.items()))}


def index_text(index: Json) -> str:
    """The content of ``index.json``, one card and one name a line; the same index gives the same bytes."""
    parts = [f'"format": {json.dumps(index["format"])}']
    for section in ("cards", "names"):
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in index[section].items()]
        parts.append(f'"{section}": {{\n' + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}\n"


@cache
def shipped_index() -> JsonDict:
    """The index as it lies beside the cards that came with kvplan."""
    index: JsonDict = json.loads(_shipped_text())
    return index


@cache
def _shipped_text() -> bytes:
    return (data_dir(FOLDER) / INDEX).read_bytes()


def packaged_index() -> JsonDict:
    """The same with the cards of a released set that was put in place (`kvplan cards update`)."""
    return shipped_index() if newer_cards() is None else _merged()


def newer_cards() -> Installed | None:
    """The set that is in use: one that is older than this kvplan is not."""
    found = installed()
    return found if found is not None and found.is_newer else None


@cache
def _merged() -> JsonDict:
    newer, shipped = newer_cards(), shipped_index()
    assert newer is not None
    kept = {
        name: target
        for name, target in shipped["names"].items()
        if target.partition("#")[0] not in newer.cards
    }
    return {
        **shipped,
        "cards": dict(sorted({**shipped["cards"], **newer.index["cards"]}.items())),
        "names": dict(sorted({**kept, **newer.index["names"]}.items())),
    }


def forget() -> None:
    """Look at the installed set anew the next time."""
    for kept in (installed, _merged, _squeezed_names):
        kept.cache_clear()


def is_name(query: str) -> bool:
    """Whether a card has the name in full, but for its separators."""
    key = key_of(query)
    return _named(key) is not None or squeezed(key) in _squeezed_names()


def _named(key: str) -> str | None:
    """The target of a name in full, looked up in the text of the index, which takes a fiftieth of the time
    of reading it."""
    if newer_cards() is not None:
        target: str | None = packaged_index()["names"].get(key)
        return target
    text, entry = _shipped_text(), b'\n%s: "' % json.dumps(key).encode()
    at = text.find(entry) + len(entry)
    return text[at : text.index(b'"', at)].decode() if at >= len(entry) else None


@cache
def _squeezed_names() -> frozenset[str]:
    return frozenset(squeezed(known) for known in packaged_index()["names"])


def find_targets(query: str) -> list[Target]:
    """Possible meanings of a name: one target for a full name, several for a prefix that is not unique.

    In this order: a full name; a full name but for its separators (``llama3.1:8b``); a prefix. A prefix that
    only one card has means that card, or the one variant that has it; but a name is never that of a build in
    another weight format (``-fp8``).
    """
    key = key_of(query)
    target = _named(key)
    if target is not None:
        return [Target.parse(target)]
    bare = squeezed(key)
    if not bare:
        return []
    names: dict[str, str] = packaged_index()["names"]
    loosely = {text for known, text in names.items() if squeezed(known) == bare}
    if len(loosely) == 1:
        return [Target.parse(loosely.pop())]
    starts = (known for known in names if known.startswith(key) and not endings.is_format(known[len(key) :]))
    found = {names[known] for known in starts} | loosely
    targets = sorted((Target.parse(text) for text in found), key=lambda one: (one.slug, one.variant or -1))
    # Where a card itself has the prefix, its variants need not be told apart.
    own = {target.slug for target in targets if target.variant is None}
    return [target for target in targets if target.variant is None or target.slug not in own]


def summaries() -> list[CardSummary]:
    """The packaged cards by slug, from the index alone."""
    return [
        CardSummary(
            slug=slug, **{**entry, "variants": tuple(entry["variants"]), "aliases": tuple(entry["aliases"])}
        )
        for slug, entry in packaged_index()["cards"].items()
    ]


def target_id(target: Target) -> str:
    """The model id that a target stands for."""
    entry = packaged_index()["cards"][target.slug]
    name: str = entry["id"] if target.variant is None else entry["variants"][target.variant]
    return name
