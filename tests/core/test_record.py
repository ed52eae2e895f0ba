"""Records behave as frozen dataclasses do, but for the run-time guard."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from kvplan.record import field, fields, record, replace


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


@record(guarded=True)
class Guarded:
    x: int
    many: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.x)


def test_a_guarded_record_refuses_changes() -> None:
    value = Guarded(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.x = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del value.x
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value == Guarded(3)


def test_fields() -> None:
    value = Guarded(3, secret="s")
    assert [entry.name for entry in fields(value)] == ["x", "many", "secret", "twice"]
    assert replace(value, x=5) == dataclasses.replace(value, x=5) == Guarded(5, secret="s")
    assert replace(value, x=5).twice == 10
    assert Guarded(1).many is not Guarded(1).many
    assert "secret" not in repr(value)
    assert dataclasses.asdict(value) == {"x": 3, "many": [], "secret": "s", "twice": 6}
    with pytest.raises(TypeError):
        replace(value, unknown=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        replace(value, twice=1)
    with pytest.raises(ValueError, match="default_factory"):

        @record()
        class Shared:
            many: list[int] = []  # noqa: RUF012


def test_copies_are_equal() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
    assert copy.deepcopy(Child(1, 2, 3)) == Child(1, 2, 3)


def test_pattern_matching() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


@record(guarded=True)
class Started:
    first: int
    second: list[int] = field(default_factory=list)
    third: int = 3
    kept: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", self.first + self.third)


def test_many_values_are_made_as_the_first() -> None:
    """The constructor is compiled on the way: the same values, the same refusals."""
    seen = set()
    for _ in range(40):
        one, two = Started(1), Started(1, third=4, second=[2])
        assert (one.second, one.kept, two.second, two.kept) == ([], 4, [2], 5)
        assert one.second is not Started(1).second
        said = []
        for values, named in (((), {}), ((1, [], 3, 4), {}), ((1,), {"first": 2}), ((1,), {"kept": 2})):
            with pytest.raises(TypeError) as caught:
                Started(*values, **named)  # type: ignore[arg-type]
            said.append(str(caught.value))
        seen.add(tuple(said))
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.first = 2  # type: ignore[misc]
    assert len(seen) == 1
    assert next(iter(seen))[0].startswith("Started.__init__() missing 1 required positional argument")
