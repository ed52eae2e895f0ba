"""The meaning of an unquoted YAML word, read so that no other YAML reader would understand it differently.

YAML 1.1 and YAML 1.2 give different values to the same word: ``no``, ``017``, ``1:30``, ``2026-01-02``.
kvplan takes neither side: such a word is an error that says how to write what was meant.
"""

from __future__ import annotations

import math
import re

from kvplan.later import regex
from kvplan.named import NamedTuple

Scalar = str | int | float | bool | None

_INT = regex(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = regex(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}

# Most values are words that begin with a letter and are not one of these; they are text at once.
_LETTER_TRAPS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})
_LEADING_ZERO = regex(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?")
_OCTAL_HEX_BINARY = regex(r"[-+]?0[oO][0-7_]+|[-+]?0[xX][0-9a-fA-F_]+|[-+]?0[bB][01_]+")
_SEXAGESIMAL = regex(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_UNDERSCORE = regex(r"[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?")
_BARE_EXPONENT = regex(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
_BARE_DOT = regex(r"[-+]?(?:\.[0-9]+|[0-9]+\.)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = regex(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = regex(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")

# More digits than any count of bytes can have; also keeps int() far from its own limit.
_MAX_DIGITS = 40


class Trap(NamedTuple):
    """Why a word is not read: error code, message, one or more help lines."""

    code: str
    message: str
    help: tuple[str, ...]


def read_plain(word: str) -> Scalar | Trap:
    """The value of an unquoted scalar, or the `Trap` it would be.

    Whole numbers are decimal; numbers with a point have digits on both sides; ``true``, ``false``, ``null``,
    ``~`` and nothing at all are the only other special words. Everything else is text.
    """
    if word in _WORDS:
        return _WORDS[word]
    if word[0].isalpha():
        return _letter_trap(word) if word.lower() in _LETTER_TRAPS else word
    if word.isdigit() and word.isascii() and word[0] != "0" and len(word) <= _MAX_DIGITS:
        return int(word)
    if _INT.fullmatch(word):
        return _too_long(word) if len(word) > _MAX_DIGITS else int(word)
    if _FLOAT.fullmatch(word):
        number = float(word)
        return number if math.isfinite(number) else _not_finite(word)
    return _number_trap(word) or word


def _letter_trap(word: str) -> Trap:
    lower = word.lower()
    if lower in {"true", "false"}:
        return Trap("yaml-boolean", f"`{word}` is written `{lower}` here", (f"write {lower}", _quote(word)))
    if lower == "null":
        return Trap("yaml-null", f"`{word}` is written `null` here", ("write null", _quote(word)))
    meant = "true" if lower in {"yes", "on"} else "false"
    return Trap(
        "yaml-boolean",
        f"`{word}` is a boolean to some YAML readers and text to others",
        (f"write {meant} for the boolean", _quote(word)),
    )


def _number_trap(word: str) -> Trap | None:
    if _DATE.fullmatch(word):
        return Trap(
            "yaml-date", f"`{word}` is a date to some YAML readers and text to others", (_quote(word),)
        )
    if _NOT_FINITE.fullmatch(word):
        return _not_finite(word)
    if _LEADING_ZERO.fullmatch(word):
        decimal = word.replace("_", "").lstrip("+-0") or "0"
        return Trap(
            "yaml-number",
            f"`{word}` begins with 0: some YAML readers take it as octal",
            (f"write {decimal} if that is the number", _quote(word)),
        )
    if _OCTAL_HEX_BINARY.fullmatch(word):
        value = int(word.replace("_", ""), 0)
        shown = f"write {value}" if len(word) <= _MAX_DIGITS else "write the number in decimal"
        return Trap("yaml-number", f"`{_short(word)}` is not a decimal number", (shown, _quote(word)))
    if _SEXAGESIMAL.fullmatch(word):
        return Trap(
            "yaml-number",
            f"`{_short(word)}` is a base-60 number to some YAML readers and text to others",
            (_quote(word),),
        )
    if _UNDERSCORE.fullmatch(word):
        return Trap(
            "yaml-number",
            f"`{_short(word)}` is a number to some YAML readers and text to others",
            (f"write {word.replace('_', '')} for the number", _quote(word)),
        )
    if _BARE_EXPONENT.fullmatch(word):
        mantissa, letter, exponent = re.split("([eE])", word, maxsplit=1)
        return Trap(
            "yaml-number",
            f"`{_short(word)}` is a number to some YAML readers and text to others",
            (f"write {_short(mantissa)}.0{letter}{_short(exponent)} for the number", _quote(word)),
        )
    if _BARE_DOT.fullmatch(word):
        return Trap(
            "yaml-number",
            f"`{_short(word)}` needs a digit on each side of its point",
            (f"write {_pad_dot(word)} for the number", _quote(word)),
        )
    return None


def _pad_dot(word: str) -> str:
    sign = word[0] if word[0] in "+-" else ""
    whole, _, rest = word[len(sign) :].partition(".")
    return f"{sign}{whole or '0'}.{rest if rest[:1].isdigit() else '0' + rest}"


def _not_finite(word: str) -> Trap:
    return Trap("yaml-number", f"`{_short(word)}` is not a finite number", ("write a finite number",))


def _too_long(word: str) -> Trap:
    return Trap("yaml-number", f"`{_short(word)}` has more than {_MAX_DIGITS} digits", (_quote(word),))


def _quote(word: str) -> str:
    return f'write "{_short(word)}" for the text'


def _short(word: str) -> str:
    return word if len(word) <= _MAX_DIGITS else word[: _MAX_DIGITS - 3] + "..."
