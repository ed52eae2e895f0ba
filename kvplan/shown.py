"""Answers that say what they are: ``str(answer)`` is the screen's first lines, a notebook shows the same.
And the secrets of one run, which nothing that is shown may hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Screens(Protocol):
    """The registered renderer of answers."""

    def as_text(self, answer: object) -> str: ...

    def as_html(self, answer: object) -> str: ...

    def as_line(self, answer: object) -> str: ...


class _Printer(Protocol):
    def text(self, text: str) -> None: ...


class Shown:
    """A base of answers. What draws them stands above everything that computes and says so by `draw_with`."""

    __slots__ = ()

    def __str__(self) -> str:
        return _screens.as_text(self)

    def _line_(self) -> str:
        """The screen's first sentence in one line."""
        return _screens.as_line(self)

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        """For a terminal of IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """For a notebook."""
        return _screens.as_html(self)


_screens: Screens


def draw_with(screens: Screens) -> None:
    """Answers are drawn by these from now on."""
    global _screens  # noqa: PLW0603 - one process has one way to draw
    _screens = screens


SECRETS: ContextVar[set[str] | None] = ContextVar("secrets", default=None)
"""Secrets of the files that this run has read (`kvplan.masking.remember`); None: nobody collects them."""


@contextmanager
def secrets_kept() -> Iterator[None]:
    """One run: what its files hold as secrets is collected until it ends."""
    before = SECRETS.set(set())
    try:
        yield
    finally:
        SECRETS.reset(before)
