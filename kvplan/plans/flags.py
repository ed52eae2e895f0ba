"""An engine's flags as a plan writes them: which setting each means, and what its values look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import field, record
from kvplan.settings import LONGEST, known_method
from kvplan.units import parse_bytes

KINDS = {
    "count": "a whole number",
    "length": "a whole number of tokens",
    "longest": "a whole number of tokens, or auto",
    "size": "bytes, or a text with a unit such as 16GiB",
    "number": "a number such as 0.9",
    "switch": "true or false",
    "word": "a word",
    "list": "a list of numbers",
    "map": "a mapping such as {image: 2, video: 0}",
    "speculative": "{method: mtp, num_speculative_tokens: 1}, or with model: in place of method",
    "kept": "a word, a number, true or false",
}
"""Kind of a flag → what a right value is."""
_METHOD, _MODEL, _TOKENS = "method", "model", "num_speculative_tokens"


@record()
class Flag:
    """One flag. name: the engine's own, with underscores. setting: the field of Settings or the engine's own
    option that it sets; None: it changes no memory and is only kept. own: what checks an own option's value.
    """

    name: str
    kind: str
    setting: str | None
    own: Callable[[object], object] | None = None


@record()
class EngineFlags:
    """The flags of an engine. spec: ``name@version`` with the version written out. note: what was filled in.

    short: other spellings, which are refused with the long name. spread: the setting that takes all GPUs
    of a replica by itself, where the engine has no flag for it. foreign: other engines' flags → why not here.
    """

    engine: str
    spec: str
    flags: Mapping[str, Flag]
    short: Mapping[str, str]
    note: str | None = None
    spread: str | None = None
    foreign: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> Flag:
        """The flag of that name. Raises KvplanError(short-flag | unknown-flag)."""
        found = self.flags.get(name)
        if found is not None:
            return found
        plain = name.lstrip("-").replace("-", "_")
        if plain in self.flags:
            raise KvplanError("unknown-flag", f"`{name}` is not how a plan writes it", help=f"write {plain}")
        if plain in self.short:
            raise KvplanError("short-flag", f"`{name}` is a short form", help=f"write {self.short[plain]}")
        if plain in self.foreign:
            raise KvplanError("unknown-flag", f"{self.engine} has no `{name}`", help=self.foreign[plain])
        near = did_you_mean(plain, self.flags)
        known = ", ".join(sorted(self.flags))
        raise KvplanError(
            "unknown-flag",
            f"{self.engine} has no flag `{name}` that kvplan knows",
            help=f"did you mean {near}?" if near else f"flags of {self.engine}: {known}",
        )


def parse_flag(flag: Flag, value: Any) -> Any:
    """The value of ``flag`` as Settings takes it; (method, tokens, model's name) for speculation.

    Raises KvplanError(bad-flag).
    """
    try:
        parsed = _PARSERS[flag.kind](value)
        return parsed if flag.own is None else flag.own(parsed)
    except (ValueError, TypeError):
        raise KvplanError("bad-flag", f"`{flag.name}` is {KINDS[flag.kind]}, not {shown(value)}") from None


def shown(value: Any) -> str:
    """A value of a YAML file in a message."""
    text = json.dumps(value) if isinstance(value, (bool, dict, list)) or value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def kept(value: Any) -> object:
    """A flag's value as the plan keeps it: what was written; mappings as JSON, lists as tuples."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return tuple(value) if isinstance(value, list) else value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _longest(value: Any) -> int:
    return LONGEST if value in ("auto", LONGEST) and not isinstance(value, bool) else _count(value)


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return parse_bytes(str(value))


def _number(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        raise TypeError
    return Fraction(str(value))


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value.strip()


def _list(value: Any) -> tuple[Any, ...]:
    pieces = value.split(",") if isinstance(value, str) else value
    if not isinstance(pieces, (list, tuple)) or any(
        isinstance(piece, (bool, dict, list)) for piece in pieces
    ):
        raise TypeError
    return tuple(pieces)


def _map(value: Any) -> Any:
    if not isinstance(value, (dict, str)):
        raise TypeError
    return value


def _speculative(value: Any) -> tuple[str | None, int, str | None]:
    entry = json.loads(value) if isinstance(value, str) else value
    if not isinstance(entry, dict) or not set(entry) <= {_METHOD, _MODEL, _TOKENS} or len(entry) < 2:
        raise TypeError
    tokens = _count(entry.get(_TOKENS))
    if tokens < 1:
        raise ValueError
    method, model = entry.get(_METHOD), entry.get(_MODEL)
    return (
        None if method is None else known_method(_word(method)),
        tokens,
        None if model is None else _word(model),
    )


def _kept(value: Any) -> object:
    if isinstance(value, (dict, list)):
        raise TypeError
    return value


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "count": _count,
    "length": _count,
    "longest": _longest,
    "size": _size,
    "number": _number,
    "switch": _switch,
    "word": _word,
    "list": _list,
    "map": _map,
    "speculative": _speculative,
    "kept": _kept,
}
