"""The step time of a simulated engine from a speed profile: whole nanoseconds, in pieces of straight lines.

A step of ``count`` requests that only make answers, at a mean context of m tokens, takes
``step_seconds(profile, count, m)``. Between breakpoints in m it is interpolated in whole nanoseconds, so that
steps taken together and one by one last the same. Windows see the mean, not each request's own length: of
requests around a window's length that is too much by at most what the window saves.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from kvplan.planning.speed.attention import CacheRead
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.planning.speed.steps import matrix_seconds, roof, step_seconds
from kvplan.simulation.time.clock import FOR_EVER, Computed
from kvplan.units import SECOND

_OCTAVES = 24
"""Also a breakpoint at every power of two, for what follows no straight line."""
_REMEMBERED = 200_000


class SpeedClock:
    """decode, prompt: what steps without and with prompt tokens are multiplied with (the ends of the
    estimate's interval); no step is shorter than the GPU's peaks allow. Without pipelines: a stage is the
    whole model."""

    def __init__(self, profile: SpeedProfile, decode: float = 1.0, prompt: float = 1.0) -> None:
        limits = profile.limits
        self.limits = SpeedClock(limits) if limits is not None and min(decode, prompt) < 1 else None
        self.profile, self.decode, self.prompt = profile, decode * SECOND, prompt * SECOND
        self.caches = [cache for stage in profile.stages for cache in stage.caches]
        self.ends = breakpoints(profile)
        self.lines: dict[int, list[tuple[int, int]]] = {}
        self.matrices: dict[tuple[int, int], float] = {}

    def lasts(self, step: Computed) -> int:
        chunks = [
            (tokens, request.computed - tokens)
            for request, tokens in step.parts
            if tokens > 1 or request.computed <= request.prompt
        ]
        if not chunks:
            return self._at(step.count, step.context // step.count)
        count = step.count - len(chunks)
        context = step.context - sum(tokens + before for tokens, before in chunks)
        own = max(1, round(self.mixed(count, context, step.tokens, chunks) * self.prompt))
        if self.limits is None:
            return own
        return max(own, round(self.limits.mixed(count, context, step.tokens, chunks) * SECOND))

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
        own = max(1, round(step_seconds(self.profile, count, ((mean, 1.0),)) * self.decode))
        return own if self.limits is None else max(own, self.limits._decodes(count, mean))

    def mixed(self, count: int, context: int, tokens: int, chunks: list[tuple[int, int]]) -> float:
        """Seconds of a step with prompts: ``count`` answers beside them that have ``context`` tokens.
        Matrices with all its tokens, each prompt's attention with what was computed before."""
        profile = self.profile
        sampled = count + len(chunks)
        matrices = self.matrices.get((tokens, sampled))
        if matrices is None:
            matrices = 0.0
            for stage in profile.stages:
                matrices += matrix_seconds(profile, stage, tokens, sampled)
            if len(self.matrices) < _REMEMBERED:
                self.matrices[tokens, sampled] = matrices
        total = profile.host[0] + count * profile.host[1] + len(chunks) * profile.host[2] + matrices
        byte_seconds, flop_seconds = profile.byte_seconds, profile.flop_seconds
        mean = context // count if count else 0
        for cache in self.caches:
            if count:
                moved, flops = cache.step_bytes(mean), cache.decode_flops(mean)
                total += count * roof(profile, moved * byte_seconds, flops * flop_seconds)
            for new, before in chunks:
                moved, flops = cache.step_bytes(before + new), cache.prefill_flops(new, before)
                total += roof(profile, moved * byte_seconds, flops * flop_seconds)
        if tokens <= profile.graph_tokens:
            return total
        return max(total, sum(stage.prompt_seconds for stage in profile.stages))


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
