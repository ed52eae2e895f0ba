"""``kvplan quality``: what KV quantisation costs."""

from __future__ import annotations

from typing import Any

from kvplan.api.quality import quality
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import values_of
from kvplan.cli.quality_options import MEASURED
from kvplan.cli.terminal import Answer
from kvplan.report.quality import quality_screen

_NAMES = {"sample": "sample_tokens"}


def run(words: list[str], given: Given) -> Answer:
    """The table, or as JSON every layer of it."""
    check_color(given)
    values: dict[str, Any] = {}
    for option in MEASURED:
        text = text_of(given, option.name)
        if text is not None:
            values[_NAMES.get(option.name, option.name)] = values_of(
                option, text, f"{option.flags[0]} {text}"
            )
    result = quality(words[0], calibrated=is_given(given, "calibrated"), **values)
    if is_given(given, "json"):
        return Answer(data=result.model_dump())
    return Answer(quality_screen(result, verbose=is_given(given, "verbose")))
