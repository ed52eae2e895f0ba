"""What the profile run of an encoder takes, as a value and as a line of the budget."""

from __future__ import annotations

from kvplan.record import record
from kvplan.results import BudgetLine
from kvplan.units import MIB

LINE = "encoder profile run"
_MARGIN = 96 * MIB
_MARGIN_MILLI = 80
"""The allocator's rounding and the kernels' own workspaces, which no trace of the tensors has."""


@record()
class EncoderRun:
    """peak_bytes: while the encoder runs. kept_bytes: its inputs and outputs, while the language model is
    profiled after it. source: what ran. least_bytes, most_bytes: between which the peak lies (0: at the
    peak). first_stage: on the first stage of a pipeline alone. known: False where the class has no rule:
    then 0 … most_bytes."""

    peak_bytes: int
    kept_bytes: int
    source: str
    known: bool = True
    first_stage: bool = False
    most_bytes: int = 0
    least_bytes: int = 0

    def added(self, peak: int, activation: int) -> int:
        """max(encoder, kept + activation) − activation: what the encoder adds to the peak of the profile
        run."""
        return max(peak, self.kept_bytes + activation) - activation

    def on_stage(self, stage: int) -> EncoderRun | None:
        """The run of one stage of a pipeline."""
        return None if self.first_stage and stage else self


def encoder_line(run: EncoderRun, activation: int) -> BudgetLine:
    """What the encoder adds, with the allocator's share, between its least and its most."""
    if not run.known:
        return BudgetLine(LINE, 0, 0, run.most_bytes, run.source)
    added = run.added(run.peak_bytes, activation)
    half = min(_MARGIN, added) + added * _MARGIN_MILLI // 1000
    low = run.added(run.least_bytes or run.peak_bytes, activation)
    high = run.added(run.most_bytes or run.peak_bytes, activation)
    return BudgetLine(LINE, added, max(0, min(low, added) - half), max(high, added) + half, run.source)
