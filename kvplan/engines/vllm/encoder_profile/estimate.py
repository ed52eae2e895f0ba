"""The profile run of an encoder, as a value and as a line of the budget.

What the profile run of an encoder takes at most whose rule is not known.

vllm-project/vllm vllm/multimodal/encoder_budget.py, 0.33: items of one modality are run, as many as
max_num_batched_tokens holds, one at least; a video or a sound may be as long as the sequence
(``get_num_frames_with_most_features``), an image is not. Bytes of a token are those of the encoders that are
known, rounded up; tests/budget/test_unknown_encoders.py holds the bound against each of them.
"""

from __future__ import annotations

from kvplan.engines.vllm.classes import class_of
from kvplan.record import record
from kvplan.results import BudgetLine
from kvplan.units import GIB, MIB

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
    """The encoder's line, with the allocator's share, between its least and its most."""
    if not run.known:
        return BudgetLine(LINE, 0, 0, run.most_bytes, run.source)
    added = run.added(run.peak_bytes, activation)
    half = min(_MARGIN, added) + added * _MARGIN_MILLI // 1000
    low = run.added(run.least_bytes or run.peak_bytes, activation)
    high = run.added(run.most_bytes or run.peak_bytes, activation)
    return BudgetLine(LINE, added, max(0, min(low, added) - half), max(high, added) + half, run.source)


_LEAST = 5 * GIB
_OF_A_BATCH = MIB
"""Of a token of the batch: Step-3.7's crops take 1.07 MB, Gemma 3n's images 0.75."""
_OF_A_LENGTH = 768 * 1024
"""Of a token of the sequence: Molmo2's frames take 0.71 MB, Ovis2.5's 0.53, all other videos up to 0.31."""


def images_alone(name: str) -> bool:
    """Whether a class without a rule takes no video and no sound (``get_supported_mm_limits``, 0.32)."""
    row = class_of(name)
    return not row.largest_item and row.modalities == ("image",)


def unknown_most(name: str, *, tokens: int, length: int) -> int:
    """The most bytes in bfloat16. tokens, length: max_num_batched_tokens and max_model_len."""
    most = max(_LEAST, tokens * _OF_A_BATCH)
    return most if images_alone(name) else max(most, length * _OF_A_LENGTH)
