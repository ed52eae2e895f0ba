"""``kvplan list models``, ``list gpus`` and ``list receipts``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kvplan.api.runs_on import runs_on
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError, did_you_mean
from kvplan.families import FAMILIES
from kvplan.files.cards.find import list_cards, load_card, load_weights
from kvplan.files.cards.index import CardSummary, key_of
from kvplan.files.folders import files_below, is_folder
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import find_slugs, list_gpus
from kvplan.files.plans.receipts import counts_against, read_receipt
from kvplan.gpu import Gpu
from kvplan.plans.receipt import ReadReceipt, facts_of
from kvplan.record import dumped
from kvplan.report.catalog import data_of, found_screen, gpu_screen, gpus_screen, model_screen, models_screen
from kvplan.results import SCHEMA_VERSION

FOLDER = "evidence"
_PASSED_OVER = ("bad-receipt", "no-such-file")
"""Folders may have other JSON files next to receipts, and a file may be gone by now."""
_SKIPPED = frozenset({"node_modules", "__pycache__"})


def models(words: list[str], given: Given) -> Answer:
    """All cards, those that match names and a family, or one in full."""
    check_color(given)
    search = text_of(given, "search")
    if search is not None:
        return _searched(" ".join((search, *words)), given)
    cards, family = list_cards(), text_of(given, "family")
    found = [card for card in cards if family is None or _family(family) in card.families]
    json = is_given(given, "json")
    if words:
        matches = [_matches(word, found, known=family is None) for word in words]
        if len(matches) == 1 and len(matches[0]) == 1:
            card = matches[0][0]
            exact = key_of(words[0]) in _exact_names(card)
            return _one_model(words[0] if exact else card.id, card, json)
        chosen = {card.slug for several in matches for card in several}
        found = [card for card in found if card.slug in chosen]
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, "models": [data_of(card) for card in found]})
    return Answer(models_screen(found, len(cards)))


def _searched(words: str, given: Given) -> Answer:
    """Models on the hub. Exit 1 where it has none with these words."""
    if text_of(given, "family") is not None:
        raise KvplanError(
            "bad-usage", "a hub does not know families", help="kvplan list models --family mla: of the cards"
        )
    from kvplan.files.hub.search import search_hub

    found = search_hub(words)
    code = EXIT_OK if found.models else EXIT_NO
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, **dumped(found)}, code=code)
    return Answer(found_screen(found), code=code)


def _matches(name: str, cards: Sequence[CardSummary], *, known: bool) -> list[CardSummary]:
    """The card of this name, or those with the name in theirs. known: there must be one."""
    wanted = key_of(name)
    for card in cards:
        if wanted in _exact_names(card):
            return [card]
    found = [card for card in cards if any(wanted in one for one in _names(card))]
    if not found and known:
        load_card(name)  # the reader's own error names the nearest card
    return found


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
    """All GPUs, those that match names, or one in full."""
    check_color(given)
    json = is_given(given, "json")
    if len(words) == 1 and (words[0].endswith((".yaml", ".yml")) or len(find_slugs(words[0])) == 1):
        gpu = load_gpu(words[0])
        if json:
            return Answer(data={"schema_version": SCHEMA_VERSION, "gpu": data_of(gpu)})
        return Answer(gpu_screen(gpu, runs_on(gpu)))
    everything = list_gpus()
    found = _matching(everything, words) if words else list(everything)
    if json:
        return Answer(data={"schema_version": SCHEMA_VERSION, "gpus": [data_of(gpu) for gpu in found]})
    whole = [gpu for gpu in found if not gpu.is_mig_slice]
    slices = bool(words) and (not whole or any("mig" in word.casefold() for word in words))
    shown = found if slices else whole
    return Answer(gpus_screen(shown, len(everything), 0 if slices else len(found) - len(whole)))


def _matching(everything: Sequence[Gpu], words: list[str]) -> list[Gpu]:
    """The GPUs that match a word, then what a word that matches none names."""
    named = {word: {gpu.slug for gpu in everything if _has(gpu, word)} for word in words}
    chosen = set[str]().union(*named.values())
    found = [gpu for gpu in everything if gpu.slug in chosen]
    # A Mac of another memory; for others the reader's own error names the nearest.
    return found + [load_gpu(word) for word, slugs in named.items() if not slugs]


def _has(gpu: Gpu, word: str) -> bool:
    texts = (gpu.slug, gpu.name, gpu.vendor, gpu.arch, *gpu.aliases, *gpu.nvml_names)
    return any(word.casefold() in text.casefold() for text in texts)


def receipts(words: list[str], given: Given) -> Answer:
    """Receipts of files and folders, side by side. Exit 1 where one is edited, refuted, or stopped without a
    confirmed one that counts in its place; 2 where a named file is no receipt."""
    check_color(given)
    read: list[tuple[str, ReadReceipt]] = []
    broken: list[tuple[str, KvplanError]] = []
    for path, named in _paths(words):
        found = _read(path)
        if isinstance(found, ReadReceipt):
            read.append((str(path), found))
        elif named:
            raise found
        elif found.code not in _PASSED_OVER:
            broken.append((str(path), found))
    if not read and not broken:
        raise KvplanError(
            "no-receipts",
            f"no receipt was found in {', '.join(words) or FOLDER}",
            help="kvplan validate PLAN writes one",
        )
    bad = any(counts_against(one, [other for _, other in read]) for _, one in read)
    code = EXIT_CANNOT_ANSWER if broken else EXIT_NO if bad else EXIT_OK
    if is_given(given, "json"):
        entries = [
            {
                "path": path,
                "intact": one.intact,
                "receipt": one.receipt.model_dump(),
                "facts": facts_of(one.receipt)._asdict(),
            }
            for path, one in read
        ]
        errors = [{"path": path, "error": error.as_dict()} for path, error in broken]
        data = {"schema_version": SCHEMA_VERSION, "receipts": entries, "errors": errors}
        return Answer(data=data, code=code)
    from kvplan.report.receipts import receipts_screen

    return Answer(receipts_screen(read, broken), code=code)


def _read(path: Path) -> ReadReceipt | KvplanError:
    try:
        return read_receipt(path)
    except KvplanError as error:
        return error


def _paths(words: list[str]) -> Iterator[tuple[Path, bool]]:
    """Files as named; the JSON files of folders, in order. Without a word: every evidence/ below here."""
    if not words:
        below = (path for path in files_below(Path(), (".json",)) if FOLDER in path.parts[:-1])
        yield from ((path, False) for path in sorted(below) if not _SKIPPED.intersection(path.parts))
        return
    for word in words:
        path = Path(word)
        if is_folder(path):
            yield from ((one, False) for one in sorted(files_below(path, (".json",))))
        else:
            yield path, True
