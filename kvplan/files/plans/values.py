"""The words of a plan: percentages, durations, ages, sizes and lengths, each with one meaning.

`by` makes a pydantic type of a parser; its complaints keep their help lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.plans.workload import LEAST_CV, MOST_CV
from kvplan.units import parse_bytes, parse_tokens

MOST_TOKENS = 10**9
MOST_REQUESTS = 10**9
MOST_GPUS = 100_000
MOST_BYTES = 10**18
MOST_DAYS = 36_500
MOST_SEED = 2**53
"""Every whole number up to here is the same in JSON."""
_PERCENT = regex(r"(\d{1,9})(?:\.(\d{1,9}))?\s*%", re.ASCII)
_DURATION = regex(r"(\d{1,9})(?:\.(\d{1,9}))?\s*(ms|s|min|h)", re.ASCII)
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}
_AGE = regex(r"(\d{1,6})\s*d", re.ASCII)


def by(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Make a pydantic type of a parser; a KvplanError becomes its complaint."""

    def take(value: Any) -> Any:
        try:
            return parse(value)
        except KvplanError as error:
            # pydantic fills braces of a message from the context.
            context = {"what": error.message, "help": list(error.help)}
            raise PydanticCustomError("kvplan", "{what}", context) from None

    return BeforeValidator(take)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def wrong(value: Any, what: str, *helps: str) -> KvplanError:
    """``this must be WHAT, not VALUE``."""
    return KvplanError("invalid-plan", f"this must be {what}, not {_shown(value)}", help=helps)


def gpu_name(value: object) -> str:
    """The name of a GPU; one that is digits alone (4090) needs no quotes."""
    return text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def whole(lowest: int, highest: int, what: str = "a whole number") -> Callable[[Any], int]:
    """A parser of whole numbers within bounds."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(value, what)
        if not lowest <= value <= highest:
            raise KvplanError(
                "invalid-plan", f"this must lie in {lowest:,} … {highest:,}, not {_shown(value)}"
            )
        return value

    return parse


def tokens(value: Any) -> int:
    """4096 or "4k" (4,096): as on the command line, k is 1,024."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise wrong(value, "a number of tokens such as 4096 or 4k")
    return whole(1, MOST_TOKENS)(parse_tokens(value) if isinstance(value, str) else value)


def some_tokens(value: object) -> int:
    """As `tokens`; 0 is a number too."""
    return 0 if value == 0 and not isinstance(value, (bool, float)) else tokens(value)


def size(value: Any) -> int:
    """A text with a unit, or so many bytes that they can be nothing else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise wrong(value, "a size such as 20GiB")
    return whole(0, MOST_BYTES)(0 if value == 0 else parse_bytes(str(value)))


def rate(value: Any) -> int:
    """Bytes a second: a size, with ``/s`` behind it or without."""
    return size(value.strip().removesuffix("/s").rstrip() if isinstance(value, str) else value)


def percent(value: object) -> Fraction:
    """``10%`` as a part of 1; a bare number could be either and is refused."""
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wrong(value, "a percentage", "write, for example, 10%")
    decimals = match[2] or ""
    share = Fraction(int(match[1] + decimals), 100 * 10 ** len(decimals))
    if share > 1:
        raise KvplanError("invalid-plan", f"this must be at most 100%, not {_shown(value)}")
    return share


def free_share(value: object) -> Fraction:
    """A percentage below 100: what is kept free cannot be everything."""
    share = percent(value)
    if share == 1:
        raise KvplanError("invalid-plan", "100% would leave nothing to use")
    return share


def duration(value: object) -> Fraction:
    """``2s``, ``50ms``, ``1.5min`` in seconds."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wrong(value, "a time with its unit", "write, for example, 2s or 50ms")
    decimals = match[2] or ""
    seconds = Fraction(int(match[1] + decimals), 10 ** len(decimals)) * _SECONDS[match[3]]
    if seconds == 0:
        raise wrong(value, "longer than nothing")
    return seconds


