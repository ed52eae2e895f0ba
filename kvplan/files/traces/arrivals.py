"""A trace as a simulation takes it: requests in order of arrival, identities checked to be prefix chains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.traces.entries import bad
from kvplan.files.traces.formats import Form
from kvplan.files.traces.rows import MOST_NS, Row, read_rows
from kvplan.named import NamedTuple
from kvplan.plans.arrival import Arrival
from kvplan.units import SECOND, ceil_div

MAX_ROWS = 5_000_000
MAX_IDS = 100_000_000
_ROOT = -1  # the parent of a first block


class Arrivals(NamedTuple):
    """The requests of a trace. wide: tokens of one identity (1 where there are none); form: the format;
    timed: whether the trace says when requests come; notes: what was filled in or left out."""

    arrivals: tuple[Arrival, ...]
    wide: int
    form: str
    timed: bool
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return (self.arrivals[-1].at_ns - self.arrivals[0].at_ns) / SECOND if self.arrivals else 0.0

    @property
    def rate(self) -> float:
        """Requests a second; 0 where all come at once."""
        return (len(self.arrivals) - 1) / self.seconds if self.seconds else 0.0


def read_arrivals(
    path: Path, *, name: str, form: str = "auto", columns: tuple[str, ...] | None = None, wide: int = 0,
    most: int | None = None,
) -> Arrivals:  # fmt: skip
    """The requests of a file from its first on, at most ``most``; the first comes at time 0.

    Times that fall, identities that are no prefix chains, or too few or too many of them, are errors with the
    line. Raises KvplanError as `read_rows` does.
    """
    read = read_rows(
        path, name=name, form=form, columns=columns, wide=wide, most_lines=None if most else MAX_ROWS
    )
    found = _Checked(read.form, name)
    for row in read.rows:
        found.take(row)
        if most is not None and len(found.arrivals) >= most:
            break
        if len(found.arrivals) > MAX_ROWS or found.ids > MAX_IDS:
            raise KvplanError(
                "bad-trace",
                f"{name} has more than {MAX_ROWS:,} requests, or {MAX_IDS:,} identities",
                help="--first 1000000: its first so many",
            )
    return found.done()


class _Checked:
    """Rows become arrivals, one by one."""

    def __init__(self, form: Form, name: str) -> None:
        self.form, self.name = form, name
        self.arrivals: list[Arrival] = []
        self.wide = self.ids = self.empty = self.silent = 0
        self.last: int | None = None
        self.timed: bool | None = None
        self.sessions: set[str | None] = set()
        self.chains: dict[object, tuple[int, int, int]] = {}  # identity: number, parent, depth
        self.made: dict[tuple[int, object], int] = {}

    def take(self, row: Row) -> None:
        if not row.prompt:
            self.empty += 1
            return
        if not row.answer:
            self.silent += 1
        timed = row.at_ns is not None
        if self.timed is None:
            self.timed = timed
        elif self.timed != timed:
            raise bad(
                self.name, row.line, "has no time, as others have" if self.timed else "alone has a time"
            )
        at_ns = row.at_ns or 0
        if self.form.name == "weka":
            self.sessions.add(row.session)
        if self.form.ordered:
            if self.last is not None and at_ns < self.last:
                late = (self.last - at_ns) / SECOND
                raise bad(self.name, row.line, f"comes {late:g} s before the request above it")
            self.last = at_ns
        self.arrivals.append(Arrival(at_ns, row.prompt, row.answer or 1, self._identities(row)))

    def _identities(self, row: Row) -> Sequence[int]:
        if not row.ids:
            return ()
        if not row.wide:
            raise bad(
                self.name, row.line, "has identities, and of how many tokens is not said: --trace-block 16"
            )
        if self.wide not in (0, row.wide):
            raise bad(self.name, row.line, f"has blocks of {row.wide} tokens, lines above of {self.wide}")
        self.wide = row.wide
        least, enough = row.prompt // row.wide, ceil_div(row.prompt + max(row.answer, 1), row.wide)
        if not least <= len(row.ids) <= enough:
            raise bad(
                self.name, row.line,
                f"has {len(row.ids):,} identities of {row.wide} tokens for a prompt of {row.prompt:,}:"
                f" {ceil_div(row.prompt, row.wide):,} are needed",
            )  # fmt: skip
        self.ids += len(row.ids)
        return self._chained(row) if self.form.chained else self._made(row)

    def _chained(self, row: Row) -> Sequence[int]:
        """The numbers of a chain of prefix identities. One that follows another, or stands elsewhere, than in
        a line above is no identity of a prefix."""
        chains, found, parent = self.chains, [], _ROOT
        for depth, identity in enumerate(row.ids):
            known = chains.get(identity)
            if known is None:
                known = chains[identity] = len(chains), parent, depth
            elif known[1] != parent or known[2] != depth:
                what = (
                    f"at block {depth}, before at {known[2]}" if known[2] != depth else "behind another block"
                )
                raise bad(
                    self.name, row.line,
                    f"has identity {str(identity)[:40]} {what}: these are no prefixes",
                )  # fmt: skip
            parent = known[0]
            found.append(parent)
        return found

    def _made(self, row: Row) -> Sequence[int]:
        """Numbers for identities of blocks alone: a prefix is the same where all blocks up to it are."""
        made, found, parent = self.made, [], _ROOT
        for identity in row.ids:
            key = (row.session, identity) if row.local and parent == _ROOT else identity
            parent = made.setdefault((parent, key), len(made))
            found.append(parent)
        return found

    def done(self) -> Arrivals:
        if not self.arrivals:
            raise KvplanError("bad-trace", f"{self.name} has no requests")
        if not self.form.ordered:
            self.arrivals.sort(key=lambda one: one.at_ns)
        first = self.arrivals[0].at_ns
        if self.arrivals[-1].at_ns - first > MOST_NS:
            raise KvplanError("bad-trace", f"{self.name} lasts longer than ten years")
        if first:
            self.arrivals = [
                Arrival(one.at_ns - first, one.prompt, one.answer, one.ids) for one in self.arrivals
            ]
        notes = []
        if self.empty:
            notes.append(f"{self.empty:,} requests without a prompt are left out")
        if self.silent:
            notes.append(f"{self.silent:,} requests without an answer are served with one token")
        if len(self.sessions) > 1:
            notes.append(f"{len(self.sessions):,} sessions begin together: times are those within each")
        return Arrivals(tuple(self.arrivals), self.wide or 1, self.form.name, bool(self.timed), tuple(notes))
