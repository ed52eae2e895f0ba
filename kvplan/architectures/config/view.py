"""A configuration seen through its class's aliases and defaults, remembering which key said what.

ModelOpt's hf_quant_config.json, which lies beside a config and travels with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.errors import KvplanError
from kvplan.record import Json

LARGEST = 2**31 - 1
MAX_LAYERS = 4096
MAX_FACTOR = 64
MAX_SIDE = 1024
"""Patches along one side that are merged into one."""


class Sourced(int):
    """A whole number that knows the config key it came from."""

    key: str

    def __new__(cls, value: int, key: str) -> Sourced:
        number = super().__new__(cls, value)
        number.key = key
        return number


class ConfigView:
    """Typed access to one (text) config. A missing key takes the class's default; an alias counts as the key.

    ``raw``: the JSON object; ``aliases``: other spelling → real key; ``path``: where the object lies in
    the file ("text_config."). Errors name the key and are KvplanError(bad-config | missing-key).
    """

    def __init__(
        self,
        raw: Json,
        *,
        model_type: str,
        defaults: Json,
        aliases: Mapping[str, str] | None = None,
        path: str = "",
    ) -> None:
        self.raw = raw
        self.model_type = model_type
        self.path = path
        self._defaults = defaults
        self._aliases: dict[str, str] = dict(aliases or {})
        self._spellings: dict[str, list[str]] = {}
        for alias, real in self._aliases.items():
            self._spellings.setdefault(real, []).append(alias)

    def real(self, key: str) -> str:
        """The name under which the class stores the key."""
        return self._aliases.get(key, key)

    def spellings(self) -> frozenset[str]:
        """The other spellings that the class takes."""
        return frozenset(self._aliases)

    def given(self, *keys: str) -> bool:
        """True when the file itself has one of the keys (under any spelling), even as null."""
        return any(self._spelling(key) is not None for key in keys)

    def known(self, key: str) -> bool:
        """True when the class itself has the key, whatever the file says (or when the class is not known)."""
        return not self._defaults or self.real(key) in self._defaults

    def _spelling(self, key: str) -> str | None:
        # An alias in a file overwrites the real key, as setattr on the class does.
        real = self.real(key)
        names: list[str] = [*self._spellings.get(real, []), real, key]
        return next((name for name in names if name in self.raw), None)

    def get(self, *keys: str, default: Any = None) -> Any:
        """The first key that has a value other than null, in the file and then in the class's defaults."""
        value, _ = self.find(*keys)
        return default if value is None else value

    def find(self, *keys: str) -> tuple[Any, str]:
        """Value and origin (``text_config.head_dim``, ``head_dim (default …)``) of the first key with one."""
        for key in keys:
            name = self._spelling(key)
            if name is not None and self.raw[name] is not None:
                return self.raw[name], self.path + name
        for key in keys:
            real = self.real(key)
            if self._spelling(key) is None and self._defaults.get(real) is not None:
                return self._defaults[real], f"{self.path}{real} (default of {self.model_type})"
        return None, self.path + (keys[0] if keys else "")

    def integer(self, *keys: str, lowest: int = 1, highest: int = LARGEST) -> int:
        """A whole number that must be there."""
        value = self.optional_integer(*keys, lowest=lowest, highest=highest)
        if value is None:
            raise self.missing(*keys)
        return value

    def optional_integer(
        self, *keys: str, default: int | None = None, lowest: int = 1, highest: int = LARGEST
    ) -> int | None:
        """A whole number, or the default where no key has a value."""
        value, origin = self.find(*keys)
        if value is None:
            return default
        return Sourced(check_integer(value, origin, lowest, highest), origin)

    def number(self, *keys: str, default: float, lowest: float, highest: float) -> float:
        """A factor or a share (0.5, 2, 2.0) within bounds, or the default where no key has a value."""
        value, origin = self.find(*keys)
        if value is None:
            return default
        return check_number(value, origin, lowest, highest)

    def factor(self, key: str, default: float) -> float:
        """A width as a multiple of another one, 0 … MAX_FACTOR."""
        return self.number(key, default=default, lowest=0, highest=MAX_FACTOR)

    def divisor(self, key: str, default: float) -> float:
        """A share that something is divided by, 1 / MAX_SIDE … 1: sides of joined patches (0.5 joins two)."""
        return self.number(key, default=default, lowest=1 / MAX_SIDE, highest=1)

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean (0 and 1 are taken as one)."""
        value, origin = self.find(key)
        if value is None:
            return default
        if value in (0, 1):
            return bool(value)
        raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not true or false")

    def word(self, key: str) -> str | None:
        """A text, or None."""
        value, origin = self.find(key)
        if value is not None and not isinstance(value, str):
            raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not a text")
        return value

    def sequence(self, *keys: str) -> list[Any] | None:
        """A list, or None. Compact default tables (``{"of": …, "at": …}``) are written out."""
        value, origin = self.find(*keys)
        if value is None:
            return None
        if isinstance(value, Mapping) and set(value) == {"of", "at"}:
            return [value["of"][int(digit, 36)] for digit in value["at"]]
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not a list")
        if len(value) > 4 * MAX_LAYERS:
            raise KvplanError("bad-config", f"{origin} has {len(value):,} entries")
        return list(value)

    def mapping(self, key: str) -> dict[str, Any] | None:
        """An object, or None."""
        found = self._object(key)
        return None if found is None else dict(found)

    def _object(self, key: str) -> Json | None:
        value, origin = self.find(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not an object")
        return value

    def inner(
        self, key: str, *, aliases: Mapping[str, str] | None = None, defaults: Json | None = None
    ) -> ConfigView:
        """A nested object as a view of its own (an empty one where it is missing)."""
        return ConfigView(
            self._object(key) or {},
            model_type=self.model_type,
            defaults=defaults or {},
            aliases=aliases,
            path=f"{self.path}{key}.",
        )

    def with_values(self, values: Json) -> ConfigView:
        """The same view with some keys set otherwise, as one layer of ``per_layer_config`` has them."""
        changed = {self.real(key) for key in values}
        kept = {key: value for key, value in self.raw.items() if self.real(key) not in changed}
        return ConfigView(
            {**kept, **values},
            model_type=self.model_type,
            defaults=self._defaults,
            aliases=self._aliases,
            path=self.path,
        )

    def num_layers(self, *keys: str, lowest: int = 0) -> int:
        """The number of layers; lowest … MAX_LAYERS."""
        return self.integer(*(keys or ("num_hidden_layers",)), lowest=lowest, highest=MAX_LAYERS)

    def missing(self, *keys: str) -> KvplanError:
        """The error for keys that must be there."""
        return KvplanError(
            "missing-key",
            f"{self.model_type}: the config has no {self.path}{' or '.join(keys)}",
            help=f"add {keys[0]} to the config; a value is never guessed",
        )

    def refuse(self, key: str, why: str) -> KvplanError:
        """A refusal that names the key: the rule for this value is not known."""
        return KvplanError("unknown-layer-type", f"{self.model_type}: {self.path}{key}: {why}")


def check_integer(value: Any, origin: str, lowest: int = 1, highest: int = LARGEST) -> int:
    """A JSON value as a whole number in range (2.0 counts as 2). Raises KvplanError(bad-config)."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not a whole number")
    if not lowest <= value <= highest:
        raise KvplanError(
            "bad-config", f"{origin} is {_shown(value)}", help=f"it must lie in {lowest:,} … {highest:,}"
        )
    return value


