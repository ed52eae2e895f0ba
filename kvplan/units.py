"""Bytes, binary and decimal units, and whole-number arithmetic. The only file that converts.

Whole numbers in proportion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from kvplan.errors import KvplanError
from kvplan.later import regex

Bytes = Annotated[int, ("minimum", 0), ("description", "bytes")]
Count = Annotated[int, ("minimum", 0)]
Positive = Annotated[int, ("minimum", 1)]
"""Whole numbers of an answer, with what its JSON Schema says of them (kvplan.report.schema)."""

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
KB, MB, GB, TB = 1000, 1000**2, 1000**3, 1000**4
SECOND = 10**9
"""Nanoseconds."""
BILLION = 10**9
"""Of parameters."""

_BYTE_UNITS = {
    "b": 1,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": KB, "mb": MB, "gb": GB, "tb": TB,
}  # fmt: skip
_AMOUNT = regex(r"\s*(\d{1,30})(?:\.(\d{1,12}))?\s*([A-Za-z]*)\s*", re.ASCII)
_TOKENS = regex(r"\s*(\d{1,15})\s*([kKmM]?)\s*", re.ASCII)
_GROUPED = regex(r"\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_TOKEN_UNITS = {"": 1, "k": KIB, "m": MIB}
MAX_TOKENS = 10**12


def ceil_div(amount: int, size: int) -> int:
    """Smallest whole number n with n * size >= amount."""
    return -(-amount // size)


def round_up(amount: int, step: int) -> int:
    """Smallest multiple of step that is >= amount."""
    return ceil_div(amount, step) * step


def parse_bytes(value: int | str) -> int:
    """A size in bytes from an int (bytes already) or a text with a unit.

    ``"80GiB"`` is 80 * 2**30 and ``"80GB"`` is 80 * 10**9. A text without a unit, or with a bare
    ``G``, could mean either and is refused; only a whole number of at least a MiB can be nothing but
    bytes, as the engines' own ``--kv-cache-memory-bytes`` takes them. Fractions are exact (``"1.5GiB"``);
    what is left of a byte is dropped. Raises KvplanError(bad-size).
    """
    if isinstance(value, bool):
        raise _bad_size(str(value), "a size is a number with a unit")
    if isinstance(value, int):
        if value < 0:
            raise _bad_size(str(value), "a size cannot be negative")
        return value
    if not isinstance(value, str):
        raise _bad_size(repr(value)[:60], "a size is a number with a unit")
    match = _AMOUNT.fullmatch(value)
    if match is None:
        raise _bad_size(value, "a size is a number with a unit")
    whole, fraction, unit = match[1], match[2] or "", match[3].lower()
    if not unit and not fraction and int(whole) >= MIB:
        return int(whole)
    if unit in ("", "k", "m", "g", "t"):
        letter = unit.upper() or "G"
        shown = match[1] + (f".{fraction}" if fraction else "")
        raise _bad_size(
            value,
            f"this could be {shown}{letter}iB (powers of 1024) or {shown}{letter}B (powers of 1000)",
            f"write {shown}{letter}iB or {shown}{letter}B",
        )
    if unit not in _BYTE_UNITS:
        raise _bad_size(value, f"unknown unit {match[3]!r}")
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * _BYTE_UNITS[unit] // scale


def _bad_size(
    text: str, why: str, help_line: str = "write, for example, 80GiB, 512MiB or 80GB"
) -> KvplanError:
    return KvplanError("bad-size", f"{text!r} is not a size: {why}", help=(help_line,))


def ungrouped(text: str) -> str:
    """The text without the commas between thousands (``32,768``) and underscores; other commas stay."""
    match = _GROUPED.match(text) if "," in text else None
    if match is not None:
        text = match[0].replace(",", "") + text[match.end() :]
    return text.replace("_", "")


def parse_tokens(value: int | str) -> int:
    """A number of tokens; k and M are 1024 and 1024**2, as in "a 128k context" (131,072 tokens)."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise KvplanError("bad-count", f"{repr(value)[:60]} is not a number of tokens")
    if isinstance(value, int):
        tokens = value
    else:
        match = _TOKENS.fullmatch(ungrouped(value.strip()))
        if match is None:
            raise KvplanError(
                "bad-count",
                f"{value!r} is not a number of tokens",
                help=("write, for example, 4096, 4k or 1M",),
            )
        tokens = int(match[1]) * _TOKEN_UNITS[match[2].lower()]
    if not 0 <= tokens <= MAX_TOKENS:
        raise KvplanError("bad-count", f"{value} tokens are outside 0 … {MAX_TOKENS:,}")
    return tokens


def gib(amount: int) -> str:
    """Two decimals in GiB, rounded half up in whole-number arithmetic: ``8.00 GiB``."""
    hundredths = (abs(amount) * 200 + GIB) // (2 * GIB)
    return f"{'-' if amount < 0 else ''}{hundredths // 100:,}.{hundredths % 100:02d} GiB"


def human_bytes(amount: int) -> str:
    """GiB with two decimals; below 0.01 GiB the unit in which the figure still says something."""
    if amount >= GIB // 100 or amount == 0:
        return gib(amount)
    for unit, size in (("MiB", MIB), ("KiB", KIB)):
        if amount >= size:
            hundredths = (amount * 200 + size) // (2 * size)
            return f"{hundredths // 100:,}.{hundredths % 100:02d} {unit}"
    return f"{amount} B"


def human_seconds(value: float) -> str:
    """``12.9 ms``, ``1.86 s``, ``418 s``."""
    if value < 0.1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def apportion(amount: int, weights: Sequence[int]) -> list[int]:
    """``amount`` in proportion to the weights as whole numbers that sum to it: the largest remainders get
    one more, earlier ones first. Weights are positive somewhere."""
    total = sum(weights)
    shares = [divmod(amount * weight, total) for weight in weights]
    counts = [whole for whole, _ in shares]
    order = sorted(range(len(shares)), key=lambda index: (-shares[index][1], index))
    for index in order[: amount - sum(counts)]:
        counts[index] += 1
    return counts
