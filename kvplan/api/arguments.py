"""Arguments of the library's functions: another type than the one that is meant is a KvplanError, like any
other mistake of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from kvplan.errors import KvplanError

F = TypeVar("F", bound=Callable[..., Any])
_WORDS = {"str": "a text", "int": "a whole number", "bool": "True or False", "float": "a number",
          "Fraction": "a fraction", "Path": "a path", "Mapping": "a dict", "list": "a list",
          "tuple": "a tuple", "date": "a date"}  # fmt: skip


def check_type(name: str, value: object, kinds: tuple[type, ...], code: str = "bad-argument") -> None:
    """Raises KvplanError(code). True is no whole number."""
    if not (bool in kinds if isinstance(value, bool) else isinstance(value, kinds)):
        words = dict.fromkeys(_WORDS.get(kind.__name__, f"a {kind.__name__}") for kind in kinds)
        raise KvplanError(code, f"{name} is {_shown(value)}, not {' or '.join(words)}")


def check_each(name: str, values: Any, kinds: tuple[type, ...]) -> list[Any]:
    """The entries of something that can be gone through. Raises KvplanError(bad-argument)."""
    try:
        listed = list(values)
    except TypeError:
        raise KvplanError("bad-argument", f"{name} is {_shown(values)}, not a list") from None
    for value in listed:
        check_type(f"an entry of {name}", value, kinds)
    return listed


def takes(**kinds: tuple[type, ...]) -> Callable[[F], F]:
    """A function whose arguments are checked before it is called; None passes where it is the default."""

    def decorate(function: F) -> F:
        code, last = function.__code__, function.__defaults__ or ()
        places = code.co_varnames[: code.co_argcount]
        defaults = {
            **dict(zip(places[len(places) - len(last) :], last, strict=True)),
            **(function.__kwdefaults__ or {}),
        }
        optional = {name for name, default in defaults.items() if default is None}

        @wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            named: Mapping[str, Any] = {**dict(zip(places, args, strict=False)), **given}
            for name, value in named.items():
                if name in kinds and not (value is None and name in optional):
                    check_type(name, value, kinds[name])
            return function(*args, **given)

        return called  # type: ignore[return-value]

    return decorate


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # the caller's own class
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"
