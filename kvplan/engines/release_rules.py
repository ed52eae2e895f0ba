"""Differences between an engine's releases: one row a rule, and the one place that compares releases.

A table is a class whose attributes are its rows; a release's own object has their values:

    class Rules(ReleaseRules):
        hybrid_groups = flag("windows have tables of their own", "v1/core/kv_cache_utils.py", since="0.9")

To type checkers ``hybrid_groups`` is a bool. Data that has releases of its own (a class, a backend, the name
of a metric) is asked with `reached`, `within`, `through` and `newest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, cast

from kvplan.engines.base import Version, parse_version
from kvplan.named import NamedTuple

T = TypeVar("T")
R = TypeVar("R", bound="ReleaseRules")


class Row(NamedTuple):
    """One rule. steps: (first release, value), the oldest for all before the next. source: the engine's file,
    and the pull request. asked: held to what the engine itself answered, else read in its source alone."""

    says: str
    source: str
    steps: tuple[tuple[str, Any], ...]
    asked: bool


def flag(says: str, source: str, *, since: str = "", until: str = "", asked: bool = True) -> bool:
    """The row of a rule that holds from one release on (empty: always), until the first without it."""
    off = (("", False),) if since else ()
    return cast(bool, Row(says, source, (*off, (since, True), *([(until, False)] if until else ())), asked))


def steps(says: str, source: str, first: T, *later: tuple[str, T], asked: bool = True) -> T:
    """The row of a rule of several values: of the oldest releases, and (first release, value) after them."""
    return cast(T, Row(says, source, (("", first), *later), asked))


class ReleaseRules:
    """The rules in force in a release: an object a release, whose attributes are the values."""

    PARTS: ClassVar[int] = 2
    """Numbers that tell releases apart: 0.32.1 has the rules of 0.32."""
    ROWS: ClassVar[dict[str, Row]]
    release: str

    def __init_subclass__(cls) -> None:
        cls.ROWS = {name: row for name, row in vars(cls).items() if isinstance(row, Row)}
        for name in cls.ROWS:
            delattr(cls, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rules, (type(self), parse_version(self.release))

    @classmethod
    def of(cls: type[R], version: str | Version) -> R:
        """Those of a release, as text or as numbers."""
        kind: Any = cls
        return cast(R, _rules(kind, _numbers(version)[: cls.PARTS]))


@lru_cache(maxsize=512)
def _rules(kind: Any, release: Version) -> Any:
    found = kind()
    found.release = ".".join(map(str, release))
    found.__dict__.update({name: newest(row.steps, release) for name, row in kind.ROWS.items()})
    return found


def _numbers(version: str | Version) -> Version:
    return parse_version(version) if isinstance(version, str) else version


def reached(version: str | Version, since: str) -> bool:
    """Whether a release is that one or newer; empty: always; ``0.32`` is its newest patch."""
    if not since:
        return True
    asked = _numbers(version)
    return asked >= parse_version(since)[: len(asked)]


def within(version: str | Version, since: str, until: str) -> bool:
    """Whether a release lies from the first on (empty: any) and before the first that is otherwise."""
    return reached(version, since) and not (until and reached(version, until))


def through(version: str | Version, since: str, last: str) -> bool:
    """Whether a minor release lies between the first and the last one; empty: there is no such end."""
    asked = _numbers(version)[:2]
    return reached(asked, since) and (not last or asked <= parse_version(last)[:2])


def newest(steps: Iterable[tuple[str, T]], version: str | Version) -> T:
    """The value in force, of (first release, value), oldest first. Raises StopIteration before the first."""
    return next(value for since, value in reversed(tuple(steps)) if reached(version, since))
