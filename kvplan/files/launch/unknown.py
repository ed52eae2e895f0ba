"""Values that a text leaves open: a variable that nothing sets, a command's output, a placeholder.

Such a value stands in a word as its own text between two characters that no file has, so that it is told from
a word that looks like one (``'$x'`` in single quotes).
"""

from __future__ import annotations

import re

_BEGIN, _END = "\ue000", "\ue001"
_UNKNOWN = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_PARTS = re.compile(f"{_BEGIN}[^{_END}]*{_END}|\\s+|[^\\s{_BEGIN}]+")
_OTHER_FORMS = re.compile(r"\$[{(]*\w|\$[@*#]", re.ASCII)


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
