"""Settings out of printed Python: ``{'model': 'x', …}``, ``Namespace(model='x', …)``, ``model='x', dtype=…``.

Logs print whole configurations, with objects among the values that no parser can read (``<Enum: 1>``,
``PosixPath('x')``). So the text is split at the commas of its outermost level, and only the values of keys
that somebody asks for are evaluated, each by itself, with ``ast.literal_eval`` (data only, never code) and
within limits.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

MAX_LENGTH = 32_000
MAX_DEPTH = 40
MAX_ITEMS = 2_000
MAX_VALUE = 2_000
_OPEN = {"{": "}", "(": ")", "[": "]", "<": ">"}
_CLOSE = frozenset("})]>")


def items(text: str, start: int = 0) -> Iterator[tuple[str, str]]:
    """(key, value text) of the outermost level of the dict, call or comma list that begins at `start`.

    An opening ``{`` or ``Name(`` belongs to the list and ends it when it closes; text that ends early (a
    truncated log) gives the items that are whole.
    """
    begin, closing = _opening(text, start)
    key_ends = (":", "=") if closing != "}" else (":",)
    depth, quote, at, key, given = 0, "", begin, "", 0
    piece = begin
    end = min(len(text), begin + MAX_LENGTH)
    while at < end and given < MAX_ITEMS:
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                return
        elif letter in _CLOSE and depth == 0:
            if letter == closing:
                break
        elif letter in _CLOSE:
            depth -= 1
        elif depth == 0 and letter == ",":
            if key:
                yield key, text[piece:at].strip()
                given += 1
            key, piece = "", at + 1
        elif depth == 0 and not key and letter in key_ends:
            key, piece = text[piece:at].strip().strip("'\""), at + 1
        at += 1
    whole = at < len(text) or not closing
    if key and whole and not quote and depth == 0 and at < begin + MAX_LENGTH:
        yield key, text[piece:at].strip()


def _opening(text: str, start: int) -> tuple[int, str]:
    """Where the items begin, and the bracket that ends them ("" for a bare list)."""
    at = start
    while at < len(text) and text[at] in " \t:=":
        at += 1
    if at < len(text) and text[at] == "{":
        return at + 1, "}"
    name_end = at
    while (
        name_end < len(text) and name_end - at < 60 and (text[name_end].isalnum() or text[name_end] in "_.")
    ):
        name_end += 1
    if name_end < len(text) and text[name_end] == "(":
        return name_end + 1, ")"
    return at, ""


def value_of(text: str) -> object:
    """The value that a printed literal stands for; a bare word (``torch.bfloat16``, ``fp8``) is its text.

    Raises ValueError for anything else.
    """
    if len(text) > MAX_VALUE:
        raise ValueError("too long for a setting")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        word = text.strip()
        if word and all(letter.isalnum() or letter in "_.-/:" for letter in word):
            return word
        raise ValueError(f"{text[:40]!r} is no literal") from error
