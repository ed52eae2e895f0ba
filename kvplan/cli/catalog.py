"""``kvplan models`` and ``kvplan gpus``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvplan.api.runs_on import runs_on
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import FAMILIES
from kvplan.files.cards.find import list_cards, load_card, load_weights
from kvplan.files.cards.index import CardSummary, key_of
from kvplan.files.gpus.find import find_slugs, list_gpus, load_gpu
from kvplan.gpu import Gpu
from kvplan.report.catalog import data_of, gpu_screen, gpus_screen, model_screen, models_screen
from kvplan.results import SCHEMA_VERSION


def models(words: list[str], given: Given) -> Answer:
    """All cards, those that match a filter and a family, or one in full."""
    check_color(given)
    cards, family = list_cards(), text_of(given, "family")
    found = [card for card in cards if family is None or _family(family) in card.families]
    json = is_given(given, "json")
    if words:
        wanted = key_of(words[0])
        exact = [card for card in found if wanted in _exact_names(card)]
        found = exact or [card for card in found if any(wanted in name for name in _names(card))]
        if exact or len(found) == 1:
            return _one_model(words[0] if exact else found[0].id, found[0], json)
        if not found and family is None:
            load_card(words[0])  # the reader's own error names the nearest card
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, "models": [data_of(card) for card in found]})
    return Answer(models_screen(found, len(cards)))


def _one_model(name: str, card: CardSummary, json: bool) -> Answer:
    model, weights = load_card(name), load_weights(name)
    if not json:
        return Answer(model_screen(model, card, weights))
    layers: list[dict[str, Any]] = [
        {"count": number, "parts": [{"family": part.family, **data_of(part)} for part in layer.parts]}
        for layer, number in model.distinct().items()
    ]
    data = {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "id": model.id,
            "source": model.source,
            "model_type": model.model_type,
            "max_model_len": model.max_model_len,
            "dtype": model.dtype,
            "layers": layers,
            "weights": data_of(weights),
            "warnings": list(model.warnings),
        },
        "card": data_of(card),
    }
    return Answer(data=data)


def _names(card: CardSummary) -> Iterable[str]:
    return (key_of(name) for name in (card.id, card.slug, card.model_type, *card.aliases, *card.variants))


def _exact_names(card: CardSummary) -> set[str]:
    full = [key_of(name) for name in (card.id, card.slug, *card.aliases, *card.variants)]
    return {*full, *(name.rpartition("/")[2] for name in full)}


def _family(name: str) -> str:
    if name in FAMILIES:
        return name
    near = did_you_mean(name, FAMILIES)
    raise KvplanError(
        "unknown-family",
        f"there is no family {name!r}",
        help=f"did you mean {near}?" if near else "families: " + ", ".join(FAMILIES),
    )


def gpus(words: list[str], given: Given) -> Answer:
    """All GPUs, those that match a filter, or one in full."""
    check_color(given)
    json = is_given(given, "json")
    if words and (words[0].endswith((".yaml", ".yml")) or len(find_slugs(words[0])) == 1):
        gpu = load_gpu(words[0])
        return (
            Answer(data={"schema_version": SCHEMA_VERSION, "gpu": data_of(gpu)})
            if json
            else Answer(gpu_screen(gpu, runs_on(gpu)))
        )
    everything = list_gpus()
    found = everything
    if words:
        wanted = words[0].casefold()
        found = [gpu for gpu in everything if any(wanted in text.casefold() for text in _gpu_words(gpu))]
        if not found:
            found = [load_gpu(words[0])]  # a Mac of another memory; the reader's own error names the nearest
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, "gpus": [data_of(gpu) for gpu in found]})
    whole = [gpu for gpu in found if not gpu.is_mig_slice]
    slices = bool(words) and (not whole or "mig" in words[0].casefold())
    shown = found if slices else whole
    return Answer(gpus_screen(shown, len(everything), 0 if slices else len(found) - len(whole)))


def _gpu_words(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.slug, gpu.name, gpu.vendor, gpu.arch, *gpu.aliases, *gpu.nvml_names)
