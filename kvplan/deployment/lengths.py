"""Requests of several lengths that one server holds, and the longest length that it starts for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvplan.deployment.answer import Answer, answer, answered, check_counted
from kvplan.deployment.counts import (
    SHORTEST_RUNG,
    ask,
    in_pools,
    largest_tokens,
    powers_of_two,
)
from kvplan.deployment.question import Question
from kvplan.engines.base import NO_LENGTH
from kvplan.engines.budget import TOO_LITTLE
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import LONGEST, Settings, stated_length
from kvplan.units import ceil_div

USUAL = (4096, 32768, 131072)
"""Lengths that are shown where nobody asked for one."""


class Rung(NamedTuple):
    """Requests of one length that run at once in the likely pool and in the safe one, over all replicas."""

    tokens: int
    likely: int
    safe: int
    kv_bytes_per_request: int = 0
    capped: bool = False
    """by max_num_seqs"""


def rung_of(found: Answer) -> Rung:
    """The requests of the answer's own length."""
    capacity = found.result.capacity
    likely, safe = (0, 0) if capacity is None else (capacity.requests, capacity.safe_requests)
    capped = capacity is not None and capacity.capped
    return Rung(found.result.request.tokens, likely, safe, found.result.per_gpu.kv_bytes_per_request, capped)


def rungs(found: Answer, lengths: Iterable[int]) -> tuple[Rung, ...]:
    """Requests of other lengths that the servers of an answer hold."""
    own, settings = found.result.request.tokens, replace(found.deployment.settings, requests=1)

    def asked(length: int, started: int | None) -> Rung:
        one = replace(settings, tokens=length, max_model_len=started)
        return rung_of(answered(replace(found.deployment, settings=one)))

    def at(length: int) -> Rung:
        if settings.max_model_len == LONGEST and found.likely is not None and found.safe is not None:
            # Each pool is served with the length that it takes.
            likely, safe = (asked(length, one.max_model_len) for one in (found.likely, found.safe))
            return likely._replace(safe=safe.safe)
        return rung_of(found) if length == own else asked(length, settings.max_model_len)

    return tuple(at(length) for length in lengths)


def usual_lengths(found: Answer, *, steps: bool = False) -> list[int]:
    """Lengths up to what the servers are started for: the usual ones, or every power of two (a curve's)."""
    result = found.result
    longest = int(result.settings.get("max_model_len") or result.request.tokens)
    usual: Iterable[int] = powers_of_two(min(SHORTEST_RUNG, longest), longest) if steps else USUAL
    return sorted({*(length for length in usual if length < longest), result.request.tokens, longest})


class Longest(NamedTuple):
    """The longest max_model_len with which the engine starts in the likely pool and in the safe one, None
    where no length does; own: the model's, and bytes that the engine counts for one request of it."""

    likely: int | None
    safe: int | None
    own: int
    own_bytes: int

    @property
    def is_own(self) -> bool:
        """Whether the model's own length starts, safely too."""
        return self.likely == self.own == self.safe


def longest_of(found: Answer) -> Longest | None:
    """The longest lengths with which the servers of an answer start; None where no pool is known."""
    asked = _without_lengths(found, (0, 1))
    if asked is None:
        return None
    likely, safe = asked
    return Longest(
        _starts(likely), _starts(safe), likely.request.tokens, likely.per_gpu.reserved_bytes_per_request
    )


def longest_safely(found: Answer) -> int | None:
    """`longest_of` in the safe pool alone."""
    asked = _without_lengths(found, (1,))
    return None if asked is None else _starts(asked[0])


def _without_lengths(found: Answer, which: tuple[int, ...]) -> list[SizeResult] | None:
    """The servers of an answer started without a length, in the likely pool (0), in the safe one (1); None
    where no pool is known, or neither the model nor the engine knows a length."""
    budget = found.result.budget
    if budget is None or not budget.kv_pool_bytes or found.likely is None:
        return None
    deployment = found.deployment
    model, choice = deployment.model, deployment.choice
    pools = in_pools(model, choice, deployment.settings, budget)
    try:
        return [ask(model, choice, _without_length(pools[place])) for place in which]
    except KvplanError as error:
        if error.code != NO_LENGTH:
            raise
        return None


