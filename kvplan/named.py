"""``NamedTuple`` of ``typing`` without its cost when a module is read.

``typing`` compiles a constructor for every class and checks the kinds of its fields; most of the classes that
an answer reads get a handful of values. Here the methods are shared functions over ``_fields``, and the
constructor is compiled when a class has many values: a class takes a tenth of the time. To type checkers it
is the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    _FEW = 16
    """Values of a class that are made before its constructor is compiled."""

    def _first_new(cls, /, *values, **named):
        kind = next(one for one in cls.__mro__ if "_until_compiled" in one.__dict__)
        kind._until_compiled -= 1
        if kind._until_compiled:
            row = _row(kind, values, named)
            if row is not None:
                return tuple.__new__(cls, row)
        kind.__new__ = _new_of(kind)
        return kind.__new__(cls, *values, **named)

    def _row(kind, values, named):
        """The fields in order; None where the arguments are wrong, which the compiled constructor says as
        Python does."""
        fields = kind._fields
        rest = fields[len(values) :]
        if len(values) > len(fields) or not named.keys() <= set(rest):
            return None
        given = {**kind._field_defaults, **named}
        try:
            return (*values, *[given[name] for name in rest])
        except KeyError:
            return None

    def _new_of(kind):
        names = ", ".join(kind._fields)
        made = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__})
        made.__defaults__ = tuple(kind._field_defaults.values())
        made.__name__ = "__new__"
        made.__qualname__ = f"{kind.__qualname__}.__new__"
        return made

    def _make(cls, iterable):
        made = tuple.__new__(cls, iterable)
        found = tuple.__len__(made)
        if found != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {found}")
        return made

    def _replace(self, /, **changes):
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _values(self):
        return tuple(self)

    def _shown(self):
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"{type(self).__name__}({shown})"

    _METHODS = {
        "__slots__": (),
        "__new__": _first_new,
        "__repr__": _shown,
        "__replace__": _replace,
        "__getnewargs__": _values,
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": lambda self: dict(zip(self._fields, self)),
        "_until_compiled": _FEW,
    }

    class _Rows(type):
        """Makes a class of tuples out of a body."""

        def __new__(cls, name, bases, space):
            if bases != (NamedTuple,):
                raise TypeError(f"{name}: a NamedTuple has no other base")
            fields = tuple(space["__annotations__"])
            defaults = {field: space.pop(field) for field in fields if field in space}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one with a default")
            named = {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
            places = {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            return type(name, (tuple,), {**_METHODS, **named, **places, **space})

    NamedTuple = type.__new__(_Rows, "NamedTuple", (), {})

__all__ = ["NamedTuple"]
