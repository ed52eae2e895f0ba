"""Results of a simulation: columns of requests, steps in runs, totals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.simulation.vllm.offload.connector import Counts

COLUMNS = (
    "admitted_step", "admitted_ns", "first_token_ns", "finished_ns", "cached_tokens", "cached_again_tokens",
    "preemptions", "refused",
)  # fmt: skip
STEP_COLUMNS = (
    "start_ns", "tokens", "context", "scheduled", "running", "waiting", "free_blocks", "preempted",
)  # fmt: skip
Row = tuple[int, int, int, int, int, int, int, int]


class Answer:
    """columns: per request, -1 where it never came to it; times in ns. rows: one a step where they were asked
    for, with STEP_COLUMNS. steps: that computed something; empty: scheduled without a token; offloaded: what
    tiers outside the GPU did, where there are any."""

    def __init__(self, count: int, rows: bool) -> None:
        self.columns: dict[str, list[int]] = {name: [-1] * count for name in COLUMNS[:5]}
        self.columns |= {name: [0] * count for name in COLUMNS[5:]}
        self.rows: list[Row] | None = [] if rows else None
        self.offloaded: Counts | None = None
        self.steps = self.empty = self.tokens = self.preemptions = self.busy_ns = self.end_ns = 0

    def digest(self) -> str:
        """SHA-256 over all steps, one line of decimal numbers each."""
        found = hashlib.sha256()
        for line in self.lines():
            found.update(line)
        return found.hexdigest()

    def lines(self) -> Iterator[bytes]:
        assert self.rows is not None, "ask for rows to have a digest"
        for row in self.rows:
            yield (",".join(map(str, row)) + "\n").encode()

    def hit_rate(self, prompts: list[int]) -> float:
        """The share of prompt tokens that the prefix cache had when their requests were first admitted."""
        served = [place for place, step in enumerate(self.columns["admitted_step"]) if step >= 0]
        whole = sum(prompts[place] for place in served)
        return sum(self.columns["cached_tokens"][place] for place in served) / whole if whole else 0.0
