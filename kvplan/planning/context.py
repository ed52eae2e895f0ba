"""The longest context: the largest max_model_len with which the load is still served, by bisection."""

from __future__ import annotations

from kvplan.engines.base import ANSWER_PART, generated
from kvplan.engines.traits import traits_of
from kvplan.planning.ask import FEWEST, Ask
from kvplan.planning.search import search
from kvplan.plans.workload import Shape
from kvplan.record import replace


def request_of(length: int, answer: int | None = None) -> Shape:
    """A request of which only the length is known, and perhaps how many of its tokens are generated."""
    own = generated(length, answer) if length >= ANSWER_PART or answer is not None else 0
    return Shape(length - own, own)


def longest(ask: Ask, least: int = 0, *, stretch: bool) -> Ask | None:
    """The ask at the largest length, in whole blocks, with which something serves the load; as it is where
    nothing does even at the shortest; None where it is less than ``least`` tokens.

    stretch: the requests are as long themselves, else they stay as they are and one of that length fits
    beside none of them. The model's own length bounds it. A longer request never needs less, so the end of
    the bisection is the longest; what it ends at was searched.
    """
    unit = ask.base.block_size or traits_of(ask.choice.engine.name).usual_block
    own = ask.variants[0].model.max_model_len or max(ask.lengths)
    shortest = unit if stretch else max(ask.lengths)

    def at(length: int) -> Ask:
        shapes = (request_of(length, ask.base.answer_tokens),) if stretch else ask.shapes
        return replace(ask, shapes=shapes, lengths=(length,))

    def serves(length: int) -> bool:
        return bool(search(replace(at(length), objective=FEWEST), wanted=1).found)

    if own <= shortest or serves(own):
        return at(max(own, shortest))
    low, high = 0, (own - shortest) // unit + 1
    if least > shortest and not serves(least):
        return None
    if not serves(shortest):
        return ask
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if serves(_length(shortest, middle, unit)) else (low, middle)
    return at(_length(shortest, low, unit))


def _length(shortest: int, steps: int, unit: int) -> int:
    """So many blocks more, in whole blocks but for the shortest itself."""
    return shortest if not steps else (shortest // unit + steps) * unit
