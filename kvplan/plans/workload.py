"""The requests that a plan serves: how long, how many at once, how fast they come."""

from __future__ import annotations

from fractions import Fraction

from kvplan.record import record
from kvplan.units import apportion


@record()
class Shape:
    """Requests of one shape; ``weight`` of them among those of the mix. output_tokens are generated."""

    input_tokens: int
    output_tokens: int
    weight: int = 1

    @property
    def tokens(self) -> int:
        """The request's length when it ends."""
        return self.input_tokens + self.output_tokens


LEAST_CV, MOST_CV = Fraction(1, 20), 20
"""Between these the gaps of arrivals can be drawn."""


@record()
class Workload:
    """A mix of request shapes and the load that they make."""

    shapes: tuple[Shape, ...]
    requests_in_flight: int | None = None
    """running at once over the whole plan. requests_per_second with ttft_seconds and tpot_seconds
    (targets) is the other way to say how much."""
    requests_per_second: Fraction | None = None
    burstiness: Fraction = Fraction(1)
    """of arrivals at a rate without a trace: standard deviation of the gaps over their mean; 1: Poisson"""
    seed: int = 1
    """of the arrivals that are drawn where there is no trace"""
    ttft_seconds: Fraction | None = None
    tpot_seconds: Fraction | None = None
    shared_prefix_tokens: int = 0
    """tokens at the head of every prompt that are the same"""
    acceptance: str | None = None
    """how many drafted tokens are right, in the words of `kvplan.acceptance`"""
    samples: int = 1
    """parallel samples (or beams) of one prompt"""
    trace: str | None = None
    """the file that the shapes were read from, in trace_format, with prompt, answer (time and identities)
    in trace_columns"""
    trace_format: str = "auto"
    trace_columns: tuple[str, ...] | None = None
    trace_block: int = 0
    """tokens of one identity, 0 where the trace says it"""

    @property
    def longest(self) -> int:
        """Tokens of the longest request when it ends."""
        return max(shape.tokens for shape in self.shapes)

    @property
    def has_targets(self) -> bool:
        return self.ttft_seconds is not None or self.tpot_seconds is not None

    @property
    def arrives(self) -> bool:
        """Whether it says when requests come: at a rate, or at a trace's own times where no number of them
        is said to run at once."""
        return self.requests_per_second is not None or (
            self.trace is not None and self.requests_in_flight is None
        )

    def mean(self, *, name: str = "tokens") -> Fraction:
        """The mean of ``tokens``, ``input_tokens`` or ``output_tokens`` over the mix."""
        total = sum(shape.weight for shape in self.shapes)
        return Fraction(sum(getattr(shape, name) * shape.weight for shape in self.shapes), total)

    def dealt(self, requests: int) -> tuple[tuple[Shape, int], ...]:
        """So many requests in the proportions of the mix, as whole numbers (largest remainder first)."""
        return tuple(zip(self.shapes, apportion(requests, [s.weight for s in self.shapes]), strict=True))
