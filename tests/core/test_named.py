"""`kvplan.named.NamedTuple` is that of ``typing`` in everything but the time it takes."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from kvplan.named import NamedTuple

MANY = 40
"""More than there are values before the constructor is compiled."""


class Mine(NamedTuple):
    """A pair and what stands beside it."""

    a: int
    b: str = "x"
    c: float = 1.0

    @property
    def twice(self) -> int:
        return 2 * self.a

    @classmethod
    def parse(cls, text: str) -> Mine:
        return cls(int(text))


class Theirs(typing.NamedTuple):
    a: int
    b: str = "x"
    c: float = 1.0


class Counted(NamedTuple):
    """Its length is its own."""

    names: tuple[str, ...]
    spare: int = 0

    def __len__(self) -> int:
        return len(self.names)


WRONG: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((), {"b": "y"}),
    ((1, "y", 2.0, 3), {}),
    ((1,), {"a": 2}),
    ((1,), {"z": 2}),
)


def said(made: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as caught:
        made()
    return str(caught.value).replace("Theirs", "Mine")


@pytest.mark.parametrize("turns", [1, MANY])
def test_values_are_those_of_typing(turns: int) -> None:
    for number in range(turns):
        for values, named in (((number,), {}), ((number, "y"), {"c": 2.5}), ((), {"b": "z", "a": number})):
            mine, theirs = Mine(*values, **named), Theirs(*values, **named)
            assert tuple(mine) == theirs
            assert mine == (*theirs,)
            assert hash(mine) == hash(theirs)
            assert repr(mine) == repr(theirs).replace("Theirs", "Mine")
            assert (mine.a, mine.b, mine.c, mine.twice) == (*theirs, 2 * number)


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_wrong_arguments_are_refused_in_the_same_words(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    class Fresh(NamedTuple):
        a: int
        b: str = "x"
        c: float = 1.0

    Fresh.__new__.__qualname__ = "Mine.__new__"
    for _ in range(MANY):
        assert said(lambda: Fresh(*values, **named)).replace(Fresh.__qualname__, "Mine") == said(
            lambda: Theirs(*values, **named)
        )


def test_the_class_is_described_as_typing_does() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__"):
        assert getattr(Mine, name) == getattr(Theirs, name)
    assert Mine.__doc__ == "A pair and what stands beside it."
    assert Mine.parse("3") == (3, "x", 1.0)
    assert issubclass(Mine, tuple)
    assert typing.get_type_hints(Mine) == {"a": int, "b": str, "c": float}


def test_its_tools() -> None:
    value = Mine(1, c=2.0)
    assert value._asdict() == {"a": 1, "b": "x", "c": 2.0}
    assert value._replace(a=3) == Mine(3, c=2.0)
    assert Mine._make([1, "x", 2.0]) == value
    with pytest.raises(ValueError, match="z"):
        value._replace(z=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="3 arguments"):
        Mine._make([1])
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert type(again) is Mine
    with pytest.raises(AttributeError):
        value.other = 1  # type: ignore[attr-defined]


def test_a_length_of_its_own() -> None:
    value = Counted(("a", "b", "c"))
    assert len(value) == 3
    assert value._replace(spare=1).spare == 1


def test_only_tuples_with_their_defaults_last() -> None:
    with pytest.raises(TypeError, match="without a default"):
        exec("class Bad(NamedTuple):\n  a: int = 1\n  b: int", {"NamedTuple": NamedTuple})
    with pytest.raises(TypeError, match="no other base"):
        exec("class Bad(NamedTuple, int): pass", {"NamedTuple": NamedTuple})
