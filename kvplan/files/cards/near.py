"""The card that a name which no card has was probably meant for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvplan.errors import did_you_mean
from kvplan.later import regex

_TUNED = frozenset("instruct it chat base pt hf".split())
"""Words that say how a model was tuned: its layers are those of the others."""
_SIZE = regex(r"[a-z]?\d+(\.\d+)?[bm]", re.ASCII)
"""8b, 1.5b, a3b, 270m."""
_DRAFT = regex(r"eagle\d?|dflash|draft|medusa|speculator|mtp")
"""In the names of drafts, which are called after the models that they draft for."""


def near_card(key: str, names: Iterable[str]) -> str | None:
    """The nearest of the names: the same words but for the tuning; else one alike of the same size; else,
    where only the size is another, the one alike. None where a guess would name another model.

    >>> near_card("qwen3-32b-instruct", ["qwen3-vl-32b-instruct", "qwen3-32b", "qwen3-8b"])
    'qwen3-32b'
    >>> near_card("gemma-4-31b", ["gemma-3-1b", "gemma-3-27b"])
    """
    known = [name for name in names if bool(_DRAFT.search(name)) is bool(_DRAFT.search(key))]
    words, sizes = _parts(key)
    same = [name for name in known if _parts(name) == (words, sizes)]
    if same:
        return did_you_mean(key, same) or min(same, key=len)
    if not sizes:
        return did_you_mean(key, known)
    return did_you_mean(key, [name for name in known if _parts(name)[1] == sizes]) or did_you_mean(
        key, [name for name in known if _parts(name)[0] == words]
    )


def _parts(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """(words of the name but for organisation, tuning and sizes; its sizes)."""
    words = set(name.casefold().rpartition("/")[2].split("-")) - _TUNED
    sizes = frozenset(word for word in words if _SIZE.fullmatch(word))
    return frozenset(words) - sizes, sizes
