"""What may explain a printed figure: other rules or settings, as each engine's ``printed`` lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvplan.engines.base import Choice
from kvplan.record import record
from kvplan.settings import Settings


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
