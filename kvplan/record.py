"""``@record``: a dataclass with slots that is cheap to define.

``dataclasses`` compiles six methods for every frozen class, and loads ``inspect``, which together are most of
the time that a cold ``kvplan size`` would spend. Here the methods are shared functions over the field names,
and ``__init__`` is made when the first value is. To type checkers a record is a frozen dataclass (so mypy
refuses assignments); at run time nothing stands in the way of one, unless it is guarded. ``field``,
``fields`` and ``replace`` of this module stand for those of ``dataclasses``, whose own work on records too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

Json = Mapping[str, Any]
"""Values under names, as JSON, YAML or a header has them: their types are checked where they are read."""
JsonDict = dict[str, Any]
"""The same, made here, to be written."""

if TYPE_CHECKING:
    from dataclasses import MISSING, Field, field, fields, replace

    from typing_extensions import dataclass_transform
else:

    class MISSING:
        """Stands where a field has no default."""

    class Field:
        """One field of a record, with the attributes of a dataclass's."""

        default = default_factory = MISSING
        init = repr = compare = True
        hash, metadata, kw_only = None, {}, False

        def __init__(self, **given) -> None:
            self.__dict__.update(given)

        @property
        def _field_type(self):  # asked by the tools of dataclasses
            from dataclasses import _FIELD

            return _FIELD

    field = Field

    def fields(value):
        return tuple(value.__dataclass_fields__.values())

    def replace(value, /, **changes):
        kind = type(value)
        for name, entry in kind.__dataclass_fields__.items():
            if entry.init and name not in changes:
                changes[name] = getattr(value, name)
        return kind(**changes)

    def dataclass_transform(**_):
        return lambda decorator: decorator


__all__ = [
    "MISSING",
    "KeptHash",
    "changed",
    "dumped",
    "exact",
    "field",
    "field_names",
    "fields",
    "json_attribute",
    "json_names",
    "record",
    "replace",
]

T = TypeVar("T")
_FEW = 16
"""Values of a record that are made before its ``__init__`` is compiled."""


class KeptHash:
    """A base of records that are hashed again and again: the hash is worked out once.

    It is no part of the value, and not carried into another process (where texts hash otherwise).
    """

    __slots__ = ("_kept",)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, eq: bool = True, kw_only: bool = False, guarded: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a record. ``eq=False``: compared and hashed by identity. ``guarded``: assignments raise at
    run time too. Records of different classes are never equal; a field with ``hash=False`` (a mapping, say)
    counts for equality only."""

    def decorate(cls: type[T]) -> type[T]:
        entries: dict[str, Any] = {}
        for base in cls.__mro__[:0:-1]:
            entries.update(base.__dict__.get("__dataclass_fields__", ()))
        space = dict(cls.__dict__)
        own = _own_fields(space, cls.__annotations__, kw_only)
        entries.update(own)
        taken = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
        space["__slots__"] = tuple(name for name in own if name not in taken)
        space["__dataclass_fields__"] = entries
        space["__match_args__"] = tuple(name for name, one in entries.items() if one.init and not one.kw_only)
        space["_values"] = _values_of(list(entries))
        space["_until_compiled"] = _FEW
        space["_hashed_values"] = _values_of([name for name, one in entries.items() if one.hash is not False])
        kept = _KEPT if issubclass(cls, KeptHash) else _VALUE
        methods = {**(kept if eq else _IDENTITY), **(_GUARD if guarded else {}), "__init__": _first_init}
        if cls.__repr__ not in (object.__repr__, _shown):
            del methods["__repr__"]  # its base says how it is shown
        made: type[T] = type(cls)(cls.__name__, cls.__bases__, {**methods, **space})  # type: ignore[misc]
        made.__qualname__ = cls.__qualname__
        return made

    return decorate


def _own_fields(space: dict[str, Any], kinds: Mapping[str, Any], kw_only: bool) -> dict[str, Any]:
    """The fields that a class's body declares; their defaults, and what slots replace, leave the body."""
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        if "ClassVar" in str(kind):
            continue
        entry = space.pop(name, MISSING)
        if not isinstance(entry, Field):
            if entry.__class__.__hash__ is None:
                raise ValueError(f"mutable default {entry!r} of {name}: use default_factory")
            entry = field(default=entry)
        entry.name, entry.type, entry.kw_only = name, kind, kw_only
        found[name] = entry
    space.pop("__dict__", None)
    space.pop("__weakref__", None)
    return found


