"""The order in which models that fit are listed: what people prefer, then what is faster.

A model's place is its score on a public leaderboard (`kvplan.files.arena`). One without a score takes that of
the scored model of its type that is nearest in size, up to eight times, with the points that a doubling of
the parameters brings; without such a model it comes after those, by its numbers times their bits. Below all
of them stand builds of fewer than four bits, which lose more than a smaller model would, and what lies partly
in host memory: every token waits for that.
"""

from __future__ import annotations

import re
from math import log2
from typing import NamedTuple

from kvplan.files.arena import leaderboard

_NO_CHAT = re.compile(r"embed|rerank|ocr|-base(-|$)|whisper", re.ASCII)
_FEW_BITS = re.compile(r"(ud_)?i?q[1-3]_|tq", re.ASCII)

_MOST = 3
"""Doublings of the size over which a score is carried."""


class Score(NamedTuple):
    """A model's score; exact: it was rated itself."""

    points: int
    exact: bool


def score_of(slug: str, model_type: str, parameters: int | None) -> Score | None:
    """The score of a card, or the one that its type and size let expect; None where nothing does."""
    board = leaderboard()
    if slug in board.rated:
        return Score(board.rated[slug].score, True)
    if not parameters or _NO_CHAT.search(slug):
        return None
    alike = [one for one in board.rated.values() if one.model_type == model_type and one.parameters]
    if not alike:
        return None
    near = min(alike, key=lambda one: (abs(log2(parameters / one.parameters)), -one.score))
    doublings = log2(parameters / near.parameters)
    return Score(near.score + round(board.doubling * doublings), False) if abs(doublings) <= _MOST else None


def loses(form: str) -> bool:
    """Whether a build has fewer than four bits a number.

    >>> [loses(form) for form in ("q3_k_m", "iq2_xxs", "q4_k_m", "fp8", "as stored")]
    [True, True, False, False, False]
    """
    return _FEW_BITS.match(form) is not None


def place(points: int | None, form: str, weights_bytes: int, hosted: bool) -> tuple[bool, bool, int, int]:
    """A sort key: the first in the list has the least."""
    rated = points is not None
    return hosted, loses(form), -(points or 0), (weights_bytes if rated else -weights_bytes)
