"""Hub ids of fine-tunes and builds whose published config has the sizes of a card (``listed.tsv``).

A fine-tune's name says nothing of its layers (``deepreinforce-ai/Ornith-1.0-35B``), its config does:
`scripts/make_listed.py` takes what a public list read from it. Looked at only where no card is called so.
"""

from __future__ import annotations

from functools import cache

from kvplan.files.datafiles import data_dir
from kvplan.record import record

FILE = "listed.tsv"


@record()
class Listed:
    """card: the card's name, in the form of the index. form: the format of the weights (``whole``: as they
    were trained; ``less``: so, but it has fewer of them, as one without the encoder has). max_model_len: the
    id's own, where it is another than the card's."""

    card: str
    form: str
    max_model_len: int | None


@cache
def _lines() -> dict[str, str]:
    text = (data_dir("model_cards") / FILE).read_text(encoding="utf-8")
    return dict(line.split("\t", 1) for line in text.splitlines() if not line.startswith("#"))


@cache
def _makers() -> dict[str, list[str]]:
    """A name without its organisation → the ids that are called so."""
    found: dict[str, list[str]] = {}
    for key in _lines():
        found.setdefault(key.rpartition("/")[2], []).append(key)
        found.setdefault(key.replace("/", "-"), []).append(key)  # bartowski writes the organisation before
    return found


def listed(key: str) -> Listed | None:
    """The list's entry for an id, in the normal form of names; None where it has none."""
    line = _lines().get(key)
    if line is None:
        return None
    card, form, length = line.split("\t")
    return Listed(card, form, int(length) if length else None)


def listed_as(key: str) -> Listed | None:
    """The same for the name of what a build is made of: the id itself, or the only one of its name."""
    found = listed(key)
    if found is None:
        ids = _makers().get(key.rpartition("/")[2], [])
        same = {one for one in map(listed, ids) if one is not None}
        found = same.pop() if len(same) == 1 else None
    return found


def listed_ids() -> list[str]:
    """Every id of the list."""
    return list(_lines())
