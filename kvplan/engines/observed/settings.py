"""Which of an engine's printed settings kvplan knows, and under which name of its own.

Logs print whole configurations (``{'model': 'x', …}``, ``Namespace(model='x', …)``), with objects among the
values that no parser can read (``<Enum: 1>``, ``PosixPath('x')``). So the text is split at the commas of its
outermost level, and only the values of keys that somebody asks for are evaluated, each by itself, with
``ast.literal_eval`` (data only, never code) and within limits.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvplan.engines.observed import Count, Ratio, Setting, SettingValue
from kvplan.engines.observed.printed import parse_decimal

MAX_LENGTH = 32_000
MAX_DEPTH = 40
MAX_ITEMS = 2_000
MAX_VALUE = 2_000
_OPEN = {"{": "}", "(": ")", "[": "]", "<": ">"}
_CLOSE = frozenset("})]>")


def settings_from(
    text: str, start: int, known: Mapping[str, str], *, line: int, source: str
) -> dict[str, Setting]:
    """The known settings among the printed items that begin at `start`; unreadable values are left out."""
    found: dict[str, Setting] = {}
    for key, value_text in items(text, start):
        if key == "speculative_config":
            found.update(_speculative(value_text, line, source))
        elif key == "kv_transfer_config":
            found.update(_connector(value_text, line, source))
        elif key in known:
            try:
                found[known[key] or key] = Setting(plain(value_of(value_text)), line, source)
            except ValueError:
                continue
    return found


def plain(value: object) -> SettingValue:
    """A literal as a setting: floats become exact fractions of their printed digits, lists and dicts their
    text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _fraction(repr(value))
    if isinstance(value, str):
        return value.removeprefix("torch.")[:400]
    return str(value)[:400]


def from_text(text: str) -> SettingValue:
    """A setting that was printed without quotes, as Prometheus labels are: 16, 0.9, True, None, auto."""
    words: dict[str, SettingValue] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if len(text) <= 30:
        try:
            value = parse_decimal(text) if text.strip() == text else None
        except ValueError:
            value = None
        if value is not None:
            return int(value) if value.denominator == 1 and "." not in text else value
    return text[:400]


def from_figure(figure: Count | Ratio | str | None, line: int, source: str) -> Setting:
    """A figure or word that a line of its own told, as a setting."""
    if isinstance(figure, Count | Ratio):
        return Setting(figure.value, line, source)
    return Setting(from_text(figure) if isinstance(figure, str) else None, line, source)


def _fraction(text: str) -> SettingValue:
    try:
        return parse_decimal(text)
    except ValueError:
        try:
            return Fraction(text)
        except (ValueError, OverflowError, ZeroDivisionError):
            return text


def _speculative(text: str, line: int, source: str) -> dict[str, Setting]:
    """Method and number of draft tokens out of vLLM's speculative_config (a dict, or a printed object)."""
    names = {
        "method": "speculative_method",
        "num_speculative_tokens": "num_speculative_tokens",
        "num_spec_tokens": "num_speculative_tokens",
        "model": "speculative_model",
    }
    found: dict[str, Setting] = {}
    for key, value in items(text):
        if key in names:
            try:
                found[names[key]] = Setting(plain(value_of(value)), line, source)
            except ValueError:
                continue
    return found


_CONNECTOR = ("kv_connector", "kv_role", "kv_connector_module_path", "kv_connector_extra_config")


def _connector(text: str, line: int, source: str) -> dict[str, Setting]:
    """vLLM's kv_transfer_config (a printed object) as the JSON of its option, without ports and buffers."""
    said: dict[str, object] = {}
    for key, value in items(text):
        if key in _CONNECTOR:
            try:
                found = value_of(value)
            except ValueError:
                continue
            if found is not None:
                said[key] = found
    try:
        shown = json.dumps(said) if "kv_connector" in said else None
    except (TypeError, ValueError):  # a set, or bytes, among what a connector of its own is given
        shown = None
    return {} if shown is None else {"kv_transfer_config": Setting(shown, line, source)}


def items(text: str, start: int = 0) -> Iterator[tuple[str, str]]:
    """(key, value text) of the outermost level of the dict, call or comma list that begins at `start`.

    An opening ``{`` or ``Name(`` belongs to the list and ends it when it closes; text that ends early (a
    truncated log) gives the items that are whole.
    """
    begin, closing = _opening(text, start)
    key_ends = (":", "=") if closing != "}" else (":",)
    piece, key, given = begin, "", 0
    for at, mark in _marks(text, begin, {",", closing, *key_ends}):
        if mark in (",", closing):
            if key:
                yield key, text[piece:at].strip()
                given += 1
            if mark == closing or given == MAX_ITEMS:
                return
            key, piece = "", at + 1
        elif mark in key_ends and not key:
            key, piece = text[piece:at].strip().strip("'\""), at + 1


def _marks(text: str, begin: int, marks: set[str]) -> Iterator[tuple[int, str]]:
    """(place, mark) outside quotes and inner brackets, the text's end as "" where it is outside them too."""
    depth, quote, at = 0, "", begin
    end = min(len(text), begin + MAX_LENGTH)
    while at < end:
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
        elif letter in _CLOSE and depth:
            depth -= 1
        elif not depth and letter in marks:
            yield at, letter
        at += 1
    if not quote and not depth and at == len(text) < begin + MAX_LENGTH:
        yield at, ""


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
