"""What SGLang prints, as settings, and what else may explain a printed figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.engines.base import Choice
from kvplan.engines.observed import Observation
from kvplan.engines.observed.guess import Hypothesis
from kvplan.settings import Settings

NAMES = {"page_size": "block_size", "max_running_requests": "max_num_seqs"}
"""Setting as printed → setting, or own option."""


def guesses(
    choice: Choice, printed: Choice, settings: Settings, shown: Mapping[str, str], observation: Observation
) -> Iterator[Hypothesis]:
    """Further hypotheses, most likely first."""
    del printed, shown, observation
    older = dict(settings.engine_options) | {"mamba_padding_slot": False}
    text = "no state slot set aside for padding, as before July 2026"
    yield Hypothesis(
        ("mamba_padding_slot",), text, choice, (("engine_options", tuple(sorted(older.items()))),)
    )
