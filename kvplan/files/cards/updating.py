"""``kvplan cards update``: a released set is read, every card of it checked, and put in place in one step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.cards import index as card_index
from kvplan.files.cards import released
from kvplan.files.cards.card import Card
from kvplan.files.cards.file import card_from_located
from kvplan.files.cards.find import forget
from kvplan.files.cards.installed import FILE, Installed, user_folder
from kvplan.files.cards.released import CardSet, read_set
from kvplan.files.hub.fetch import get, parse_endpoint
from kvplan.files.json_input import read_limited
from kvplan.files.writing import write_whole
from kvplan.files.yaml.strict import load_yaml
from kvplan.record import record

SECONDS = 60.0


@record()
class Updated:
    """The changes of an update. path: the file that was written; new, changed: slugs."""

    path: Path
    made: str
    cards: int
    new: tuple[str, ...]
    changed: tuple[str, ...]
    newer: bool


def update_cards(source: str, *, key: str | None = None, sha256: str | None = None) -> Updated:
    """Take a released set of cards, from a file or a URL.

    Raises KvplanError: what `read_set` raises, duplicate-model-name, what a card that is wrong raises,
    cannot-write; CannotRunHere for a URL that cannot be read.
    """
    cards = read_set(
        _bytes_of(source),
        name=source,
        key=None if key is None else released.public_key(Path(key)),
        sha256=sha256,
    )
    read = {slug: _card(slug, text) for slug, text in cards.cards.items()}
    index = card_index.index_of(read.values())
    _check_names(index, card_index.shipped_index())
    before = card_index.shipped_index()["cards"]
    body = {
        "made": cards.made, "kvplan": cards.kvplan, "origin": source, "sha256": cards.sha256,
        "index": index, "cards": dict(cards.cards),
    }  # fmt: skip
    path = user_folder() / FILE
    write_whole(path, json.dumps(body, ensure_ascii=False) + "\n", folders=True)
    forget()
    return Updated(
        path,
        cards.made,
        len(read),
        tuple(sorted(slug for slug in read if slug not in before)),
        tuple(sorted(slug for slug in read if slug in before and index["cards"][slug] != before[slug])),
        _as_installed(cards, source, index).is_newer,
    )


def _as_installed(cards: CardSet, source: str, index: dict[str, Any]) -> Installed:
    return Installed(cards.made, cards.kvplan, source, cards.sha256, index, cards.cards)


def _bytes_of(source: str) -> bytes:
    if "://" not in source:
        return read_limited(Path(source), released.MOST_BYTES)
    scheme, _, rest = source.partition("://")
    host, slash, path = rest.partition("/")
    answer = get(
        parse_endpoint(f"{scheme}://{host}"),
        slash + path,
        timeout=SECONDS,
        limit=released.MOST_BYTES,
        elsewhere=True,
    )
    if answer.status != 200:
        raise KvplanError("unreachable", f"{source} answers with status {answer.status}")
    return answer.body


def _card(slug: str, text: str) -> Card:
    return card_from_located(load_yaml(text, name=f"{slug}.yaml"))


def _check_names(index: dict[str, Any], before: dict[str, Any]) -> None:
    """A name of a card that kvplan has keeps its meaning."""
    for name, target in index["names"].items():
        other = before["names"].get(name)
        if other is None:
            continue
        slug, own = str(target).partition("#")[0], str(other).partition("#")[0]
        if slug != own and own not in index["cards"]:
            raise KvplanError(
                "duplicate-model-name",
                f"`{name[:80]}` means {other} in this kvplan, and {target} in the set",
                help="such a set is not taken",
            )