def age(value: object) -> int:
    """``90d`` in days."""
    match = _AGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise wrong(value, "an age in days", "write, for example, 90d")
    return whole(1, MOST_DAYS)(int(match[1]))


def amount(value: object) -> Fraction:
    """A positive number, exactly as written."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(value, "a number")
    exact = Fraction(str(value))
    if not 0 < exact <= 10**12:
        raise KvplanError("invalid-plan", f"this must be above 0 and at most 10^12, not {_shown(value)}")
    return exact


def percentile(value: object) -> Fraction:
    """``99`` or ``99.9``: a percentile between nothing and all."""
    exact = amount(value)
    if exact >= 100:
        raise wrong(value, "a percentile below 100", "write, for example, 99 or 99.9")
    return exact


def spread(value: object) -> Fraction:
    """The coefficient of variation of gaps, as far as arrivals can be drawn with it."""
    exact = amount(value)
    if not LEAST_CV <= exact <= MOST_CV:
        raise wrong(value, f"between {float(LEAST_CV):g} and {MOST_CV}", "1 is Poisson, 2.5 is bursty")
    return exact


def text(value: Any) -> str:
    """A text on one line that is not empty."""
    if not isinstance(value, str) or not value.strip():
        quoted = [f'put it in quotes: "{value}"'] if isinstance(value, (int, float)) else []
        raise wrong(value, "text", *quoted)
    if "\n" in value:
        raise wrong(value, "a text on one line")
    return value


def share_text(share: Fraction) -> str:
    """``10%``: the other way round. Raises KvplanError(unwritable) where the decimals do not end."""
    return f"{decimal_text(share * 100)}%"


def decimal_text(value: Fraction) -> str:
    """A fraction whose decimals end, as a plain decimal. Raises KvplanError(unwritable)."""
    for digits in range(19):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            whole_part, part = divmod(scaled.numerator, 10**digits)
            return f"{whole_part}.{part:0{digits}d}" if digits else str(whole_part)
    raise KvplanError("unwritable", f"{value} has no short decimal form")


_TOKENS = {"type": ["integer", "string"], "description": "tokens; k is 1,024"}
_SIZE = {"type": ["integer", "string"], "description": "bytes, or a size with its unit: 20GiB"}
_RATE = {"type": ["integer", "string"], "description": "bytes a second, or with a unit: 50GB/s"}
_PERCENT_TEXT = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}
Text = Annotated[Any, by(text), WithJsonSchema({"type": "string", "minLength": 1})]
GpuName = Annotated[Any, by(gpu_name), WithJsonSchema({"type": ["string", "integer"], "minLength": 1})]
Tokens = Annotated[Any, by(tokens), WithJsonSchema(_TOKENS)]
SomeTokens = Annotated[Any, by(some_tokens), WithJsonSchema(_TOKENS)]
Size = Annotated[Any, by(size), WithJsonSchema(_SIZE)]
Rate = Annotated[Any, by(rate), WithJsonSchema(_RATE)]
Percent = Annotated[Any, by(percent), WithJsonSchema(_PERCENT_TEXT)]
FreeShare = Annotated[Any, by(free_share), WithJsonSchema(_PERCENT_TEXT)]
Duration = Annotated[
    Any, by(duration), WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*(ms|s|min|h)$"})
]
Age = Annotated[Any, by(age), WithJsonSchema({"type": "string", "pattern": r"^\d+\s*d$"})]
Amount = Annotated[Any, by(amount), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
Percentile = Annotated[
    Any, by(percentile), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100})
]
Spread = Annotated[
    Any,
    by(spread),
    WithJsonSchema({"type": "number", "minimum": float(LEAST_CV), "maximum": MOST_CV}),
]
Seed = Annotated[
    Any, by(whole(0, MOST_SEED)), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_SEED})
]
Requests = Annotated[
    Any,
    by(whole(1, MOST_REQUESTS)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_REQUESTS}),
]
GpuCount = Annotated[
    Any, by(whole(1, MOST_GPUS)), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_GPUS})
]
