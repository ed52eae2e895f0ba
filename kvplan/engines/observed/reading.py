"""How what one engine prints is read: which settings it tells, and what else may explain a figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

from kvplan.engines.base import Choice
from kvplan.engines.folders import part_of
from kvplan.engines.observed import Count, Observation, Rank
from kvplan.named import NamedTuple
from kvplan.record import Json, record
from kvplan.results import Pool
from kvplan.settings import Settings

MOST = 1024
"""Ranks of one kind that are believed."""
_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size"}


class Reading:
    """Readings that an engine's `printed` may override; an engine overrides only the differences."""

    names: ClassVar[Mapping[str, str]] = {}
    """Setting as printed → setting, or own option."""
    not_budgeted: ClassVar[Mapping[str, str]] = {}
    """Figures of a log that are no line of the budget, and why."""
    prints_peak = False
    """The log prints the peak of the whole start: the sum of the budget's lines."""
    build_numbers = False
    """The log prints a build number, not a release: one set of rules for all of them."""
    no_release: ClassVar[tuple[int, ...]] = (0,)
    """Builds up to this one are no release."""

    def unchosen(self, observation: Observation) -> tuple[str, ...]:
        """Printed settings that nobody chose."""
        return ()

    def told(self, observation: Observation, values: Json) -> Iterable[tuple[str, Any, str | None]]:
        """(setting, value, where it is seen) that follow from other lines; where: None = not to be shown.

        values: those that were printed.
        """
        return ()

    def own_options(self, observation: Observation) -> Mapping[str, str]:
        """Options of the engine's own that follow from other lines."""
        return {}

    def budget_changes(self, observation: Observation) -> Json:
        """Settings, and options of the engine's own, that the memory budget alone is asked with: what the log
        tells of where its weights lie."""
        return {}

    def weights(self, observation: Observation) -> Count | None:
        """The weights on the fullest GPU."""
        return observation.count("weights_bytes")

    def told_total(self, observation: Observation) -> tuple[int, int, str] | None:
        """Between which bytes the GPU's memory lies, and how that is told; None where no line does."""
        return None

    def uncounted(self, settings: Settings, observation: Observation) -> str | None:
        """Why the cache of these settings is another than the one that is predicted; None where it is not."""
        return None

    def build(self, observation: Observation) -> Build | None:
        """The releases that a build without a release number of its own is like; None for a release."""
        return None

    def guesses(
        self,
        choice: Choice,
        printed: Choice,
        settings: Settings,
        shown: Mapping[str, str],
        observation: Observation,
    ) -> Iterable[Hypothesis]:
        """Further hypotheses, most likely first. printed: the rules of the log's own release."""
        return ()

    def printed_tokens(self, choice: Choice, pool: Pool, settings: Settings) -> int:
        """The tokens of a pool as this very patch of a release prints them."""
        return pool.kv_tokens

    def tokens_line(self, predictor: Any, axis: Any) -> Iterable[str]:
        """The meaning of the line of tokens. predictor, axis: those of a comparison."""
        return ()


_PLAIN = Reading()


def reading_of(engine: str) -> Reading:
    """How the engine's output is read."""
    part = part_of(engine, "printed")
    return _PLAIN if part is None else part.READING


@record()
class Hypothesis:
    """Other rules or settings. names: what it changes; text: what it says where it holds."""

    names: tuple[str, ...]
    text: str
    choice: Choice
    changes: tuple[tuple[str, Any], ...] = ()


class Build(NamedTuple):
    """The releases whose rules a development build has: of the cache, and of the memory; how it was told."""

    rules: str
    memory: str
    text: str


class Guessing:
    """Hypotheses about single settings, beside the ones that were recognised."""

    def __init__(self, choice: Choice, settings: Settings) -> None:
        self.choice, self.settings = choice, settings

    def one(self, name: str, value: Any, text: str | None = None) -> Iterator[Hypothesis]:
        """The setting with another value; nothing where it has it already."""
        if getattr(self.settings, name) != value:
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _word(value)
            yield Hypothesis((name,), text or f"{name} {shown}", self.choice, ((name, value),))


def _word(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def sizes_told(observation: Observation, values: Json) -> Iterator[tuple[str, int, str]]:
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
