"""``@record``: a dataclass with slots that is cheap to define.

``dataclasses`` compiles six methods for every frozen class, which is most of the time that a cold
``kvplan size`` would spend; here they are shared functions over the field names, and only ``__init__``
is generated. To type checkers a record is a frozen dataclass (so mypy refuses assignments); at run
time nothing stands in the way of one. ``fields``, ``replace`` and ``asdict`` work as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


T = TypeVar("T")


class KeptHash:
    """A base of records that are hashed again and again: the hash is worked out once.

    It is no part of the value, and not carried into another process (where texts hash otherwise).
    """

    __slots__ = ("_kept",)

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a record. ``eq=False``: compared and hashed by identity. Records of different
    classes are never equal; a field with ``hash=False`` (a mapping, say) counts for equality only."""

    def decorate(cls: type[T]) -> type[T]:
        made = dataclass(slots=True, eq=False, repr=False, kw_only=kw_only)(cls)
        entries: dict[str, Any] = made.__dataclass_fields__  # type: ignore[attr-defined]
        made._values = _values_of(list(entries))  # type: ignore[attr-defined]
        made._hashed_values = _values_of([name for name, entry in entries.items() if entry.hash is not False])  # type: ignore[attr-defined]
        kept = _KEPT if issubclass(made, KeptHash) else _VALUE
        for name, method in (kept if eq else _IDENTITY).items():
            if name not in cls.__dict__:
                setattr(made, name, method)
        return made

    return decorate


def _values_of(names: list[str]) -> attrgetter[Any]:
    """What reads the values of those fields at once; of a record without fields, its class."""
    return attrgetter(*names or ("__class__",))


def _equal(self: Any, other: Any) -> bool:
    if self is other:
        return True
    return type(other) is type(self) and bool(self._values(self) == self._values(other))


def _hashed(self: Any) -> int:
    return hash((type(self), self._hashed_values(self)))


def _hashed_once(self: Any) -> int:
    try:
        kept: int = self._kept
    except AttributeError:
        kept = self._kept = _hashed(self)
    return kept


def _shown(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({shown})"


_VALUE: dict[str, Any] = {"__eq__": _equal, "__hash__": _hashed, "__repr__": _shown}
_KEPT: dict[str, Any] = {**_VALUE, "__hash__": _hashed_once}
_IDENTITY: dict[str, Any] = {"__repr__": _shown}


def changed(value: T, **changes: Any) -> T:
    """``dataclasses.replace`` for values that are known to be right: nothing is checked again."""
    kind = type(value)
    made = object.__new__(kind)
    for name in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        setattr(made, name, changes[name] if name in changes else getattr(value, name))
    return made


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of a record's fields, in order."""
    return tuple(kind.__dataclass_fields__)


def dumped(value: Any) -> Any:
    """A value as JSON has it: only dict, list, str, int, float, bool and None.

    A record is an object of the names in its ``JSON`` (of its fields, where it has none); each is the
    attribute ``json_NAME`` where the record has one, else the attribute of that name. Names in
    ``JSON_OPTIONAL`` are left out where they are empty. `kvplan.report.schema.schema_of` makes the JSON
    Schema out of the same names.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Fraction):
        return exact(value)
    if isinstance(value, Mapping):
        return {key: dumped(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [dumped(one) for one in value]
    kind = type(value)
    optional: tuple[str, ...] = getattr(kind, "JSON_OPTIONAL", ())
    pairs = ((name, getattr(value, json_attribute(kind, name))) for name in json_names(kind))
    return {name: dumped(one) for name, one in pairs if one or name not in optional}


def json_names(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a record's JSON, in order."""
    names: tuple[str, ...] | None = getattr(kind, "JSON", None)
    return field_names(kind) if names is None else names


def json_attribute(kind: type[Any], name: str) -> str:
    """The attribute of a record that its JSON has under that key."""
    own = f"json_{name}"
    return own if hasattr(kind, own) else name


def exact(value: Fraction | int) -> int | list[int]:
    """A Fraction as JSON: an int where whole, else [numerator, denominator]."""
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else [fraction.numerator, fraction.denominator]
