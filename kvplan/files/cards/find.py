"""Model cards: finding one by name, listing, writing and checking them.

``model_cards/<slug>.yaml`` holds one model and the variants that share its layers; ``index.json`` beside them
maps every name to its file, so that one model costs one JSON and one YAML file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.errors import KvplanError
from kvplan.files.cards import index as card_index
from kvplan.files.cards.card import Card, Weights
from kvplan.files.cards.file import card_from_located, card_of
from kvplan.files.cards.index import CardSummary, Target, build_index
from kvplan.files.cards.ollama_names import HEADS, OLLAMA, near_library_name
from kvplan.files.datafiles import behind, read_packaged
from kvplan.files.yaml import packaged
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import replace

if TYPE_CHECKING:
    from kvplan.files.cards import near as guesses
    from kvplan.files.cards.builds import NamedBuild
    from kvplan.files.cards.lint import Finding, SizeOf
    from kvplan.files.yaml import strict
else:
    guesses = later("kvplan.files.cards", "near")
    strict = later("kvplan.files.yaml", "strict")

__all__ = [
    "Card",
    "CardSummary",
    "build_index",
    "card_json_schema",
    "lint_cards",
    "list_cards",
    "list_names",
    "load_card",
    "load_weights",
    "read_card",
    "read_card_file",
]

_SHOWN = 12


def load_card(name: str) -> Model:
    """The model that a name means: Hugging Face id (with or without the organisation), slug, alias or a
    prefix that only one card has. Case does not matter. ``model.id`` is the id of the card or variant found.

    Raises:
        KvplanError: ``unknown-model`` (with the nearest name) or ``ambiguous-model`` (with the candidates).
    """
    name = _meant(name)
    build = _named_build(name)
    if build is not None:
        return _build(name, build)
    target = _find(name)
    return _model(target.slug, target.variant)


def load_weights(name: str) -> Weights:
    """Sources for the weights of the model that a name means. Raises as `load_card`."""
    name = _meant(name)
    if _named_build(name) is not None:
        return Weights()
    target = _find(name)
    return _packaged(target.slug).weights_of(target.variant)


def read_card(path: Path | str) -> Card:
    """The card in a file, which need not be a packaged one."""
    return card_from_located(strict.load_yaml_file(path))


def read_card_file(path: Path | str) -> Model:
    """The model of the card in a file; its source is the path."""
    return replace(read_card(path).model, source=str(path))


def list_cards() -> list[CardSummary]:
    """All packaged cards by slug; reads the index only."""
    return card_index.summaries()


def forget() -> None:
    """Look at the cards anew: a set of newer ones was put in place."""
    card_index.forget()
    for kept in (_packaged, _build, _model):
        kept.cache_clear()


def list_names() -> list[str]:
    """Every name that `load_card` takes in full, for completion."""
    return list(card_index.packaged_index()["names"])


def is_whole_name(name: str) -> bool:
    """Whether a card, or a build of one, has the name in full: `load_card` would complete nothing."""
    name = _meant(name)
    if card_index.is_name(name) or name.startswith(HEADS):
        return True
    try:
        return _named_build(name) is not None
    except KvplanError:
        return False


def lint_cards(paths: Iterable[Path | str] | None = None, *, size: SizeOf | None = None) -> list[Finding]:
    """Everything that is wrong with card files (default: all packaged ones); empty when nothing is.

    ``size`` recomputes the golden numbers: a function like ``kvplan.size``. Without it they are not checked.
    """
    from kvplan.files.cards.lint import lint

    return lint(paths, size=size)


def card_json_schema() -> dict[str, Any]:
    """The JSON Schema of a card."""
    from kvplan.files.cards.schema import card_json_schema as schema

    return schema()


@lru_cache(maxsize=512)
def _packaged(slug: str) -> Card:
    newer = card_index.newer_cards()
    if newer is not None and slug in newer.cards:
        card = card_of(strict.load_yaml(newer.cards[slug], name=f"{slug}.yaml"), slug)
        return replace(card, model=replace(card.model, source=f"{card.model.source}@{newer.made}"))
    content, name = read_packaged(card_index.FOLDER, slug), f"{card_index.FOLDER}/{slug}.yaml"
    try:
        return card_of(packaged.located(content, name), slug)
    except KvplanError:  # a card that was edited: shown with its line
        return card_of(strict.load_yaml(content, name=name), slug)


def _meant(name: str) -> str:
    """A bare name of Ollama's library (``llama3.2``) with its head, where no card could be meant by it."""
    key = card_index.key_of(name)
    return f"{HEADS[0]}{key}" if key in OLLAMA and not card_index.find_targets(name) else name


