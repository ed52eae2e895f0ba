"""HTML that is XML too: text becomes markup in one place, and there it is escaped."""

from __future__ import annotations

import re
from html import escape
from typing import Union

from kvplan.later import regex
from kvplan.report.layout import printable

_NAME = regex(r"[a-z][a-z0-9-]*(:[a-z]+)?", re.ASCII | re.IGNORECASE)
_VOID = frozenset(("meta", "br", "hr"))
LONGEST = 4_000
"""Characters of one text: a name of a megabyte is no name."""


class Markup(str):
    """Text that is markup already: only what is made here."""

    __slots__ = ()


Part = Union[Markup, str, None]
Value = Union[str, int, float, None]


def text(words: str) -> Markup:
    """Words as markup, without what XML cannot hold; what is longer than anybody reads is cut."""
    shown = printable(words)
    if len(shown) > LONGEST:
        shown = shown[:LONGEST] + "…"
    return Markup(escape(shown, quote=True))


def markup(*parts: Part) -> Markup:
    """The parts one after another: markup as it stands, text escaped, None left out."""
    return Markup("".join(one if isinstance(one, Markup) else text(one) for one in parts if one is not None))


def el(name: str, /, *parts: Part, **attributes: Value) -> Markup:
    """An element. Of an attribute's name a trailing ``_`` is dropped, other ``_`` are ``-``; None is left
    out.

    ``el("th", "Pool", scope="row")``; ``class_="bar"``; ``aria_label="…"``.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(name)
    words = "".join(
        f' {_attribute(key)}="{text(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = markup(*parts)
    if not inside and name in _VOID:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{inside}</{name}>")


def _attribute(key: str) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if _NAME.fullmatch(name) is None:
        raise ValueError(key)
    return name


def _shown(value: str | float) -> str:
    """A number of a picture with one decimal at most: ``12``, ``12.5``."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