def _first_init(self: Any, *values: Any, **named: Any) -> None:
    """The ``__init__`` of a record of which there are few values: to compile one takes as long as to make
    twenty without it, and most records of an answer have fewer."""
    kind: Any = next(one for one in type(self).__mro__ if one.__dict__.get("__init__") is _first_init)
    kind._until_compiled -= 1
    if kind._until_compiled and _put_plainly(self, kind, values, named):
        return
    kind.__init__ = _init_of(kind)
    kind.__init__(self, *values, **named)


def _put_plainly(self: object, kind: Any, values: tuple[object, ...], named: dict[str, object]) -> bool:
    """Sets the fields one by one; False where the arguments are wrong, which the compiled one says as Python
    does."""
    if len(values) > len(kind.__match_args__):
        return False
    given = dict(zip(kind.__match_args__, values))
    if named:
        if not given.keys().isdisjoint(named):
            return False
        given.update(named)
    put = object.__setattr__
    for name, entry in kind.__dataclass_fields__.items():
        if entry.init and name in given:
            put(self, name, given.pop(name))
        elif entry.default_factory is not MISSING:
            put(self, name, entry.default_factory())
        elif entry.default is not MISSING:
            put(self, name, entry.default)
        elif entry.init:
            return False
    if given:
        return False
    if hasattr(kind, "__post_init__"):
        kind.__post_init__(self)
    return True


def _init_of(kind: type[Any]) -> Any:
    """Compiles ``__init__``: a parameter for each field, and its assignment."""
    known: dict[str, Any] = {"MISSING": MISSING, "put": object.__setattr__}
    places: tuple[list[str], list[str]] = ([], ["*"])
    body = []
    guarded = kind.__setattr__ is _refuse
    for name, entry in kind.__dataclass_fields__.items():
        made = entry.default_factory is not MISSING
        has_default = made or entry.default is not MISSING
        if has_default:
            known[f"default_{name}"] = entry.default_factory if made else entry.default
        value = name if entry.init else f"default_{name}" + "()" * made
        if entry.init:
            default = f"={'MISSING' if made else f'default_{name}'}" if has_default else ""
            places[entry.kw_only].append(name + default)
            if made:
                value = f"default_{name}() if {name} is MISSING else {name}"
        if entry.init or has_default:
            body.append(f"put(self, {name!r}, {value})" if guarded else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *places[0], *(places[1] if len(places[1]) > 1 else ())])
    exec(f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]), known)
    known["__init__"].__qualname__ = f"{kind.__qualname__}.__init__"
    return known["__init__"]


def _values_of(names: list[str]) -> attrgetter[Any]:
    """Return an attrgetter for these fields (of a record without fields, for its class)."""
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
    entries = (entry for entry in fields(self) if entry.repr)
    shown = ", ".join(f"{entry.name}={getattr(self, entry.name)!r}" for entry in entries)
    return f"{type(self).__qualname__}({shown})"


def _state(self: Any) -> dict[str, Any]:
    return {name: getattr(self, name) for name in self.__dataclass_fields__ if hasattr(self, name)}


def _set_state(self: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        object.__setattr__(self, name, value)


def _refuse(self: Any, name: str, value: Any = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(self).__name__} does not change: {name}")


_IDENTITY: dict[str, Any] = {"__repr__": _shown}
_VALUE: dict[str, Any] = {**_IDENTITY, "__eq__": _equal, "__hash__": _hashed}
_PICKLED: dict[str, Any] = {"__getstate__": _state, "__setstate__": _set_state}
_KEPT: dict[str, Any] = {**_VALUE, **_PICKLED, "__hash__": _hashed_once}
_GUARD: dict[str, Any] = {**_PICKLED, "__setattr__": _refuse, "__delattr__": _refuse}


def changed(value: T, /, **changes: Any) -> T:
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

    A record is an object of the names in its ``_JSON`` (of its fields, where it has none); each is the
    attribute ``_json_NAME`` where the record has one, else the attribute of that name. Names in
    ``_JSON_OPTIONAL`` are left out where they are empty. `kvplan.report.schema.schema_of` makes the JSON
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
    optional: tuple[str, ...] = getattr(kind, "_JSON_OPTIONAL", ())
    pairs = ((name, getattr(value, json_attribute(kind, name))) for name in json_names(kind))
    return {name: dumped(one) for name, one in pairs if one or name not in optional}


def json_names(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a record's JSON, in order."""
    names: tuple[str, ...] | None = getattr(kind, "_JSON", None)
    return field_names(kind) if names is None else names


def json_attribute(kind: type[Any], name: str) -> str:
    """The attribute of a record that its JSON has under that key."""
    own = f"_json_{name}"
    return own if hasattr(kind, own) else name


def exact(value: Fraction | int) -> int | list[int]:
    """A Fraction as JSON: an int where whole, else [numerator, denominator]."""
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else [fraction.numerator, fraction.denominator]
