"""How what one engine prints is read: which settings it tells, and what else may explain a figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kvplan.engines.folders import part_of
from kvplan.engines.observed import Count, Observation
from kvplan.results import Pool
from kvplan.settings import Settings

if TYPE_CHECKING:
    from kvplan.engines.base import Choice
    from kvplan.engines.observed.guess import Build, Hypothesis


class Reading:
    """What an engine's `printed` may say of its output; an engine says only what differs from this."""

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

    def told(
        self, observation: Observation, values: Mapping[str, Any]
    ) -> Iterable[tuple[str, Any, str | None]]:
        """(setting, value, where it is seen) that follow from other lines; where: None = not to be shown.

        values: those that were printed.
        """
        return ()

    def own_options(self, observation: Observation) -> Mapping[str, str]:
        """Options of the engine's own that follow from other lines."""
        return {}

    def budget_changes(self, observation: Observation) -> Mapping[str, Any]:
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
        """What the line of tokens means. predictor, axis: those of a comparison."""
        return ()


_PLAIN = Reading()


def reading_of(engine: str) -> Reading:
    """How the engine's output is read."""
    part = part_of(engine, "printed")
    return _PLAIN if part is None else part.READING