def _without_length(settings: Settings) -> Settings:
    return replace(settings, max_model_len=None, tokens=None)


def _starts(own: SizeResult) -> int | None:
    return own.request.tokens if own.refusal is None else own.refusal.largest_max_model_len


def starts_for_all(question: Question) -> bool:
    """Whether a server starts for the longest of the question's lengths that the model takes; if not, each
    length is asked with a server of its own."""
    own = stated_length(question.settings) or question.model.max_model_len
    taken = [length for length in question.lengths if own is None or length <= own]
    if question.settings.max_model_len is not None or question.written or len(taken) < 2:
        return True
    try:
        found = answer(replace(question, settings=replace(question.settings, tokens=max(taken), requests=1)))
    except KvplanError:
        return True
    refusal = found.result.refusal
    return refusal is None or refusal.code != TOO_LITTLE


def by_length(question: Question, lengths: Sequence[int]) -> tuple[list[Answer], bool]:
    """The answers for several lengths, and whether each has a server of its own (`starts_for_all`)."""
    question = replace(question, lengths=tuple(lengths))
    alone = not starts_for_all(question)
    if alone:
        question = replace(question, lengths=())
    settings = question.settings
    return [answer(replace(question, settings=replace(settings, tokens=one))) for one in lengths], alone


class Ladder(NamedTuple):
    """Requests by length and length by requests. max_model_len is set where the model's own would not start.

    longest: (requests, largest length) pairs; 0 where none fits.
    """

    found: Answer
    rungs: tuple[Rung, ...]
    longest: tuple[tuple[int, int], ...]
    max_model_len: int | None


def ladder(question: Question, lengths: Sequence[int] = (), counts: Sequence[int] = ()) -> Ladder:
    """How many requests fit at each length, and the largest length for each number of requests.

    Lengths default to powers of two from 1,024 up to what the server is started for, counts to 1, 4, 16 … as
    far as they fit. Lengths that the model does not take are left out. Where the model's own length does not
    start, the longest that does is used. Raises KvplanError(no-memory) where nothing is counted.
    """
    own = stated_length(question.settings) or question.model.max_model_len
    lengths = [length for length in lengths if own is None or length <= own] or lengths
    asked = replace(question.settings, tokens=max(lengths, default=None), requests=1)
    found = answer(replace(question, settings=asked))
    check_counted(found)
    lowered = None
    refusal = found.result.refusal
    if refusal is not None:
        lowered = refusal.largest_max_model_len
        if not lowered or question.settings.max_model_len is not None or lengths:
            return Ladder(found, (), (), None)
        found = answer(replace(question, settings=replace(asked, max_model_len=lowered)))
    longest = found.result.request.tokens
    steps = rungs(found, lengths or powers_of_two(SHORTEST_RUNG, longest))
    settings, deployment = found.deployment.settings, found.deployment
    if settings.max_model_len == LONGEST and found.likely is not None:
        settings = replace(settings, max_model_len=found.likely.max_model_len)
    # A model without a length is asked up to the one that was named.
    settings = replace(settings, tokens=longest if own is None else None)
    pairs = []
    for number in counts or _counts(steps):
        one = replace(settings, requests=ceil_div(number, deployment.pools))
        pairs.append((number, largest_tokens(deployment.model, deployment.choice, one)))
    return Ladder(found, steps, tuple(pairs), lowered)


def _counts(steps: Iterable[Rung]) -> Iterator[int]:
    """1, 4, 16 … below what fits at the shortest length, at most eight of them."""
    most = max((rung.likely for rung in steps), default=0)
    count = 1
    for _ in range(8):
        if count > most:
            return
        yield count
        count *= 4
