"""The rules of one group of caches, worked out once: what a request frees, keeps, and needs for a hit.

vllm-project/vllm 0.32 vllm/v1/core/single_type_kv_cache_manager.py. ``behind(processed)`` blocks of a request
are no longer looked at:

    full       0
    window     max(0, processed - (window - 1)) // block
    state      max(0, processed - 1) // block
    chunk      processed // chunk * chunk // block
    ring       0
"""

from __future__ import annotations

from itertools import groupby

from kvplan.simulation.vllm.settings import ALIGN, CHUNK, FULL, RING, STATE, WINDOW, Engine, Group
from kvplan.units import ceil_div

_ENDLESS = 1 << 62
"""Tokens of a ring's block: more than any request has."""


class Table:
    """number: place among the groups; cap: most blocks that admission asks for; single: one block a step, at
    the last place (states kept at block boundaries); checkpoint: as the group's; leaks: as the release's;
    need: blocks in a row that make a hit; unit: tokens at whose multiples hits end; retention: as the
    engine's setting; dense: whether every block is kept.
    times: how many neighbouring groups have these very rules: they hold, keep and free the same blocks, so
    one table stands for all of them (`merged`)."""

    __slots__ = (
        "block", "cap", "checkpoint", "chunk", "dense", "kind", "leaks", "need", "number", "retention",
        "ring", "single", "slides", "span", "state", "times", "unit",
    )  # fmt: skip

    def __init__(self, engine: Engine, group: Group, number: int, times: int = 1) -> None:
        self.times = times
        self.kind, self.number, self.ring = group.kind, number, group.kind == RING
        self.block = _ENDLESS if self.ring else group.block
        self.cap, self.unit, self.retention = engine.cap(group), engine.unit, engine.retention
        self.state = group.kind == STATE
        self.single = self.state and engine.states == ALIGN
        self.checkpoint = group.checkpoint if self.single else 0
        self.leaks = self.single and engine.rules.leaks
        self.slides, self.chunk = group.kind not in (FULL, RING), group.span if group.kind == CHUNK else 0
        self.span = group.span - 1 if group.kind == WINDOW else 1
        self.need = ceil_div(self.span, self.block)
        every = group.kind != WINDOW or (self.need > 0 and self.block == self.unit)
        whole = self.retention is None and every and not self.single
        self.dense = whole or group.kind in (FULL, CHUNK, RING)

    def behind(self, processed: int) -> int:
        if not self.slides:
            return 0
        if self.chunk:
            return processed // self.chunk * self.chunk // self.block
        return max(0, processed - self.span) // self.block

    def saves(self, start: int, end: int, prefill_end: int, tokens: int) -> int:
        """1 where the step that computes tokens [start, end) ends a prompt and saves the state at the last
        boundary before ``tokens`` in a block of its own, else 0 (is_mamba_prefill_checkpoint_valid)."""
        if not self.checkpoint or end < prefill_end or start % self.block:
            return 0
        boundary = (tokens - 1) // self.block * self.block
        return int(boundary > start and (boundary - start) % self.checkpoint == 0)

    def kept(self, start: int, stop: int, boundaries: tuple[int, ...]) -> list[tuple[int, int]]:
        """The blocks of [start, stop) that go into the prefix cache (reachable_block_mask): all, unless no
        hit could end with them. boundaries: tokens at which a later request may resume."""
        whole = [(start, stop)]
        if self.kind == WINDOW:
            segment = self.unit if self.retention is None else self.retention
            need, every = self.need, segment // self.block
        elif self.state and self.retention is not None:
            need, every = 1, self.retention // self.block
            if self.retention and every <= 1:
                return whole
        else:
            return whole
        if every and need >= every and not (self.state and every > 1):
            return whole
        kept = []
        if every:
            kept += [
                (max(start, end - need), min(stop, end))
                for end in range((start // every + 1) * every, stop + every, every)
            ]
        if self.retention is not None:
            for boundary in boundaries:
                end = boundary // self.unit * self.unit // self.block
                kept.append((max(start, end - need), min(stop, end)))
        return _joined(kept)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def tables_of(engine: Engine, merged: bool) -> tuple[Table, ...]:
    """merged: neighbouring groups of the same rules share a table."""
    if not merged:
        return tuple(Table(engine, group, number) for number, group in enumerate(engine.groups))
    alike = [(group, len(list(some))) for group, some in groupby(engine.groups)]
    return tuple(Table(engine, group, number, times) for number, (group, times) in enumerate(alike))
