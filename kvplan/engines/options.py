"""Options that one engine alone has: declared as data, checked in one place, offered by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record
from kvplan.units import parse_bytes, parse_tokens

Value = int | bool | str | Fraction | tuple[int, ...] | tuple[Fraction, ...] | tuple[str, ...]


@record()
class EngineOption:
    """An option of one engine.

    kind: count (whole number), flag, word (one of ``choices``), share (a part of 1), ratio (0 or more), size
    (bytes, ``16GiB``), map (JSON, kept as such a text), retention (``sinks:4,window:4096``, kept as such a
    text); counts, shares, ratios and words are lists with commas.
    flags: short forms beside ``--name-with-hyphens``. served: False where it says what there is, and is no
    flag of the server. planned: a plan may say it all the same, under ``serve``. example:
    of a map.
    """

    name: str
    kind: str
    help: str
    default: Value | None = None
    choices: tuple[str, ...] = ()
    lowest: int = 1
    highest: int = 10**15
    flags: tuple[str, ...] = ()
    served: bool = True
    example: str = "{}"
    planned: bool = False

    def parse(self, value: object) -> Value:
        """The option's value from a text or a number. Raises KvplanError(bad-setting)."""
        try:
            return self._parse(value)
        except (ValueError, TypeError, ZeroDivisionError, RecursionError):
            raise KvplanError("bad-setting", f"{self.name} is {value!r}", help=self.expected()) from None

    def _parse(self, value: object) -> Value:
        if self.kind == "flag":
            if isinstance(value, bool):
                return value
            return {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}[
                _known(str(value).lower(), ("true", "on", "1", "false", "off", "0"))
            ]
        if self.kind == "word":
            word = str(value).lower()
            return next((known for known in self.choices if known.lower() == word), None) or _known(word, ())
        if self.kind == "map":
            return _map(value)
        if self.kind == "retention":
            return _retention(value)
        if self.kind == "words":
            listed = value if isinstance(value, (tuple, list)) else str(value).split(",")
            return tuple(_name(piece) for piece in listed)
        if self.kind in ("counts", "shares", "ratios"):
            pieces = value if isinstance(value, (tuple, list)) else str(value).strip("[] ").split(",")
            if self.kind == "counts":
                return tuple(self._count(piece) for piece in pieces)
            return tuple(_share(piece, most=1 if self.kind == "shares" else None) for piece in pieces)
        if isinstance(value, bool):
            raise TypeError
        if self.kind == "count":
            return self._count(value)
        if self.kind == "size":
            return parse_bytes(value) if isinstance(value, str) else self._count(value)
        return _share(value, most=1 if self.kind == "share" else None)

    def _count(self, value: object) -> int:
        number = int(str(value))
        if not self.lowest <= number <= self.highest:
            raise ValueError
        return number

    def expected(self) -> str:
        """What a right value looks like."""
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


def _share(value: object, most: int | None) -> Fraction:
    share = Fraction(str(value))
    if share < 0 or (most is not None and share > most):
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


@record()
class Options:
    """Every option of an engine with its value: as given, else its default."""

    values: Mapping[str, Value | None]

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def word(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str)
        return value

    def count(self, name: str) -> int | None:
        value = self.values[name]
        assert value is None or isinstance(value, int)
        return value

    def share(self, name: str) -> Fraction | None:
        value = self.values[name]
        assert value is None or isinstance(value, Fraction)
        return value

    def numbers(self, name: str) -> tuple[Fraction, ...]:
        """The entries of a list, whole or not; none where it was not given."""
        value = self.values[name]
        assert value is None or isinstance(value, tuple)
        return tuple(Fraction(entry) for entry in value or ())

    def ratios(self, name: str) -> tuple[Fraction, ...]:
        """The numbers of a list; none where it was not given."""
        value = self.values[name]
        assert value is None or isinstance(value, tuple)
        return tuple(Fraction(entry) for entry in value or ())

    def words(self, name: str) -> tuple[str, ...]:
        """The names of a list; none where it was not given."""
        value = self.values[name]
        assert value is None or isinstance(value, tuple)
        return tuple(str(entry) for entry in value or ())


def resolve(options: tuple[EngineOption, ...], given: Mapping[str, object], engine: str) -> Options:
    """The engine's options from what was given. Raises KvplanError(unknown-option | bad-setting)."""
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            near = did_you_mean(name, known)
            raise KvplanError(
                "unknown-option",
                f"{engine} has no option {name!r}",
                help=f"did you mean {near}?" if near else f"options of {engine}: " + ", ".join(known),
            )
    return Options(
        {
            name: option.parse(given[name]) if name in given else option.default
            for name, option in known.items()
        }
    )


LORA = (
    EngineOption("enable_lora", "flag", "Room for LoRA adapters beside the weights.", default=False),
    EngineOption("max_lora_rank", "count", "Largest rank of an adapter (vLLM's default: 16)."),
    EngineOption(
        "lora_target_modules",
        "words",
        "Modules that may have adapters, such as qkv_proj,o_proj (vLLM: all by default).",
    ),
)
"""Options of the engines that serve LoRA adapters."""
LENGTH = (
    EngineOption(
        "any_length",
        "flag",
        "With max_model_len: one longer than the config's is let through.",
        default=False,
    ),
    EngineOption(
        "config_length",
        "count",
        "max_position_embeddings, where an override of the config says another.",
    ),
)
"""Options of the engines that refuse a context longer than the config's."""
RETENTION = EngineOption(
    "kv_retention",
    "retention",
    "Tokens of a request that stay: first and newest ones, sinks:4,window:4096 (default: all).",
)
"""Option of the engines that can drop tokens which the model itself would keep."""
