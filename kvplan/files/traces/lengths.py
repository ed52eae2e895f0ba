"""How often each pair of lengths occurs in a trace: what a plan's workload is made of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.traces.rows import read_rows
from kvplan.named import NamedTuple
from kvplan.plans.joint import joined
from kvplan.plans.workload import Shape

MAX_ROWS = 20_000_000
MAX_PAIRS = 2_000_000


class Lengths(NamedTuple):
    """The lengths in a trace. pairs: how often (input, output) occurs, exactly."""

    requests: int
    pairs: Counter[tuple[int, int]]

    def shapes(self) -> tuple[Shape, ...]:
        """The joint distribution in a bounded number of shapes (`kvplan.plans.joint`)."""
        return joined(self.pairs)


def read_lengths(
    path: Path, *, name: str, form: str = "auto", columns: tuple[str, ...] | None = None
) -> Lengths:
    """The lengths in a file. form: one of `FORMATS`; columns: of input and output, for csv, jsonl, parquet.

    A request without a prompt and an answer is left out of nothing: both lengths may be 0, not below.

    Raises KvplanError: ``bad-trace`` with the line, ``no-such-file``, ``not-a-file``, ``unreadable-file``.
    """
    pairs: Counter[tuple[int, int]] = Counter()
    requests = 0
    for row in read_rows(
        path, name=name, form=form, columns=columns, lengths_only=True, most_lines=MAX_ROWS
    ).rows:
        pairs[row.prompt, row.answer] += 1
        requests += 1
        if requests > MAX_ROWS or len(pairs) > MAX_PAIRS:
            raise KvplanError(
                "bad-trace",
                f"{name} has more than {MAX_ROWS:,} requests, or {MAX_PAIRS:,} different ones",
                help="take a sample of it",
            )
    if not requests:
        raise KvplanError("bad-trace", f"{name} has no requests")
    if all(pair == (0, 0) for pair in pairs):
        raise KvplanError("bad-trace", f"no request of {name} has a token")
    return Lengths(requests, pairs)
