"""What a command returns: a screen, a text or data, and the exit code. Commands do not print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvplan.errors import EXIT_OK
from kvplan.report.layout import Screen


class Answer(NamedTuple):
    """Exactly one of screen, text, data and stream is written; a stream's pieces as they come."""

    screen: Screen | None = None
    text: str | None = None
    data: Any = None
    code: int = EXIT_OK
    stream: Iterator[Screen | str] | None = None
