"""The load of a running server at one moment: what ``compare --watch`` follows."""

from __future__ import annotations

from fractions import Fraction

from kvplan.record import record


@record()
class LiveSample:
    """The load of a server at one moment, summed over its engines; counters count from the server's start.

    usage: share of the pool that live requests hold, the fullest engine's. queries and hits: tokens looked
    up in and served from the prefix cache. preemptions: what SGLang calls retractions. None = not said.
    """

    engine: str
    usage: Fraction | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    queries: int | None = None
    hits: int | None = None
    hit_rate: Fraction | None = None
    used_tokens: int | None = None
    swa_usage: Fraction | None = None
    mamba_usage: Fraction | None = None

    def hit_rate_since(self, earlier: LiveSample) -> Fraction | None:
        """Share of the tokens asked since `earlier` that the prefix cache held; the server's own where it
        counts none.

        None where nothing was asked, or where the counters went back (the server restarted).
        """
        if self.queries is None or self.hits is None or earlier.queries is None or earlier.hits is None:
            return self.hit_rate
        asked, held = self.queries - earlier.queries, self.hits - earlier.hits
        return Fraction(held, asked) if asked > 0 and held >= 0 else None

    def preemptions_since(self, earlier: LiveSample) -> int | None:
        """Requests thrown out since `earlier`; None where not counted or the counter went back."""
        if self.preemptions is None or earlier.preemptions is None:
            return None
        new = self.preemptions - earlier.preemptions
        return new if new >= 0 else None
