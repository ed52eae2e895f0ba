"""Answers that say what they are: ``str(answer)`` is the screen's first lines, a notebook shows the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Shown:
    """A base of answers. The screens stand above everything that computes, so they are looked up by name, and
    only when one is asked for."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(_screens().as_text(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What a terminal of IPython shows."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return str(_screens().as_html(self))


def _screens() -> Any:
    return import_module("kvplan.report.answers")
