"""What a benchmark reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the report: how ``what`` compares with ``baseline``, and what we aim at."""

    what: str
    baseline: str
    ratio: float
    aim: str
    detail: str
