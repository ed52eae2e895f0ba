"""Progress for a person who waits: on a terminal's stderr only, gone once there is an answer.

rich is imported by whoever waits, and by nobody else.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from kvplan.cli.terminal import is_watched

PATIENCE_SECONDS = 1.0
"""A command that answers sooner says nothing before its answer."""
WORDS = {
    "plan": "judging candidates",
    "check": "checking plans",
    "export": "exporting",
    "fits": "judging models",
    "compare": "comparing",
    "cards new": "reading the model",
    "cards lint": "checking cards",
    "cards update": "checking cards",
    "list models": "reading the cards",
    "size": "computing",
    "explain": "computing",
    "simulate": "simulating",
    "quality": "measuring formats",
}
"""Commands that start an engine tell their own stages, and get no line from here."""


@contextlib.contextmanager
def waiting(command: str, *, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """A line with the time that has gone, from ``patience`` seconds on."""
    if command not in WORDS or not is_watched(sys.stderr):
        yield
        return
    lock, shown, over = threading.Lock(), _Line(), threading.Event()

    def begin() -> None:
        with lock:
            if not over.is_set():
                shown.start(WORDS[command])

    timer = threading.Timer(patience, begin)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        over.set()
        with lock:
            shown.stop()


class Stages:
    """The stages of a validation: a bar for the stage that runs, with what is done of it in GiB."""

    def __init__(self) -> None:
        self._line = _Line()
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        from kvplan.report.words import size_words

        if stage != self._stage:
            self._line.stop()
            self._stage = stage
            self._line.start(stage, total)
        self._line.update(done, f"{size_words(done)} of {size_words(total)}" if total else "")

    def stop(self) -> None:
        self._line.stop()


class _Line:
    """One line of rich's progress; nothing of it is imported before it starts."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None

    def start(self, text: str, total: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(file=sys.stderr, force_terminal=True, markup=False, highlight=False, emoji=False)
        words = (
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[said]}", markup=False),
        )
        ends = (BarColumn(), TimeElapsedColumn()) if total else (TimeElapsedColumn(),)
        columns = (SpinnerColumn("line"), *words, *ends)
        self._progress = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._progress.add_task(text, total=total or None, said="")
        self._progress.start()

    def update(self, done: int, said: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, said=said)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
