"""The longest prefix that every group of caches still has.

vllm-project/vllm 0.32 vllm/v1/core/kv_cache_coordinator.py (find_longest_cache_hit) and
single_type_kv_cache_manager.py: full attention from the left, windows and states from the right, groups of
equal rules together, all again and again until none shortens the hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from kvplan.simulation.vllm.block_table import Part, Path
from kvplan.simulation.vllm.pool import Pool
from kvplan.simulation.vllm.prefix_blocks import apart, found, found_apart
from kvplan.simulation.vllm.settings import CHUNK, FULL
from kvplan.simulation.vllm.tables import Table


def sorts_of(tables: tuple[Table, ...]) -> list[list[Table]]:
    """The groups by equal rules, full attention first."""
    by_rule: dict[tuple[str, int, int], list[Table]] = {}
    for table in tables:
        by_rule.setdefault((table.kind, table.block, table.chunk or table.span), []).append(table)
    return sorted(by_rule.values(), key=lambda tables: tables[0].kind != FULL)


def longest_hit(sorts: list[list[Table]], paths: dict[int, Path], limit: int) -> tuple[int, int]:
    """(tokens that every group has, tokens that some group has) of the first ``limit`` ones."""
    if len(sorts) == 1:
        hit = _hit(sorts[0], paths, limit)
        return hit, hit
    hit, longest, full = limit, 0, -1
    simple = len(sorts) == 2 and sorts[0][0].kind == FULL
    while True:
        current = hit
        for number, tables in enumerate(sorts):
            if number == 0 and full >= 0 and tables[0].kind == FULL:
                current = min(current, full)
                continue
            current = _hit(tables, paths, current)
            if number == 0:
                full = current
            longest = max(longest, current)
        if current >= hit:
            break
        hit = current
        if simple:
            break
    return hit, longest


def _hit(tables: list[Table], paths: dict[int, Path], limit: int) -> int:
    table = tables[0]
    block, path = table.block, paths[table.block]
    most, every = limit // block, table.unit // block
    if table.kind == FULL:
        reach = most
        for table in tables:
            reach = _reach(path, table, 0, reach)
        return reach // every * every * block
    if table.kind == CHUNK:
        start = limit // table.chunk * table.chunk // block
        return min(_reach(path, table, start, most) for table in tables) * block
    need = 1 if table.state else max(1, table.need)
    top = 0  # the end of the stretch that is under way, 0: none
    low = -1
    for start, stop in _covered(path, tables, most):
        if top and stop != low:
            top = 0
        low = start
        if not top:
            end = stop // every * every
            if end <= start:
                continue
            top = end
        if top - start >= need:
            return top * block
    return top * block if top and low == 0 else 0


def _reach(path: Path, table: Table, start: int, most: int) -> int:
    """The first block from ``start`` on that the group has not, at most ``most``."""
    place = start
    for first, stop, run in path:
        if stop <= place:
            continue
        if place >= most:
            break
        upto = min(stop, most)
        low, high = place - first, upto - first
        if apart(run, table, low, high):
            columns = [found(run, table.number, low, high, group) for group in range(table.times)]
            pieces = min(columns, key=lambda each: each[-1][1] if each else -1)
        else:
            pieces = found(run, table.number, low, high)
        if not pieces:
            break
        place = first + pieces[-1][1]
        if place < upto:
            break
    return place


def _covered(path: Path, tables: list[Table], most: int) -> Iterator[tuple[int, int]]:
    """The stretches of the first ``most`` blocks that all the groups have, the last first."""
    for first, stop, run in reversed(path):
        if first >= most:
            continue
        upto = min(stop, most) - first
        ranges = [(0, upto)]
        for table in tables:
            pieces = run.pieces[table.number]
            if not pieces:
                ranges = []
                break
            if apart(run, table, 0, upto):
                for group in range(table.times):
                    here = [_range(one) for one in pieces if one.times > 1 or one.group == group]
                    ranges = _both(ranges, sorted(here))
            else:
                ranges = _both(ranges, sorted(map(_range, pieces)))
        for start, end in reversed(ranges):
            yield first + start, first + end


_range = attrgetter("start", "stop")


def _both(ranges: list[tuple[int, int]], pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in pieces:
        if joined and start <= joined[-1][1]:
            if stop > joined[-1][1]:
                joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
    both, place = [], 0
    for low, high in ranges:
        while place < len(joined) and joined[place][1] <= low:
            place += 1
        at = place
        while at < len(joined) and joined[at][0] < high:
            both.append((max(low, joined[at][0]), min(high, joined[at][1])))
            at += 1
    return both


def parts_of(pool: Pool, table: Table, path: Path, start: int, stop: int) -> tuple[list[Part], int]:
    """The pieces that hold blocks [start, stop) of a hit, and how many of the blocks, of all groups together,
    nobody holds now."""
    parts: list[Part] = []
    idle, place = 0, start
    for first, end, run in path:
        if end <= place:
            continue
        if place >= stop:
            break
        upto = min(stop, end)
        low, high = place - first, upto - first
        if apart(run, table, low, high):
            answers = found_apart(pool, run, table, low, high)
        else:
            answers = found(run, table.number, low, high)
        for piece, reach in answers:
            parts.append((piece, place - first, reach, place))
            if piece.groups is not None:
                idle += (first + reach - place) * sum(not one.refs for one in piece.groups)
            elif not piece.refs:
                idle += (first + reach - place) * piece.times
            place = first + reach
    assert place >= stop, "a hit that is not there"
    return parts, idle
