"""Records behave as frozen dataclasses do, but for the run-time guard."""

from __future__ import annotations

import copy
import dataclasses
import pickle

from kvplan.record import record


@record()
class Point:
    x: int
    y: int = 0


@record()
class Other:
    x: int
    y: int = 0


@record(eq=False)
class Place:
    name: str


@record(kw_only=True)
class Named:
    first: int = 1
    last: int


@record()
class Child(Point):
    z: int = 0


def test_equal_by_value_within_one_class() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != Point(1, 3)
    assert len({Point(1), Other(1), Point(1)}) == 2


def test_equal_by_identity_where_asked() -> None:
    assert Place("a") != Place("a")
    assert len({Place("a"), Place("a")}) == 2


def test_the_tools_of_dataclasses_work() -> None:
    assert dataclasses.replace(Point(1, 2), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1, 2)) == {"x": 1, "y": 2}
    assert [entry.name for entry in dataclasses.fields(Child)] == ["x", "y", "z"]
    assert repr(Child(1, 2, 3)) == "Child(x=1, y=2, z=3)"
    assert Named(last=3) == Named(first=1, last=3)
    assert not hasattr(Point(1), "__dict__")


def test_copies_are_equal() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
    assert copy.deepcopy(Child(1, 2, 3)) == Child(1, 2, 3)


def test_pattern_matching() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