def check_number(value: Any, origin: str, lowest: float, highest: float) -> float:
    """A JSON value as a number in range. Raises KvplanError(bad-config)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise KvplanError("bad-config", f"{origin} is {_shown(value)}, not a number")
    if not lowest <= value <= highest:
        raise KvplanError(
            "bad-config", f"{origin} is {_shown(value)}", help=f"it must lie in {lowest:,} … {highest:,}"
        )
    return value


def derived(value: int, how: str) -> int:
    """A number computed from keys, labelled with how: ``derived(128, "hidden_size // heads")``."""
    return Sourced(value, how)


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**20:
        return "a number of more than 20 digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


QUANT_KEY = "hf_quant_config"
"""Under this key a model's config has the file that ModelOpt writes beside it."""


def split_quant(config: Json) -> tuple[Json, Json | None]:
    """A model's config as the file and ModelOpt's file beside it."""
    quant = config.get(QUANT_KEY)
    if not isinstance(quant, Mapping):
        return config, None
    return {key: value for key, value in config.items() if key != QUANT_KEY}, quant


def unquantised(raw: Json) -> dict[str, Any]:
    """The config without its quantisation, on the top and in the parts."""
    return {
        key: unquantised(value) if isinstance(value, Mapping) else value
        for key, value in raw.items()
        if key not in ("quantization_config", "compression_config")
    }
