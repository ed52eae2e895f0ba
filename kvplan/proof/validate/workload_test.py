"""The workload test of one rank: allocate, admit until full, refuse one more, write, read, free, refill, and
attention over the paged cache of one layer of each kind. `Run.all` has the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvplan.engines.tensors.base import GroupKind, Layout, View
from kvplan.proof.validate.attention import attend
from kvplan.proof.validate.blocks import BlockTables, Request, shareable
from kvplan.proof.validate.checks import (
    capacity,
    fragmentation,
    growth,
    missing,
    odd_length,
    snapshot,
    untouched,
)
from kvplan.proof.validate.fill import Checked, check, copy_blocks, write
from kvplan.proof.validate.findings import NOTHING, WorkloadTest
from kvplan.proof.validate.free import BlockError
from kvplan.proof.validate.memory import Cache, allocate
from kvplan.proof.validate.slots import Slots, slots_of, spans
from kvplan.record import replace

Progress = Callable[[str, int, int], None]
"""progress(stage, done_bytes, total_bytes)."""
Stop = Callable[[], bool]
"""Asked between chunks; True ends the workload test with ``stopped_at`` set."""


class Stopped(Exception):  # noqa: N818 - not an error
    """The caller asked for an end."""


def workload_test(
    layout: Layout,
    *,
    device: str = "cpu",
    lengths: Sequence[int] = (),
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> WorkloadTest:
    """Run it all on one device. Everything is released when it returns or raises.

    lengths: tokens of the requests, over and over (none: ``layout.tokens``, and its predicted number).
    Raises torch.OutOfMemoryError where the device has less than predicted; an workload_test that was stopped
    returns what it knew, with ``stopped_at``.
    """
    with allocate(layout, device) as cache:
        run = Run(cache, progress, stop, lengths)
        try:
            run.all()
        except Stopped:
            return replace(run.result(), stopped_at=run.stage)
        except BlockError as error:
            return replace(run.result(), table_error=f"{run.stage}: {error}")
        return run.result()


class Run:
    """The stages, one method each; ``found`` holds what is known so far."""

    def __init__(
        self,
        cache: Cache,
        progress: Progress | None = None,
        stop: Stop | None = None,
        lengths: Sequence[int] = (),
    ) -> None:
        self.cache, self.layout, self.tables = cache, cache.layout, BlockTables(cache.layout)
        self.lengths = tuple(lengths) or (self.layout.tokens,)
        self.predicted = capacity(self.layout, self.lengths) if lengths else self.layout.requests
        self.progress, self.stop, self.stage = progress, stop, "allocate"
        self.checked = Checked()
        self.written = self.bytes_written = self.missing = 0
        self.done = self.total = 0
        self.found: dict[str, Any] = {}

    def all(self) -> None:
        """Every stage; only the first where the tensors are not those of the layout."""
        self.found["tensors_wrong"] = self.cache.differences()
        if self.found["tensors_wrong"] or self.cache.bytes != self.layout.predicted_bytes:
            return
        self.fill()
        self.refuse()
        self.read()
        self.refill()
        self.grow()
        self.read(visible=True)
        self.step()
        self.end()
        self.attend()

    def result(self) -> WorkloadTest:
        return replace(
            NOTHING,
            device=self.cache.device,
            bytes_predicted=self.layout.predicted_bytes,
            bytes_allocated=self.cache.bytes,
            blocks=tuple(pool.num_blocks for pool in self.layout.pools),
            requests_predicted=self.predicted,
            states_written=self.written,
            bytes_written=self.bytes_written,
            states_verified=self.checked.states,
            states_wrong=self.checked.wrong,
            states_missing=self.missing,
            mismatches=tuple(self.checked.mismatches),
            **self.found,
        )

    # -------------------------------------------------------------------------------------------- the stages

    def fill(self) -> None:
        """Admit until refused, at most one more than predicted; write everything.

        Where the engine gives back what a prompt no longer needs, a request does before the next comes.
        """
        layout = self.layout
        while len(self.tables.requests) <= self.predicted and (new := self._admit()) is not None:
            if layout.settles:
                self.tables.settle(new)
        self.found["requests_admitted"] = len(self.tables.requests)
        self.found["fragmentation"] = fragmentation(layout, self.tables)
        self.rewrite()

    def refuse(self) -> None:
        """One more: no room, and no table or counter has moved."""
        before = snapshot(self.tables)
        self.found["extra_refused"] = self._admit() is None
        self.found["undisturbed"] = before == snapshot(self.tables)

    def rewrite(self) -> None:
        """Write everything that the requests hold once more."""
        self._write("write", list(self.tables.requests.values()))

    def read(self, *, visible: bool = False) -> None:
        """Read everything that the requests hold, or all that their next tokens see."""
        self._read("read again" if visible else "read", list(self.tables.requests.values()), visible=visible)

    def refill(self) -> None:
        """Every second request ends; requests that share half of their tokens take the blocks.

        They end inside a block where the length leaves a choice, so that a fork has something to copy.
        """
        running = list(self.tables.requests.values())
        for request in running[::2]:
            self.tables.release(request)
        for request in running[1::2]:
            self.tables.settle(request)
        most = len(running)
        odd = {tokens: odd_length(self.layout, tokens) for tokens in self.lengths}
        common = -1  # contents are the numbers of requests; this one is nobody's
        fresh: list[Request] = []
        while len(fresh) < most:
            own, tokens = self.tables.next_number, odd[self.lengths[len(fresh) % len(self.lengths)]]
            pieces = [(tokens // 2, common), (tokens, own)] if tokens > 1 else [(tokens, own)]
            new = self.tables.admit(tokens, self.layout.encoder_tokens, contents=pieces, share=True)
            if new is None:
                break
            fresh.append(new)
        # In one pass: what they do not share lies in blocks of their own, what they share is the same.
        self._write("refill", fresh, starts=[one.cached for one in fresh], hits=True)
        self.found["refilled"] = len(fresh)
        self.found["shared_tokens"] = sum(request.cached for request in fresh)

    def grow(self) -> None:
        """One request makes room, another is forked, and all grow: past a block's end where there is room."""
        copied = 0
        requests = list(self.tables.requests.values())
        if len(requests) > 1:
            self.tables.release(requests.pop(0))
        for request in requests:
            self.tables.settle(request)
        if requests and (forked := self.tables.fork(requests[-1], self.tables.next_number)) is not None:
            child, copies = forked
            copy_blocks(self.cache, copies)
            copied += len(copies)
            self._write("fork", [child], starts=[child.cached])
            requests.append(child)
        most = growth(self.layout, max(self.lengths))
        grown: list[Request] = []
        starts: list[int] = []
        for request in reversed(requests) if most else []:
            start, count = request.tokens, most
            while (made := self.tables.append(request, count)) is None and count > 1:
                count //= 2
            if made is None:
                continue
            # At once: what a copy is made of may be written by the request that keeps it.
            copy_blocks(self.cache, made)
            copied += len(made)
            grown.append(request)
            starts.append(start)
        self._write("grow", grown, starts=starts, states=False)
        self.found["blocks_copied"] = copied

    def step(self) -> None:
        """Where there are windows, one request grows token by token over a block, and never lacks one."""
        sizes = [group.block_size for group in self.layout.groups if group.window and not group.ring]
        requests = list(self.tables.requests.values())
        if not sizes or not requests:
            return
        if len(requests) > 1:
            self.tables.release(requests[0])
        request, start = requests[-1], requests[-1].tokens
        for _ in range(max(sizes) + 1):
            made = self.tables.append(request, 1)
            if made is None:
                break
            copy_blocks(self.cache, made)
            self.missing += missing(self.tables, request)
        self._write("step", [request], starts=[start], states=False)
        self._read("step", [request], visible=True)

    def end(self) -> None:
        """All requests end; every block is free and held by nobody; reserved ones are as they were."""
        self.found["reserved_untouched"] = untouched(self.cache)
        for request in list(self.tables.requests.values()):
            self.tables.release(request)
        self.found["all_freed"] = all(
            pool.free == pool.pool.usable and not any(pool.references) for pool in self.tables.pools
        )

    def attend(self) -> None:
        self.stage = "attention"
        self._tick(0)
        self.found["attention"] = attend(self.cache, self.tables)

    # ------------------------------------------------------------------------------------------------ pieces

    def _admit(self) -> Request | None:
        tokens = self.lengths[len(self.tables.requests) % len(self.lengths)]
        return self.tables.admit(tokens, self.layout.encoder_tokens)

    def _read(self, stage: str, requests: Sequence[Request], *, visible: bool) -> None:
        self._begin(stage, requests)
        self.missing += sum(missing(self.tables, request) for request in requests)

        def start(index: int, place: int) -> int:
            return self.tables.visible(index, requests[place].tokens) if visible else 0

        for view, slots in self._slots(requests, start):
            check(self.cache, view, slots, self.checked, self._tick)

    def _write(
        self,
        stage: str,
        requests: Sequence[Request],
        *,
        starts: Sequence[int] = (),
        hits: bool = False,
        states: bool = True,
    ) -> None:
        """Write each request's tokens from its start on, all of them where none is given (states, and cross
        attention's tokens, only with ``states``), one pass over the views for all requests.

        hits: a start holds for the groups in which a prefix was found; the others have all tokens to write.
        """
        self._begin(stage, requests)

        def start(index: int, place: int) -> int:
            return starts[place] if starts and (not hits or shareable(self.layout.groups[index])) else 0

        for view, slots in self._slots(requests, start):
            kind = self.layout.groups[view.group].kind
            if not states and kind in (GroupKind.STATE, GroupKind.CROSS):
                continue
            self.bytes_written += write(self.cache, view, slots, self._tick)
            self.written += slots.count

    def _slots(
        self, requests: Sequence[Request], start: Callable[[int, int], int]
    ) -> Iterator[tuple[View, Slots]]:
        """Every view with the slots of these requests; start: first token of (group, place in the row)."""
        for index in range(len(self.layout.groups)):
            views = [view for view in self.layout.views if view.group == index]
            for states in sorted({view.states for view in views}):
                found = [
                    span
                    for place, request in enumerate(requests)
                    for span in spans(self.tables, request, index, states, start=start(index, place))
                ]
                slots = slots_of(found, states, self.cache.device)
                for view in views:
                    if view.states == states:
                        yield view, slots

    def _begin(self, stage: str, requests: Sequence[Request]) -> None:
        self.stage, self.done = stage, 0
        self.total = self.layout.bytes * len(requests) // max(self.predicted, 1)
        self._tick(0)

    def _tick(self, count: int) -> None:
        if self.stop is not None and self.stop():
            raise Stopped
        self.done += count
        if self.progress is not None:
            self.progress(self.stage, self.done, max(self.total, self.done))
