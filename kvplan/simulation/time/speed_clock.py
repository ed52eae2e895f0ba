"""The step time of a simulated engine from a speed profile: whole nanoseconds, in pieces of straight lines.

A step of ``count`` requests that only make answers, at a mean context of m tokens, takes
``step_seconds(profile, count, m)``. Between breakpoints in m it is interpolated in whole nanoseconds, so that
steps taken together and one by one last the same. Windows see the mean, not each request's own length: of
requests around a window's length that is too much by at most what the window saves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from kvplan.named import NamedTuple
from kvplan.planning.speed.attention import CacheRead
from kvplan.planning.speed.profile import SpeedProfile, Stage
from kvplan.planning.speed.steps import expert_seconds, matrix_seconds, roof, step_seconds
from kvplan.simulation.time.clock import FOR_EVER, Computed
from kvplan.units import SECOND

_OCTAVES = 24
"""Also a breakpoint at every power of two, for what follows no straight line."""
_REMEMBERED = 200_000


class Work(NamedTuple):
    """A step: requests that only make answers, their tokens once it is done, all its tokens, and of each
    prompt the tokens computed in it and those computed before."""

    answers: int
    context: int
    tokens: int
    chunks: list[tuple[int, int]]


def work_of(step: Computed) -> Work:
    """A step's prompts apart from its answers."""
    chunks = [
        (tokens, request.computed - tokens)
        for request, tokens in step.parts
        if tokens > 1 or request.computed <= request.prompt
    ]
    if not chunks:
        return Work(step.count, step.context, step.tokens, chunks)
    context = step.context - sum(tokens + before for tokens, before in chunks)
    return Work(step.count - len(chunks), context, step.tokens, chunks)


