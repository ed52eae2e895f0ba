"""Requests of several lengths at once, without a workload's file: ``-n 20 -t 2k,8k:5,32k:1``.

A mix is held where the shares of one pool that its requests take (`kvplan.engines.budget.sharing`) come to no
more than 1, with the largest excess that the prompt of one of them needs beyond. Requests of one length are
no mix: the engine's own count of them stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvplan.bisection import most_up_to
from kvplan.deployment.answer import Answer, Counted, answer, check_counted
from kvplan.deployment.counts import MAX_REQUESTS, ask
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import Deployment
from kvplan.engines.budget.sharing import Taken, taken_of
from kvplan.engines.traits import traits_of
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import started_in
from kvplan.units import apportion, ceil_div


class Part(NamedTuple):
    """So many requests of one length."""

    tokens: int
    requests: int


class Filled(NamedTuple):
    """share: of one pool that the mix takes, None where one of its requests is never admitted. most: how
    many requests in these proportions all pools hold."""

    share: Fraction | None
    most: int


class Mix(NamedTuple):
    """The answer. limit: max_num_seqs, where the engine has it; longest: the answer for the longest request
    alone, with the refusal where the engine does not start for it."""

    parts: tuple[Part, ...]
    likely: Filled
    safe: Filled
    limit: int | None
    longest: Answer

    @property
    def result(self) -> SizeResult:
        return self.longest.result

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self.parts)

    def held_in(self, filled: Filled) -> bool:
        return filled.most >= self.requests


def mixed(question: Question, parts: Sequence[Part]) -> Mix:
    """Requests of a mix that the pools hold. The engine is started for its longest request, or max_model_len.

    Raises KvplanError(no-memory) where neither GPU nor memory was named.
    """
    longest = max(part.tokens for part in parts)
    alike = all(part.tokens == longest for part in parts)
    total = sum(part.requests for part in parts)
    wanted = total if alike else 1
    # What leaves layers in host memory is placed for all of them.
    placed = total if traits_of(question.choice.engine.name).at_desk else wanted
    asked = replace(question.settings, tokens=longest, requests=placed)
    found = answer(replace(question, settings=asked))
    deployment, result = found.deployment, found.result
    check_counted(found)
    limit = None if result.pool is None else result.pool.max_num_seqs
    if deployment.settings.max_model_len is None and not question.written:
        # A server of equal slots (llama.cpp) has them as long as the longest request.
        deployment = replace(deployment, settings=replace(deployment.settings, max_model_len=longest))

    def filled(counted: Counted | None) -> Filled:
        if counted is None or counted.refusal is not None:
            return Filled(None, 0)
        summed = _filled(deployment, parts, counted.memory, limit)
        return _counted(summed, counted.each * deployment.pools, wanted) if alike else summed

    return Mix(tuple(parts), filled(found.likely), filled(found.safe), limit, found)


def _counted(summed: Filled, most: int, wanted: int) -> Filled:
    """Requests of one length, so many of which run at once: those that do take no more than the pool."""
    share = summed.share
    return Filled(min(share, Fraction(1)) if share is not None and wanted <= most else share, most)


def _filled(deployment: Deployment, parts: Sequence[Part], pool: int, limit: int | None) -> Filled:
    """Of one pool; of all of them the most."""
    if not pool:
        return Filled(None, 0)
    model, choice, started = deployment.model, deployment.choice, deployment.settings
    takes: list[Taken] = []
    for part in parts:
        asked = replace(started_in(started, pool), tokens=part.tokens)
        taken = taken_of(ask(model, choice, asked))
        if taken is None:
            return Filled(None, 0)
        takes.append(taken)
    excess = max(taken.excess for taken in takes)

    def share(counts: Sequence[int]) -> Fraction:
        return sum((count * one.share for count, one in zip(counts, takes)), start=excess)

    weights = [part.requests for part in parts]
    top = MAX_REQUESTS if limit is None else limit
    most = most_up_to(top, lambda number: share(apportion(number, weights)) <= 1, 1)
    fullest = apportion(ceil_div(sum(weights), deployment.pools), weights)
    return Filled(share(fullest), most * deployment.pools)
