"""How many ranks a server has, by those that spoke: for logs without the arguments of the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from kvplan.engines.observed import Observation, Rank

MOST = 1024
"""Ranks of one kind that are believed."""
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}


def sizes_told(observation: Observation, values: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """(setting, value, where it is seen) of the groups whose ranks spoke and whose size no line says.

    An excerpt may lack some of them: their number is taken for the next power of two.
    """
    ranks = [row.rank for row in observation.rows]
    for kind, name in _SIZES.items():
        places = _places(ranks, kind)
        if name not in values and places and 0 < max(places) < MOST:
            size = size_of(places)
            last = f"{kind.upper()}{max(places)}"
            yield name, size, f"{size} (ranks in the {observation.source}, up to {last})"


def size_of(places: Iterable[int]) -> int:
    """Of the ranks at these places."""
    return 1 << max(places).bit_length()


def _places(ranks: Iterable[Rank], kind: str) -> set[int]:
    return {place for rank in ranks if (place := getattr(rank, kind)) is not None}


def attention_groups(observation: Observation) -> int | None:
    """How many data-parallel groups divide the tensor-parallel ranks between them, as attention's do; None
    where there are none. Replicas each have a rank TP0."""
    members: dict[int, set[int]] = {}
    for row in observation.rows:
        if row.rank.dp is not None and row.rank.tp is not None:
            members.setdefault(row.rank.dp, set()).add(row.rank.tp)
    everyone = [place for places in members.values() for place in places]
    if len(members) < 2 or len(everyone) != len(set(everyone)) or max(members) >= MOST:
        return None
    in_order = [sorted(members[group]) for group in sorted(members)]
    if any(earlier[-1] >= later[0] for earlier, later in pairwise(in_order)):
        return None
    return size_of(members)