class SpeedClock:
    """decode, prompt: what steps without and with prompt tokens are multiplied with (the ends of the
    estimate's interval); no step is shorter than the GPU's peaks allow. ``lasts`` is a step's way through all
    stages of a pipeline."""

    def __init__(self, profile: SpeedProfile, decode: float = 1.0, prompt: float = 1.0) -> None:
        limits = profile.limits
        self.limits = SpeedClock(limits) if limits is not None and min(decode, prompt) < 1 else None
        self.profile, self.decode, self.prompt = profile, decode * SECOND, prompt * SECOND
        self.caches = [cache for stage in profile.stages for cache in stage.caches]
        self.ends = breakpoints(profile)
        self.lines: dict[int, list[tuple[int, int]]] = {}
        self.matrices: dict[tuple[int, int, int], float] = {}
        self.experts: dict[int, float] = {}

    def lasts(self, step: Computed) -> int:
        work = work_of(step)
        if not work.chunks:
            return self._at(step.count, step.context // step.count)
        own = max(1, round(self.mixed(*work) * self.prompt))
        if self.limits is None:
            return own
        return max(own, round(self.limits.mixed(*work) * SECOND))

    def stages(self, step: Computed, count: int) -> Sequence[int]:
        """Of each stage: its own time, the host's before the first, a send before each other."""
        work = work_of(step)
        share = self.prompt if work.chunks else self.decode
        found = [max(1, round(seconds * share)) for seconds in self._stages(work)]
        if self.limits is None:
            return found
        return [max(own, round(least * SECOND)) for own, least in zip(found, self.limits._stages(work))]

    def together(self, steps: Sequence[Computed]) -> int:
        """One step of data-parallel ranks that wait for each other at their experts, whose tokens are those
        of all: the slowest rank's own part, then the experts."""
        works = [work_of(step) for step in steps]
        everyone = sum(work.tokens for work in works)
        prompts = any(work.chunks for work in works)
        ranks = self.profile.deployment.data_parallel_size
        own = max(self._without_experts(work, ranks) for work in works)
        experts = self._experts(everyone) * (self.prompt if prompts else self.decode)
        least = sum(stage.prompt_seconds for stage in self.profile.stages) * self.prompt
        launched = any(work.chunks and work.tokens > self.profile.graph_tokens for work in works)
        total = max(1, round(max(own + experts, least) if launched else own + experts))
        return total if self.limits is None else max(total, self.limits.together(steps))

    def line(self, count: int, context: int) -> tuple[int, int, int]:
        mean = context // count
        place = bisect_right(self.ends, mean + 1) - 1
        base, more = self._line(count)[place]
        end = self.ends[place + 1] if place + 1 < len(self.ends) else FOR_EVER
        return base + more * (mean - self.ends[place]), more, end - mean - 1

    def _at(self, count: int, mean: int) -> int:
        place = bisect_right(self.ends, mean) - 1
        base, more = self._line(count)[place]
        return base + more * (mean - self.ends[place])

    def _line(self, count: int) -> list[tuple[int, int]]:
        found = self.lines.get(count)
        if found is None:
            ends = [*self.ends, 2 * self.ends[-1]]
            times = [self._decodes(count, end) for end in ends]
            found = self.lines[count] = [
                (times[place], round((times[place + 1] - times[place]) / (ends[place + 1] - ends[place])))
                for place in range(len(self.ends))
            ]
        return found

    def _decodes(self, count: int, mean: int) -> int:
        batches = self.profile.deployment.pipeline_parallel_size  # of a pipeline: count is one of them
        own = max(1, round(step_seconds(self.profile, count * batches, ((mean, 1.0),)) * self.decode))
        return own if self.limits is None else max(own, self.limits._decodes(count, mean))

    def mixed(self, count: int, context: int, tokens: int, chunks: list[tuple[int, int]]) -> float:
        """Seconds of a step with prompts: ``count`` answers beside them that have ``context`` tokens.
        Matrices with all its tokens, each prompt's attention with what was computed before."""
        total = self._computing(Work(count, context, tokens, chunks))
        if tokens <= self.profile.graph_tokens:
            return total
        return max(total, sum(stage.prompt_seconds for stage in self.profile.stages))

    def _computing(self, work: Work) -> float:
        """Seconds of a step, were it launched in no time."""
        total, sampled = self._host(work), work.answers + len(work.chunks)
        for place, stage in enumerate(self.profile.stages):
            total += self._matrices(place, stage, work.tokens, sampled)
        for cache in self.caches:
            total = self._attending(total, cache, work)
        fixed, per_token = self.profile.send_seconds
        return total + (len(self.profile.stages) - 1) * (fixed + work.tokens * per_token)

    def _stages(self, work: Work) -> list[float]:
        """Seconds of each stage, none shorter than its launch."""
        profile, found, sampled = self.profile, [], work.answers + len(work.chunks)
        fixed, per_token = profile.send_seconds
        for place, stage in enumerate(profile.stages):
            total = fixed + work.tokens * per_token if place else self._host(work)
            total += self._matrices(place, stage, work.tokens, sampled)
            for cache in stage.caches:
                total = self._attending(total, cache, work)
            launched = work.chunks and work.tokens > profile.graph_tokens
            found.append(max(total, stage.prompt_seconds) if launched else total)
        return found

    def _without_experts(self, work: Work, ranks: int) -> float:
        """A step of one of so many ranks without its experts, in ns."""
        experts = self._experts(work.tokens * ranks)
        if work.chunks:
            return (self._computing(work) - experts) * self.prompt
        return self._at(work.answers, work.context // work.answers) - experts * self.decode

    def _experts(self, everyone: int) -> float:
        found = self.experts.get(everyone)
        if found is None:
            found = self.experts[everyone] = sum(
                sum(expert_seconds(self.profile, stage, everyone)) for stage in self.profile.stages
            )
        return found

    def _host(self, work: Work) -> float:
        host = self.profile.host
        return host[0] + work.answers * host[1] + len(work.chunks) * host[2]

    def _matrices(self, place: int, stage: Stage, tokens: int, sampled: int) -> float:
        found = self.matrices.get((place, tokens, sampled))
        if found is None:
            found = matrix_seconds(self.profile, stage, tokens, sampled)
            if len(self.matrices) < _REMEMBERED:
                self.matrices[place, tokens, sampled] = found
        return found

    def _attending(self, total: float, cache: CacheRead, work: Work) -> float:
        """So many seconds, and those of one kind of attention."""
        profile, count = self.profile, work.answers
        byte_seconds, flop_seconds = profile.byte_seconds, profile.flop_seconds
        if count:
            mean = work.context // count
            moved, flops = cache.step_bytes(mean), cache.decode_flops(mean)
            total += count * roof(profile, moved * byte_seconds, flops * flop_seconds)
        for new, before in work.chunks:
            moved, flops = cache.step_bytes(before + new), cache.prefill_flops(new, before)
            total += roof(profile, moved * byte_seconds, flops * flop_seconds)
        return total


def breakpoints(profile: SpeedProfile) -> list[int]:
    """Mean contexts at which a step of answers may bend, from 1 on: a window is full, reads outweigh
    operations."""
    found = {1 << octave for octave in range(_OCTAVES)}
    caches = [cache for stage in profile.stages for cache in stage.caches]
    for cache in caches:
        found |= {kept * cache.context_ways for _, kept in cache.slopes if kept}
        if cache.span:
            found.add(cache.span)
    for cache in caches:
        ends = sorted(found)
        for low, high in pairwise(ends):
            if (_excess(profile, cache, low) > 0) == (_excess(profile, cache, high) > 0):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                if (_excess(profile, cache, middle) > 0) == (_excess(profile, cache, low) > 0):
                    low = middle
                else:
                    high = middle
            found |= {low, high}
    return sorted(found)


def _excess(profile: SpeedProfile, cache: CacheRead, tokens: int) -> float:
    """By how much reading outlasts computing."""
    return cache.step_bytes(tokens) * profile.byte_seconds - cache.decode_flops(tokens) * profile.flop_seconds
