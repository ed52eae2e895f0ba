"""Options that one engine alone has: typed records, checked in one place, offered by the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from kvplan.errors import KvplanError
from kvplan.own_options import OwnOptions
from kvplan.record import field, fields, record, replace
from kvplan.settings import Layout
from kvplan.units import parse_bytes, parse_tokens

Value = int | bool | str | Fraction | tuple[int, ...] | tuple[Fraction, ...] | tuple[str, ...]
LISTS = ("counts", "shares", "ratios", "words")
"""Kinds of options whose value is a list; one that was not given is empty."""


@record()
class EngineOption:
    """An option of one engine."""

    name: str
    kind: str
    """count (whole number), flag, word (one of ``choices``), share (a part of 1), ratio (0 or more), size
    (bytes, ``16GiB``), map (JSON, kept as such a text), retention (``sinks:4,window:4096``, kept as
    such a text); counts, shares, ratios and words are lists with commas"""
    help: str
    default: Value | None = None
    choices: tuple[str, ...] = ()
    lowest: int = 1
    highest: int = 10**15
    flags: tuple[str, ...] = ()
    """short forms beside ``--name-with-hyphens``"""
    served: bool = True
    """False where it says what there is, and is no flag of the server"""
    example: str = "{}"
    """of a map"""
    planned: bool = False
    """a plan may say it all the same, under ``serve``"""

    def parse(self, value: object) -> Value:
        """The option's value from a text or a number. Raises KvplanError(bad-setting)."""
        try:
            return self._parse(value)
        except (ValueError, TypeError, ZeroDivisionError, RecursionError):
            raise KvplanError("bad-setting", f"{self.name} is {value!r}", help=self.expected()) from None

    def _parse(self, value: object) -> Value:
        if self.kind == "word":
            word = str(value).lower()
            return next((known for known in self.choices if known.lower() == word), None) or _known(word, ())
        if self.kind == "counts":
            return tuple(self._count(piece) for piece in _pieces(value))
        if self.kind == "size" and isinstance(value, str):
            return parse_bytes(value)
        return self._count(value) if self.kind in ("count", "size") else _READERS[self.kind](value)

    def _count(self, value: object) -> int:
        number = int(str(value))
        if not self.lowest <= number <= self.highest:
            raise ValueError
        return number

    def expected(self) -> str:
        """A description of a valid value."""
        if self.kind == "word":
            return f"{self.name} is one of " + ", ".join(self.choices)
        return {
            "count": f"{self.name} is a whole number, {self.lowest} or more"
            + (f", at most {self.highest:,}" if self.highest < 10**15 else ""),
            "flag": f"{self.name} is true or false",
            "size": f"{self.name} is a number of bytes, such as 16GiB",
            "share": f"{self.name} lies in 0 … 1",
            "ratio": f"{self.name} is 0 or more",
            "counts": f"{self.name} is a list of whole numbers, such as 512,32768",
            "shares": f"{self.name} is a list of parts of 1, such as 0.4,0.6",
            "ratios": f"{self.name} is a list of numbers of 0 or more, such as 3,1",
            "words": f"{self.name} is a list of names, such as q_proj,v_proj",
            "map": f"{self.name} is a JSON object, such as {self.example}",
            "retention": f"{self.name} is the newest tokens that stay, and the first ones if any:"
            " window:4096 or sinks:4,window:4096",
        }[self.kind]


_LONGEST_SHARE, _LARGEST_POWER = 100, 15


def _share(value: object, most: int | None) -> Fraction:
    text = str(value)
    _, _, power = text.lower().partition("e")
    # A power is written out by the fraction: 1e9999999 takes seconds, and is no part of anything.
    if len(text) > _LONGEST_SHARE or (power and abs(int(power)) > _LARGEST_POWER):
        raise ValueError
    share = Fraction(text)
    if share < 0 or share > 10**_LARGEST_POWER or (most is not None and share > most):
        raise ValueError
    return share


def _name(piece: object) -> str:
    word = str(piece).strip()
    if not word or len(word) > 200 or not all(sign.isalnum() or sign in "._-" for sign in word):
        raise ValueError(word)
    return word


_LONGEST_MAP = 4096


