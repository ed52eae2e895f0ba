"""The step time with drafts: the model verifies drafted tokens beside each request's own, then drafts anew.

    step = host + Σ stages (matrices(all tokens) + cache, read once a request, with its tokens' operations)
           + passes · Σ draft's stages (matrices(its tokens) + cache)

A draft that makes its tokens one after another passes as often as it makes tokens: first over all tokens of
the step, which fills its own cache, then over one of each request. One that makes them all at once passes
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from kvplan.planning.speed.profile import SpeedProfile, Stage
from kvplan.planning.speed.steps import matrix_seconds, roof
from kvplan.record import record
from kvplan.simulation.time.clock import Computed
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.units import SECOND


@record(eq=False)
class DraftTime:
    """tokens: drafted a step; stages: of the draft (none: it looks tokens up); at_once: it makes them in one
    pass."""

    tokens: int
    stages: tuple[Stage, ...]
    at_once: bool = False


class Verified(Computed, Protocol):
    """A step whose parts may have drafted tokens."""

    @property
    def drafted(self) -> Mapping[Any, int]: ...


class DraftedClock(SpeedClock):
    """A `SpeedClock` of steps that verify drafts."""

    def __init__(
        self, profile: SpeedProfile, draft: DraftTime, decode: float = 1.0, prompt: float = 1.0
    ) -> None:
        super().__init__(profile, decode, prompt)
        self.draft = draft

    def lasts(self, step: Computed) -> int:
        chunks, answers, own, context = [], 0, 0, 0
        drafted = cast("Verified", step).drafted
        for request, tokens in step.parts:
            before = request.computed - tokens
            if before >= request.prompt and (tokens == 1 or request in drafted):
                answers, own, context = answers + 1, own + tokens, context + request.computed
            else:
                chunks.append((tokens, before))
        mean = context // answers if answers else 0
        share = self.prompt if chunks else self.decode
        verified = self._verify(self.profile, answers, own, mean, chunks)
        total = max(1, round((verified + self._drafting(answers, own, mean, chunks)) * share))
        if self.limits is None:
            return total
        least = self._verify(self.limits.profile, answers, own, mean, chunks)
        return max(total, round(least * SECOND))

    def together(self, steps: Sequence[Computed]) -> int:
        """The slowest rank's time, as if the others had as many tokens."""
        return max(self.lasts(step) for step in steps)

    def answers(self, count: int, mean: int) -> float:
        """Seconds of a step in which ``count`` requests of ``mean`` tokens bring all their drafts."""
        own = count * (self.draft.tokens + 1)
        return self._verify(self.profile, count, own, mean, []) + self._drafting(count, own, mean, [])

    @staticmethod
    def _verify(
        profile: SpeedProfile, answers: int, own: int, mean: int, chunks: list[tuple[int, int]]
    ) -> float:
        """Seconds of the model: ``answers`` requests with ``own`` tokens in all, and prompts."""
        total = profile.host[0] + answers * profile.host[1] + len(chunks) * profile.host[2]
        tokens = own + sum(new for new, _ in chunks)
        for stage in profile.stages:
            total += _stage(profile, stage, tokens, own + len(chunks), answers, own, mean, chunks)
        return max(total, sum(stage.prompt_seconds for stage in profile.stages)) if chunks else total

    def _drafting(self, answers: int, own: int, mean: int, chunks: list[tuple[int, int]]) -> float:
        """Seconds of the draft's passes."""
        draft, profile, total = self.draft, self.profile, 0.0
        requests = answers + len(chunks)
        rows = requests * (draft.tokens + 1) if draft.at_once else own + sum(new for new, _ in chunks)
        for stage in draft.stages:
            sampled = requests * draft.tokens if draft.at_once else requests
            total += _stage(profile, stage, rows, sampled, answers, own, mean, chunks)
            if not draft.at_once and draft.tokens > 1 and requests:
                more = _stage(profile, stage, requests, requests, requests, requests, mean, [])
                total += (draft.tokens - 1) * more
        return total


def _stage(
    profile: SpeedProfile, stage: Stage, tokens: int, sampled: int, answers: int, own: int, mean: int,
    chunks: list[tuple[int, int]],
) -> float:  # fmt: skip
    total = matrix_seconds(profile, stage, tokens, sampled)
    byte_seconds, flop_seconds = profile.byte_seconds, profile.flop_seconds
    for cache in stage.caches:
        if answers:
            moved, flops = answers * cache.step_bytes(mean), own * cache.decode_flops(mean)
            total += roof(profile, moved * byte_seconds, flops * flop_seconds)
        for new, before in chunks:
            moved, flops = cache.step_bytes(before + new), cache.prefill_flops(new, before)
            total += roof(profile, moved * byte_seconds, flops * flop_seconds)
    return total
