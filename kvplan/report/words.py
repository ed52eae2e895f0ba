"""Numbers and names as people read them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from fractions import Fraction

from kvplan.engines.folders import title_of
from kvplan.results import EngineRef, SizeResult
from kvplan.units import BILLION, GIB, KIB, MIB, human_bytes

_UNITS = (("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1))


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 request``, ``1,024 requests``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def of_bytes(amount: float | Fraction) -> str:
    """``65,536 B``; a fraction of a byte with two decimals: ``1,365.33 B``."""
    fraction = Fraction(amount)
    if fraction.denominator == 1:
        return f"{fraction.numerator:,} B"
    hundredths = (fraction.numerator * 200 + fraction.denominator) // (2 * fraction.denominator)
    return f"{hundredths // 100:,}.{hundredths % 100:02d} B"


def billions(parameters: int) -> str:
    """``8.2 B``; of fewer than a tenth of one two digits: ``0.067 B``."""
    amount = parameters / BILLION
    return f"{amount:.1f} B" if amount >= 0.1 else f"{amount:.2g} B"


def two_digits(value: Fraction | float) -> int:
    """An estimate: its first two digits, and zeros."""
    whole = round(value)
    unit: int = 10 ** max(len(str(whole)) - 2, 0)
    return round(Fraction(whole, unit)) * unit


def about(seconds: Fraction | float) -> str:
    """``24 ms``, ``1.7 s``, ``20 s``: an estimate has two digits."""
    if seconds < 1:
        return f"{two_digits(seconds * 1000):,} ms"
    return f"{float(seconds):.1f} s" if seconds < 10 else f"{two_digits(seconds):,} s"


def between(low: Fraction | float, high: Fraction | float) -> str:
    """``49 … 180 ms``, ``360 ms … 5.6 s``."""
    first, last = about(low), about(high)
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} … {last}"


class Unit:
    """One unit for a whole column, chosen so that the largest figure says something."""

    def __init__(self, amounts: Iterable[int]) -> None:
        largest = max(amounts, default=0)
        fitting = (pair for pair in _UNITS if largest * 100 >= pair[1])
        self.name, self.size = _UNITS[0] if largest == 0 else next(fitting, _UNITS[-1])

    def show(self, amount: int) -> str:
        """Two decimals, rounded half up in whole numbers; bytes have none."""
        if self.size == 1:
            return f"{amount:,}"
        hundredths = (amount * 200 + self.size) // (2 * self.size)
        return f"{hundredths // 100:,}.{hundredths % 100:02d}"


def size_words(amount: int) -> str:
    """``8.00 GiB``, in a smaller unit where that would read 0.00."""
    return human_bytes(amount)


def engine_title(engine: EngineRef) -> str:
    """``vLLM 0.32``."""
    title = title_of(engine.name)
    return title if engine.name == "generic" else f"{title} {engine.version}"


def gpus_in_replica(result: SizeResult) -> int:
    """GPUs of one replica: tensor times pipeline parallel size."""
    return int(result.settings.get("tensor_parallel_size") or 1) * int(
        result.settings.get("pipeline_parallel_size") or 1
    )


def attention_ranks(result: SizeResult) -> int:
    """Groups of a replica's GPUs that each run requests of their own (data-parallel attention); 1 without."""
    if result.settings.get("enable_attention_dp"):
        return int(result.settings.get("tensor_parallel_size") or 1)
    return int(result.settings.get("attn_dp_size") or 1)


def gpus_of_request(result: SizeResult) -> int:
    """GPUs that hold a part of one request."""
    return gpus_in_replica(result) // attention_ranks(result)


def request_ranks(result: SizeResult) -> tuple[int, str]:
    """(how many ranks each hold the requests that an answer counts, their name): 1 where there is one."""
    apart = attention_ranks(result)
    if apart > 1:
        return apart, "attention ranks"
    return int(result.settings.get("data_parallel_size") or 1), "data-parallel ranks"


def settings_words(settings: Mapping[str, object]) -> str:
    """``dtype bfloat16, block_size 16``: the settings that say something, in the engine's order."""
    shown = [
        f"{name} {_value(value)}"
        for name, value in settings.items()
        if value is not None and not (name.endswith("parallel_size") and value == 1)
    ]
    return ", ".join(shown)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return "+".join(_value(entry) for entry in value)
    return str(value)


def command(*words: str) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(words)


NOTHING_SAID = 0.9
"""An interval of a share that is wider says only that the pessimistic run is another world."""


def in_time_words(low: float, likely: float, high: float) -> str:
    """``98.2 % in time (97.0 … 99.9)``; where the interval is nearly all there is, what that means:
    ``likely 100.0 % in time (not safely: 0.0 % at worst)``."""
    if high - low > NOTHING_SAID:
        return f"likely {likely * 100:.1f} % in time (not safely: {low * 100:.1f} % at worst)"
    return f"{likely * 100:.1f} % in time ({low * 100:.1f} … {high * 100:.1f})"
