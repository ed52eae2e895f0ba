"""What the package has, read once for all tests of a process."""

from __future__ import annotations

from functools import lru_cache

from kvplan.files.cards.card import Card
from kvplan.files.cards.index import FOLDER, read_cards
from kvplan.files.datafiles import data_dir


@lru_cache(maxsize=1)
def packaged_cards() -> tuple[Card, ...]:
    """Every card, by slug."""
    return tuple(read_cards(data_dir(FOLDER)))