def _map(value: object) -> str:
    """A mapping, its JSON, or ``image=2,video=0``, as one JSON text with its keys in order."""
    found: object = value
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LONGEST_MAP:
            raise ValueError
        pairs = (piece.split("=") for piece in text.split(","))
        found = json.loads(text) if text.startswith("{") else {name: int(count) for name, count in pairs}
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise TypeError
    return json.dumps(found, sort_keys=True, allow_nan=False)


def _retention(value: object) -> str:
    """``window:4k`` or ``sinks:4,window:4096`` with every number written out, sinks first."""
    pairs = [piece.split(":") for piece in str(value).lower().replace(" ", "").split(",")]
    found = {name: parse_tokens(count) for name, count in pairs}
    if len(found) != len(pairs) or not {"window"} <= found.keys() <= {"sinks", "window"}:
        raise ValueError
    sinks, window = found.get("sinks", 0), found["window"]
    if not window:
        raise ValueError
    return f"sinks:{sinks},window:{window}"


def _known(word: str, choices: Iterable[str]) -> str:
    if word not in choices:
        raise ValueError(word)
    return word


def _flag(value: object) -> bool:
    return _known(str(value).lower(), ("true", "on", "1", "false", "off", "0")) in ("true", "on", "1")


def _pieces(value: object) -> Iterable[object]:
    return value if isinstance(value, (tuple, list)) else str(value).strip("[] ").split(",")


def _names(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, (tuple, list)) else str(value).split(",")
    return tuple(_name(piece) for piece in listed)


_READERS: Mapping[str, Callable[[object], Value]] = {
    "flag": _flag,
    "map": _map,
    "retention": _retention,
    "words": _names,
    "share": lambda value: _share(value, most=1),
    "ratio": lambda value: _share(value, most=None),
    "shares": lambda value: tuple(_share(piece, most=1) for piece in _pieces(value)),
    "ratios": lambda value: tuple(_share(piece, most=None) for piece in _pieces(value)),
}
"""Kinds of options that need nothing of the option itself."""


def option(kind: str, words: str, default: Value | None = None, **about: Any) -> Any:
    """A field of a record of options. words: its help; about: as `EngineOption` has it."""
    shown = EngineOption("", kind, words, default, **about)
    return field(default=() if kind in LISTS else default, metadata={"option": shown})


def options_of(kind: type[Any]) -> tuple[EngineOption, ...]:
    """The fields of a record of options, as the command line and files read them."""
    return tuple(replace(entry.metadata["option"], name=entry.name) for entry in fields(kind))


T = TypeVar("T", bound="EngineOptions")


@record()
class EngineOptions:
    """The options that one engine alone has, each with its value: as given, else its default."""

    @classmethod
    def of(cls: type[T], settings: Layout) -> T:
        """The engine's options among the settings. Raises KvplanError(bad-setting)."""
        found: T = _read(cls, settings.own)
        return found


def _made(kind: type[Any], own: OwnOptions) -> Any:
    given = [one for one in options_of(kind) if own.get(one.name) is not None] if own else ()
    return kind(**{one.name: one.parse(own[one.name]) for one in given})


_read: Callable[..., Any] = lru_cache(maxsize=4096)(_made)


@record()
class ServerOptions(EngineOptions):
    """Options that vLLM and SGLang share: LoRA adapters, and a context longer than the config's."""

    enable_lora: bool = option("flag", "Room for LoRA adapters beside the weights.", False)
    max_lora_rank: int | None = option("count", "Largest rank of an adapter (vLLM's default: 16).")
    lora_target_modules: tuple[str, ...] = option(
        "words", "Modules that may have adapters, such as qkv_proj,o_proj (vLLM: all by default)."
    )
    any_length: bool = option(
        "flag", "With max_model_len: one longer than the config's is let through.", False
    )
    config_length: int | None = option(
        "count", "max_position_embeddings, where an override of the config says another."
    )


@record()
class RetainingOptions(EngineOptions):
    """The option of engines that can drop tokens which the model itself would keep."""

    kv_retention: str | None = option(
        "retention",
        "Tokens of a request that stay: first and newest ones, sinks:4,window:4096 (default: all).",
    )


(RETENTION,) = options_of(RetainingOptions)
