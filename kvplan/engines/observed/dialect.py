"""What the engines' log readers have in common: the dialect itself and help for its last touches."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from kvplan.engines.observed import Count, Observation, Pool, Rank, Row, total
from kvplan.engines.observed.rules import Rule
from kvplan.record import record

_COORDINATE = re.compile(r"(?<![A-Z])(DP|PP|TP|EP|DCP)(\d{1,5})")


@record()
class Dialect:
    """How one engine logs: its line shapes, who speaks in a line, the settings it prints, and its last
    touches.

    finish: what can only be told from all rows together (which of two pools is the draft's, say).
    first_counts: settings of which the first line tells: a draft model says its own after it.
    """

    engine: str
    rules: tuple[Rule, ...]
    rank_of: Callable[[str], Rank]
    known_settings: Mapping[str, str]
    finish: Callable[[Observation], Observation] = lambda observation: observation
    first_counts: frozenset[str] = frozenset(("architecture",))


def at_coordinates(label: str, text: str) -> Rank:
    """A rank whose place in the parallel groups `text` tells: ``DP0_TP3_EP3``."""
    places = {kind: int(number) for kind, number in _COORDINATE.findall(text)}
    return Rank(
        label,
        dp=places.get("DP"),
        pp=places.get("PP"),
        tp=places.get("TP"),
        ep=places.get("EP"),
        dcp=places.get("DCP"),
    )


def with_rows(observation: Observation, change: Callable[[Row], Row]) -> Observation:
    """The observation with every row changed."""
    return dataclasses.replace(observation, rows=tuple(change(row) for row in observation.rows))


def summed(pools: Sequence[Pool], name: str) -> Count | None:
    """The sum of one figure over pools; None where a pool lacks it."""
    counts = [getattr(pool, name) for pool in pools]
    return total(counts) if counts and all(isinstance(count, Count) for count in counts) else None
