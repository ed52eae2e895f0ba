"""A request's prompt and answer as a prefix cache sees them: runs of pages, the last of which is its own."""

from __future__ import annotations

from bisect import bisect_right

from kvplan.simulation.time.names import Segment

BEYOND = 1 << 62


class Chain:
    """ends: of each run, in pages; runs: their names. Two chains are alike up to where one leaves a run that
    the other stays in: the last run of each is a name of its own."""

    __slots__ = ("ends", "runs")

    def __init__(self, path: tuple[Segment, ...], own: int) -> None:
        self.ends = [stop for start, stop, _ in path if stop > start]
        self.runs = [run for start, stop, run in path if stop > start]
        self.ends.append(BEYOND)
        self.runs.append(-1 - own)

    def run_at(self, page: int) -> int:
        return self.runs[bisect_right(self.ends, page)]

    def alike(self, other: Chain, start: int, stop: int) -> int:
        """Up to which page, at most ``stop``, two chains that are alike up to ``start`` are so."""
        if self is other:
            return stop
        mine, theirs = bisect_right(self.ends, start), bisect_right(other.ends, start)
        while self.runs[mine] == other.runs[theirs]:
            here, there = self.ends[mine], other.ends[theirs]
            start = min(here, there)
            if start >= stop:
                return stop
            if here != there:
                return start
            mine, theirs = mine + 1, theirs + 1
        return start
