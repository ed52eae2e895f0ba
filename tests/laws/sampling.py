"""Laws: properties that a whole kind of wrong answer would break. ``make test`` samples them; ``make laws``
(``KVPLAN_LAWS=all``) takes many more examples. Each is marked ``laws``."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

T = TypeVar("T")
WHOLE = os.environ.get("KVPLAN_LAWS") == "all"


def sampled(examples: int, whole: int) -> settings:
    """So many examples in ``make test``, so many in ``make laws``; the same ones each run."""
    return settings(
        max_examples=whole if WHOLE else examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


def some(cases: Iterable[T], share: int, by: Callable[[Any], object]) -> list[T]:
    """One of ``share`` of each kind (``by``), rounded up, the same ones each run; in ``make laws`` all."""
    kinds: dict[object, list[tuple[int, T]]] = {}
    for place, case in enumerate(cases):
        kinds.setdefault(by(case), []).append((place, case))
    drawn = Random(20261129)
    taken: list[tuple[int, T]] = []
    for kind in kinds.values():
        taken += drawn.sample(kind, len(kind) if WHOLE else -(-len(kind) // share))
    return [case for _, case in sorted(taken, key=lambda one: one[0])]


def for_each(
    names: str | tuple[str, ...], values: Iterable[Any], ids: object = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``pytest.mark.parametrize`` as one case, for look-ups that cost less than a case does: every value is
    tried, and all that fail are said."""
    listed = list(values)
    named = (names,) if isinstance(names, str) else names
    if ids is None or callable(ids):
        words = [str(ids(value) if ids else value) for value in listed]
    else:
        assert isinstance(ids, Iterable)
        words = [str(word) for word in ids]

    def fold(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def folded(**others: object) -> None:
            wrong: dict[str, BaseException] = {}
            for word, value in zip(words, listed, strict=True):
                given = (value,) if isinstance(names, str) else value
                try:
                    test(**dict(zip(named, given, strict=True)), **others)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception) as error:
                    wrong[word] = error
            if wrong:
                first = next(iter(wrong.values()))
                said = "".join(f"\n{word:.100}: {error!s:.500}" for word, error in wrong.items())
                raise AssertionError(f"{len(wrong)} of {len(listed)}:{said}") from first

        own = inspect.signature(test)
        kept = [one for name, one in own.parameters.items() if name not in named]
        folded.__signature__ = own.replace(parameters=kept)  # type: ignore[attr-defined]
        return folded

    return fold
