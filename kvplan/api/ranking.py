"""The order in which models that fit are listed: what people prefer, then what is faster.

A model's place is its score on a public leaderboard (`kvplan.files.arena`); one without takes that of the
scored model of its type nearest in size, up to eight times, with the points that a doubling brings, or comes
after those, by its numbers times their bits. Below all stand builds of fewer than four bits and what may
answer more slowly than people read (`USABLE`; of no known speed, what lies partly in host memory). Of one
score the faster is first.
"""

from __future__ import annotations

import re
from math import log2

from kvplan.files.arena import leaderboard
from kvplan.later import regex
from kvplan.named import NamedTuple
from kvplan.results import DecodeSpeed

USABLE = 10
"""Tokens a second at the slow end of the estimate: about twice as fast as people read (238 words a minute,
Brysbaert 2019, doi:10.1016/j.jml.2019.104047)."""
_NO_CHAT = regex(r"embed|rerank|ocr|-base(-|$)|whisper", re.ASCII)
_FEW_BITS = regex(r"(ud_)?i?q[1-3]_|tq", re.ASCII)

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


def worth(builds: tuple[str, ...]) -> tuple[str, ...]:
    """The builds that people choose among: 16 bits read twice as much as 8 for an answer that is the same to
    a thousandth of its perplexity (XiongjieDai/GPU-Benchmarks-on-LLM-Inference README.md @ aa72e0e).

    >>> worth(("f16", "q8_0", "q4_k_m")), worth(("f16",)), worth(("mxfp4",))
    (('q8_0', 'q4_k_m'), ('f16',), ('mxfp4',))
    """
    return tuple(one for one in builds if one != "f16" or "q8_0" not in builds)


def usable(speed: DecodeSpeed | None, hosted: bool) -> bool:
    """Whether one answers at a usable speed at the slow end of the estimate; without one, whether all of it
    lies on the GPUs."""
    return not hosted if speed is None else speed.low >= USABLE


def place(
    points: int | None, form: str, weights_bytes: int, hosted: bool, speed: DecodeSpeed | None = None
) -> tuple[bool, bool, int, float, int]:
    """A sort key: the first in the list has the least."""
    pace = 0.0 if speed is None or points is None else speed.tokens_per_second
    return (
        not usable(speed, hosted), loses(form), -(points or 0), -pace,
        -weights_bytes if points is None else weights_bytes,
    )  # fmt: skip
