"""Faults of a card: its layout, its names, its provenance and its golden numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvplan.architectures.config.view import split_quant
from kvplan.architectures.inventory import NO_INVENTORY, inventory_of
from kvplan.errors import KvplanError
from kvplan.files.cards.card import Card, Expectation, Weights
from kvplan.files.cards.file import card_of
from kvplan.files.cards.index import (
    FOLDER,
    INDEX,
    build_index,
    claims_of,
    index_text,
    packaged_index,
)
from kvplan.files.cards.schema import schema_errors
from kvplan.files.datafiles import data_dir, packaged_slugs, read_packaged
from kvplan.files.folders import is_file
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import load_yaml, load_yaml_file
from kvplan.record import record

SizeOf = Callable[..., Any]
"""``kvplan.size``, or one like it: (model, engine=…, **settings) → an answer with ``model_dump()``."""

_MEMORY = ("from-memory", "library-default", "assembled")


@record()
class Finding:
    """One thing to mend. ``where``: ``file:line:column``, the line and a caret, where there is a place."""

    path: str
    code: str
    message: str
    where: str | None = None


def lint(paths: Iterable[Path | str] | None = None, *, size: SizeOf | None = None) -> list[Finding]:
    """All findings, file by file, then those about several files. See `find.lint_cards`."""
    folder = data_dir(FOLDER)
    whole = paths is None
    if paths is None:
        files = [folder / f"{slug}.yaml" for slug in packaged_slugs(FOLDER)]
    else:
        files = [Path(path) for path in paths]
    findings: list[Finding] = []
    cards: list[tuple[Path, Card]] = []
    for path in files:
        card = _read(path, whole, findings)
        if card is not None:
            cards.append((path, card))
            located = _located(path, whole)
            findings += _one(path, located, card)
            findings += _parameters(path, located, card)
            if size is not None:
                findings += _numbers(path, located, card, size)
    findings += _names(cards, None if whole else packaged_index()["names"])
    if whole and not findings:
        findings += _index(folder)
    return findings


def _located(path: Path, whole: bool) -> Located:
    return load_yaml(read_packaged(FOLDER, path.stem), name=str(path)) if whole else load_yaml_file(path)


def _read(path: Path, whole: bool, findings: list[Finding]) -> Card | None:
    try:
        located = _located(path, whole)
        errors = schema_errors(located)
        if not errors:
            return card_of(located, path.stem)
    except KvplanError as error:
        if error.code in ("unreadable-file", "not-a-file"):
            raise
        errors = [error]
    findings += [Finding(str(path), error.code, error.message, error.where) for error in errors]
    return None


def _one(path: Path, located: Located, card: Card) -> Iterator[Finding]:
    def found(code: str, message: str, *place: str | int) -> Finding:
        return Finding(str(path), code, message, located.where(place).show())

    if path.stem != path.stem.lower() or not path.stem.isascii():
        yield found("bad-slug", f"the file is called {path.name}: a slug is lower case")
    if card.source.how in _MEMORY and card.source.verified:
        yield found(
            "bad-provenance", f"a card that is {card.source.how} cannot be verified", "source", "verified"
        )
    origin = card.source
    if origin.how not in _MEMORY and not (origin.repository or origin.path or origin.note):
        yield found("missing-provenance", "the source names no repository, path or note", "source")
    layers = (*card.model.distinct(), *card.model.draft_layers)
    used = {part.family for layer in layers for part in layer.parts}
    for family in card.model.provenance.keys:
        if family not in used:
            yield found("unused-keys", f"no layer is {family}", "config_keys", family)
    entry = located.data.get("layers") or {"kinds": {}, "pattern": ""}
    text = f"{entry['pattern']} {entry.get('draft', '')}"
    for kind in entry["kinds"]:
        if kind not in text.replace("(", " ").replace(")", " ").replace(",", " ").split():
            yield found("unused-kind", f"no layer is of the kind {kind}", "layers", "kinds", kind)


UNEXPLAINED = 1000
"""The parameters that a card states and those of its tensors agree within one part in so many: counts differ
in the correction biases of routers. A larger difference needs a note (a head that is stored twice, layers
that only drafting uses)."""


def _parameters(path: Path, located: Located, card: Card) -> Iterator[Finding]:
    """The stated number of parameters, recomputed from the config's tensors."""
    places: list[tuple[int | None, Weights]] = [(None, card.weights)]
    places += [(at, variant.weights) for at, variant in enumerate(card.variants)]
    for variant, weights in places:
        model = card.model_of(variant)
        if not model.config or not weights.parameters:
            continue
        raw, quant = split_quant(model.config)
        try:
            counted = inventory_of(raw, hf_quant_config=quant).parameters
        except KvplanError as error:
            if error.code in NO_INVENTORY:
                continue
            raise
        if abs(counted - weights.parameters) * UNEXPLAINED > weights.parameters and not weights.note:
            place = ("weights",) if variant is None else ("variants", variant, "weights")
            yield Finding(
                str(path),
                "wrong-parameters",
                f"{model.id}: the config's tensors have {counted:,} parameters, not {weights.parameters:,}",
                located.where((*place, "parameters")).show(),
            )


def _numbers(path: Path, located: Located, card: Card, size: SizeOf) -> Iterator[Finding]:
    entries = [("expect", index, entry) for index, entry in enumerate(card.expect)]
    entries += [("evidence", index, entry) for index, entry in enumerate(card.evidence)]
    for key, index, entry in entries:
        where = located.where((key, index, "value")).show()
        try:
            value = answer(card, entry, size)
        except KvplanError as error:
            yield Finding(str(path), "no-answer", f"{entry.engine}: {error.message}", where)
            continue
        if value != entry.value:
            yield Finding(
                str(path),
                "wrong-number",
                f"{entry.engine} {entry.field} is {value}, not {entry.value}"
                + (", which the engine printed" if key == "evidence" else ""),
                where,
            )


def answer(card: Card, entry: Expectation, size: SizeOf) -> Any:
    """The engine's answer today for an expectation."""
    value: Any = size(card.model, engine=entry.engine, **entry.settings).model_dump()
    for key in entry.field.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _names(cards: list[tuple[Path, Card]], others: Mapping[str, str] | None) -> Iterator[Finding]:
    """Names that two cards claim; `others` are the packaged names when only some cards are checked."""
    owner: dict[str, str] = {}
    for path, card in cards:
        for key, target in claims_of(card).items():
            known = owner.setdefault(key, str(target))
            if known == str(target) and others is not None:
                known = others.get(key, str(target))
            if known.partition("#")[0] != card.slug:
                yield Finding(str(path), "duplicate-model-name", f"`{key}` is a name of {known} as well")


def _index(folder: Path) -> Iterator[Finding]:
    path = folder / INDEX
    stored = path.read_text(encoding="utf-8") if is_file(path) else ""
    if stored != index_text(build_index()):
        how = "python -m scripts.make_cards --index (make data: everything that is generated)"
        yield Finding(str(path), "stale-index", f"the index does not fit the cards: {how}")
