"""Values that a text leaves open: a variable that nothing sets, a command's output, a placeholder.

Such a value stands in a word as its own text between two characters that no file has, so that it is told from
a word that looks like one (``'$x'`` in single quotes).
"""

from __future__ import annotations

import re

from kvplan.later import regex

_BEGIN, _END = "\ue000", "\ue001"
_UNKNOWN = regex(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_PARTS = regex(f"{_BEGIN}[^{_END}]*{_END}|\\s+|[^\\s{_BEGIN}]+")
_OTHER_FORMS = regex(r"\$[{(]*\w|\$[@*#]", re.ASCII)


_PLACEHOLDER = regex(
    r"(?:(?<=[\s=:/\"'])|^)(?:<[A-Za-z][\w ./:-]*>(?![>&(])|\$?\{\{[^{}\n]*\}\})", re.MULTILINE
)
"""``<your model here>``, ``{{ .Values.model }}``: of a text that somebody has still to fill in."""
_SIGNS = {ord(sign): 0xE010 + place for place, sign in enumerate("<>{} $.|&;()'\"!*?[]~#`=:")}
_BACK = {code: sign for sign, code in _SIGNS.items()}
"""The signs of a placeholder, so that whoever takes a text apart takes it for a plain word."""


def with_placeholders(text: str) -> str:
    """The text with each placeholder as one word that is open, until `as_written`."""
    return _PLACEHOLDER.sub(lambda match: unknown(match[0]).translate(_SIGNS), text)


def as_written(text: str) -> str:
    """A part of such a text with the signs of its placeholders."""
    return text.translate(_BACK)


def is_placeholder(word: str) -> bool:
    """Whether a whole word is a placeholder, marked or not."""
    return _PLACEHOLDER.fullmatch(shown(word)) is not None


def unknown(written: str) -> str:
    """A value of which the text alone is known."""
    return f"{_BEGIN}{shown(written)}{_END}"


def unknowns(word: str) -> list[str]:
    """The open parts of a word, as written."""
    return _UNKNOWN.findall(word)


def is_open(word: str) -> bool:
    """Whether anything of a word is not known; ``$(NAME)`` of a manifest counts too."""
    return _BEGIN in word or _OTHER_FORMS.search(word) is not None


def is_whole(word: str) -> bool:
    """Whether a word is nothing but one open value, which may come to no word or to several."""
    return _UNKNOWN.fullmatch(word) is not None


def shown(word: str) -> str:
    """A word as its user wrote it."""
    return word.replace(_BEGIN, "").replace(_END, "")


def without(word: str) -> str:
    """A word where what is open is empty."""
    return _UNKNOWN.sub("", word)


def parts(word: str) -> list[str]:
    """A word parted at its spaces (which are parts too) and at what is open."""
    return _PARTS.findall(word)