def _named_build(name: str) -> NamedBuild | None:
    """Read as a build the name that no card has; done only then, as it takes time to load. A colon is how
    Ollama's library writes (``llama3.1:8b``)."""
    if ":" not in name and card_index.is_name(name):
        return None
    from kvplan.files.cards.builds import named_build

    return named_build(name)


@lru_cache(maxsize=1024)
def _build(name: str, build: NamedBuild) -> Model:
    from kvplan.files.cards.builds import build_of

    like = None if build.like is None else _model(build.like.slug, build.like.variant)
    return build_of(name, build, _model(build.target.slug, build.target.variant), like)


@lru_cache(maxsize=1024)
def _model(slug: str, variant: int | None) -> Model:
    # One object for one model: what engines remember about a model, they remember by identity.
    return _packaged(slug).model_of(variant)


def _find(name: str) -> Target:
    targets = card_index.find_targets(name)
    if len(targets) == 1:
        return targets[0]
    if targets:
        candidates = [card_index.target_id(target) for target in targets]
        raise KvplanError(
            "ambiguous-model",
            f"`{name}` could be any of {len(candidates)} models",
            detail=_columns(candidates),
            help=(
                f"write more of the name, for example {card_index.key_of(candidates[0]).rpartition('/')[2]}",
                *_in_library(card_index.key_of(name)),
            ),
        )
    raise _unknown(name)


def _in_library(key: str) -> list[str]:
    """Cards that Ollama calls by this name."""
    return [f"{key}:{OLLAMA[key].usual}: what Ollama's {key} is"] if key in OLLAMA else []


def _columns(names: list[str]) -> list[str]:
    return [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else names


_RUNNERS = {"ollama": ("Ollama", "ollama"), "lms": ("LM Studio", "lmstudio")}
"""First words of commands that run llama.cpp's models: what they are called, and by --engine."""


def _unknown(name: str) -> KvplanError:
    from kvplan.files.gpus.find import is_name

    if is_name(name):
        shown = f'"{name}"' if " " in name else name
        return KvplanError(
            "unknown-model",
            f"`{name}` is a GPU, and a model is wanted here",
            help=[f"kvplan size MODEL --gpu {shown}", f"kvplan fits --gpu {shown}: the models that fit it"],
        )
    if name in _RUNNERS:
        return KvplanError(
            "unknown-model",
            f"{_RUNNERS[name][0]} starts models by their names: give the name",
            help=f"kvplan size llama3.1:8b -e {_RUNNERS[name][1]} -g rtx-3060",
        )
    key = card_index.key_of(name)
    near = near_library_name(key) if ":" in key and "/" not in key else None
    near = near or guesses.near_card(key, list_names())
    shipped = card_index.shipped_index()["cards"]
    helps = behind(card_index.FOLDER, shipped, "python -m scripts.make_cards --index")
    helps = helps or ([f"did you mean {near}?"] if near else [])
    helps.append("a model without a card can be given as the path of its config.json, or as hf:org/name")
    family = re.match(r"[a-z]+", card_index.key_of(name).rpartition("/")[2], re.ASCII)
    known = family is not None and any(family[0] in one for one in list_names())
    helps.append(
        f"`kvplan list models {family[0] if family and known else ''}".rstrip() + "` lists the cards"
    )
    return KvplanError("unknown-model", f"unknown model `{name}`", help=helps)
