"""How long a step takes, in whole nanoseconds: what the engine in virtual time asks for.

``line`` says the same as ``lasts`` for steps in which all requests only make answers, as a straight line, so
that many can be taken at once: step i of them (from 1) takes first + i · more, for the first ``most`` of
them. A time that bends (a window that is full, reads that outweigh operations) ends its line there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvplan.record import record

FOR_EVER = 1 << 62


class Part(Protocol):
    """A request in a step: its prompt, and its tokens that are computed once the step is done."""

    @property
    def prompt(self) -> int: ...
    @property
    def computed(self) -> int: ...


class Computed(Protocol):
    """The work of a step for ``count`` requests; parts: at least that many of those with prompt tokens."""

    @property
    def tokens(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def parts(self) -> Sequence[tuple[Part, int]]: ...


class Clock(Protocol):
    """A step time. ``line(count, context)``: of so many requests that have so many tokens together before the
    first of these steps; ``stages(step, count)``: of each of so many pipeline stages, one after another;
    ``together(steps)``: of one step of data-parallel ranks that wait for each other."""

    def lasts(self, step: Computed) -> int: ...

    def line(self, count: int, context: int) -> tuple[int, int, int]: ...

    def stages(self, step: Computed, count: int) -> Sequence[int]: ...

    def together(self, steps: Sequence[Computed]) -> int: ...


@record()
class StepTime:
    """A straight line in whole nanoseconds: fixed_ns + token_ns · tokens + context_ns · context."""

    fixed_ns: int = 6_000_000
    token_ns: int = 25_000
    context_ns: int = 25

    def lasts(self, step: Computed) -> int:
        return self.fixed_ns + self.token_ns * step.tokens + self.context_ns * step.context

    def line(self, count: int, context: int) -> tuple[int, int, int]:
        first = self.fixed_ns + self.token_ns * count + self.context_ns * context
        return first, self.context_ns * count, FOR_EVER

    def stages(self, step: Computed, count: int) -> Sequence[int]:
        """Equal parts of the whole, the first with what is left."""
        each, left = divmod(self.lasts(step), count)
        return [each + left, *[each] * (count - 1)]

    def together(self, steps: Sequence[Computed]) -> int:
        """The slowest rank's time."""
        return max(self.lasts(step) for step in steps)
