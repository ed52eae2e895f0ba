"""What an answer was asked with, kept beside it: the safe count and the screen need to ask again."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.api.fits import Fits, fits_of
from kvplan.engines.base import Choice
from kvplan.model import Model
from kvplan.questions import Verdict, memory_of, verdict
from kvplan.questions.fixes import SuggestedFixes, suggested_fixes
from kvplan.results import SizeResult
from kvplan.settings import Settings


class Asked(NamedTuple):
    """One question of `kvplan.size`."""

    model: Model
    choice: Choice
    settings: Settings

    def fits(self, result: SizeResult) -> Fits | None:
        """Requests at several lengths, where a GPU's memory was divided."""
        if result.budget is None:
            return None
        return fits_of(self.model, self.choice, self.settings, result)

    def verdict(self, result: SizeResult) -> Verdict | None:
        """Whether what was asked for fits."""
        return verdict(self.model, self.choice, self.settings, result)

    def memory(self, result: SizeResult) -> int | None:
        """Bytes for the cache on each GPU, as given or as the budget leaves."""
        return memory_of(self.settings, result)

    def ways(self, result: SizeResult) -> SuggestedFixes | None:
        """What would make it fit, where it does not."""
        found = self.verdict(result)
        if self.memory(result) is None or found is None or found.fits:
            return None
        return suggested_fixes(self.model, self.choice, self.settings, result)

    def safe_requests(self, result: SizeResult) -> int | None:
        """Requests of the asked length in the safe pool; None where no GPU's memory was divided."""
        fits = self.fits(result)
        rungs = () if fits is None else fits.rungs
        return next((one.safe for one in rungs if one.tokens == result.request.tokens), None)
