"""Laws of block tables: no block has two owners unless shared, none is lost, no reserved one goes out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.tensors import BlockPool, Group, GroupKind, Layout, Rank
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.checks import missing
from kvplan.proof.validate.free import BlockError, FreeBlocks
from kvplan.proof.validate.slots import spans

FULL = Group("full", GroupKind.FULL, 0, 1, 4)
WINDOW = Group("window", GroupKind.WINDOW, 0, 1, 4, window=6, limit=9, extra=1)
CHUNK = Group("chunk", GroupKind.CHUNK, 0, 1, 2, window=5, limit=8)
STATE = Group("state", GroupKind.STATE, 1, 1, 1, fixed=2)


def tables_of(*groups: Group, blocks: int = 40, context: int = 0) -> BlockTables:
    pools = (BlockPool("blocks", blocks, first=1), BlockPool("slots", 9, first=1))
    return BlockTables(Layout("test", "0", Rank(0, 0, context), (), (), pools, groups, 0, 0, 0, 0, 0))


def owners(tables: BlockTables) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for request in tables.requests.values():
        for group, table in zip(tables.groups, request.tables, strict=True):
            found.update((group.pool, block) for block in (*table.blocks, *table.spare))
    return found


def check(tables: BlockTables) -> None:
    held = owners(tables)
    for index, pool in enumerate(tables.pools):
        counts = {block: count for block, count in enumerate(pool.references) if count}
        assert counts == {block: count for (where, block), count in held.items() if where == index}
        assert pool.free == pool.pool.usable - len(counts)
        assert all(block >= pool.pool.first for block in counts)
    for request in tables.requests.values():
        assert missing(tables, request) == 0


ACTIONS = st.lists(st.tuples(st.sampled_from("aafgsre"), st.integers(0, 30)), max_size=40)


@given(ACTIONS, st.sampled_from([(FULL,), (FULL, WINDOW), (FULL, CHUNK, STATE), (WINDOW, STATE)]))
def test_nothing_is_lost(actions: list[tuple[str, int]], groups: tuple[Group, ...]) -> None:
    """Admit, share, fork, grow, settle and release in any order."""
    tables = tables_of(*groups)
    for action, number in actions:
        running = list(tables.requests.values())
        if action == "a":
            tables.admit(number, contents=[(number // 2, -1), (number, number)], share=number % 2 == 0)
        elif running:
            request = running[number % len(running)]
            if action == "f":
                tables.fork(request, tables.next_number)
            elif action == "g":
                tables.append(request, number % 7)
            elif action == "s":
                tables.settle(request)
            elif action == "r":
                tables.release(request)
        check(tables)
    for request in list(tables.requests.values()):
        tables.release(request)
    assert all(pool.free == pool.pool.usable for pool in tables.pools)


@given(st.integers(0, 60), st.integers(1, 5), st.sampled_from([FULL, WINDOW, CHUNK]))
def test_capacity_is_what_the_charge_says(tokens: int, blocks: int, group: Group) -> None:
    charge = group.blocks(tokens)
    tables = tables_of(group, blocks=1 + blocks * charge + max(charge - 1, 0))
    admitted = 0
    while admitted <= blocks and tables.admit(tokens) is not None:
        admitted += 1
    assert admitted == (blocks if charge else blocks + 1)


@given(st.integers(1, 40), st.integers(0, 3), st.integers(1, 4))
def test_context_ranks_divide_the_tokens(tokens: int, start: int, shards: int) -> None:
    """Every position lies on one rank, in one slot."""
    seen: list[int] = []
    for context in range(shards):
        group = Group("full", GroupKind.FULL, 0, 1, 4, shards=shards)
        tables = tables_of(group, context=context)
        request = tables.admit(tokens)
        assert request is not None
        for span in spans(tables, request, 0, 4, start=start):
            seen += range(span.position, span.position + span.count * span.step, span.step)
            slots = [(span.blocks[(span.offset + i) // 4], (span.offset + i) % 4) for i in range(span.count)]
            assert len(set(slots)) == len(slots)
    assert sorted(seen) == list(range(start, tokens))


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    tables = tables_of(FULL)
    parent = tables.admit(6)
    assert parent is not None
    forked = tables.fork(parent, 77)
    assert forked is not None
    child, copies = forked
    assert copies == []
    assert child.tables[0].blocks == parent.tables[0].blocks
    made = tables.append(child, 1)
    assert made is not None
    assert [(copy.source, copy.target) for copy in made] == [
        (parent.tables[0].blocks[1], child.tables[0].blocks[1])
    ]
    # The other one is alone with its block now.
    assert tables.append(parent, 1) == []
    assert [span.content for span in spans(tables, child, 0, 4)] == [0, 77]


def test_a_prefix_is_found_until_its_blocks_are_handed_out() -> None:
    tables = tables_of(FULL, blocks=10)
    first = tables.admit(16, contents=[(16, 5)])
    assert first is not None
    blocks = list(first.tables[0].blocks)
    tables.release(first)
    again = tables.admit(16, contents=[(16, 5)], share=True)
    assert again is not None
    # All blocks are known, but the last token is computed anew.
    assert (again.cached, again.tables[0].blocks[:3]) == (12, blocks[:3])
    tables.release(again)
    other = tables.admit(36, contents=[(36, 6)])
    assert other is not None
    tables.release(other)
    last = tables.admit(16, contents=[(16, 5)], share=True)
    assert last is not None
    assert last.cached == 0


def test_windows_give_blocks_back_and_tables_begin_later() -> None:
    tables = tables_of(WINDOW)
    request = tables.admit(20)
    assert request is not None
    assert len(request.tables[0].blocks) + len(request.tables[0].spare) == WINDOW.blocks(20) == 4
    tables.settle(request)
    # The 21st token sees positions 15 … 19: blocks 3 and 4.
    assert (tables.visible(0, 20), request.tables[0].first, len(request.tables[0].blocks)) == (15, 3, 2)
    assert missing(tables, request) == 0


def test_what_nobody_holds_cannot_be_freed_or_taken() -> None:
    pool = FreeBlocks(BlockPool("blocks", 4, first=1))
    (block,) = pool.allocate(1)
    pool.release([block])
    for wrong in ([block], [0], [4], [-1]):
        with pytest.raises(BlockError):
            pool.release(wrong)
    with pytest.raises(BlockError):
        pool.allocate(4)
    with pytest.raises(BlockError):
        pool.take(0)
    assert pool.free == 3
