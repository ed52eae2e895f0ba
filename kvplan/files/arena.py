"""Scores of a public leaderboard by card, dated: ``data/arena.tsv``, made by scripts/make_arena.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kvplan.record import record

FILE = Path(__file__).parent / "data" / "arena.tsv"


@record()
class Rated:
    """A card's score, its model type and parameters; 0 where nobody counted them."""

    score: int
    model_type: str
    parameters: int


@record()
class Leaderboard:
    """rated: by the card's slug. doubling: points that twice the parameters bring among models of one type.
    source: the leaderboard, with the day of the figures."""

    rated: Mapping[str, Rated]
    doubling: int
    source: str


@cache
def leaderboard() -> Leaderboard:
    """The packaged table."""
    head, *lines = FILE.read_text(encoding="utf-8").splitlines()
    source, doubling, _ = head.removeprefix("# ").split("\t")
    rated = {}
    for line in lines:
        card, score, kind, parameters, _ = line.split("\t")
        rated[card] = Rated(int(score), kind, int(parameters))
    return Leaderboard(rated, int(doubling), source)
