"""Blocks in any order: reached in place or through an index, each once, and every flipped bit is found."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.tensors.base import Allocation, Component, Layout, Rank, View
from kvplan.proof.validate import fill
from kvplan.proof.validate.fill import Checked, _parts, check, write
from kvplan.proof.validate.memory import allocate
from kvplan.proof.validate.slots import Slots, Span, slots_of

BLOCKS, STATES = 24, 4


def mapped(tables: list[list[int]], beyond: int) -> Slots:
    """A request for each table; its last block holds ``beyond`` states."""
    count = [len(table) * STATES - (STATES - beyond) for table in tables]
    spans = [
        Span(number, number, tuple(table), STATES, 0, count[number], 0, 1)
        for number, table in enumerate(tables)
        if table
    ]
    return slots_of(spans, STATES, "cpu")


def one_view(content: int, heads: int, *, heads_outside: bool, padding: int) -> Layout:
    row = heads * content
    view = View(
        name="layer.0.k",
        layer=0,
        group=0,
        allocation=0,
        offset=0,
        blocks=BLOCKS,
        heads=heads,
        states=STATES,
        content=content,
        block_stride=STATES * row + padding,
        head_stride=STATES * content if heads_outside else content,
        state_stride=content if heads_outside else row,
        components=(Component("k", 0, content, "uint8"),),
    )
    size = BLOCKS * view.block_stride
    tensor = Allocation("k", (size,), "uint8", size)
    return Layout("generic", "1", Rank(), (tensor,), (view,), (), (), size, 1, 0, 1, 1)


tables = st.permutations(range(BLOCKS)).flatmap(
    lambda order: st.integers(0, BLOCKS).map(lambda cut: [list(order[:cut]), list(order[cut:])])
)


@given(tables, st.integers(1, 8), st.sampled_from((1, 8)))
def test_every_full_block_is_in_one_part_and_runs_lie_where_they_say(
    tables: list[list[int]], run: int, wide: int
) -> None:
    slots, page = mapped(tables, STATES), 1024
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fill.CHUNK_BYTES, "cpu", run * page * fill.LONG_RUN)
        parts = list(_parts(slots, page, wide, "cpu"))
    assert list(chain.from_iterable(range(BLOCKS)[part] for part, _ in parts)) == list(range(BLOCKS))
    for part, first in parts:
        blocks = slots.blocks[part].tolist()
        assert first is None or blocks == list(range(first, first + len(blocks)))
        assert wide == 1 or first is None


@given(tables, st.integers(1, 8), st.integers(1, STATES), st.data())
@pytest.mark.parametrize(
    ("content", "heads", "heads_outside", "padding"),
    [(16, 2, False, 0), (16, 2, True, 64), (6, 2, True, 0), (3, 1, False, 5)],
)
def test_what_is_written_is_read_and_one_bit_is_missed(
    content: int,
    heads: int,
    heads_outside: bool,
    padding: int,
    tables: list[list[int]],
    run: int,
    beyond: int,
    data: st.DataObject,
) -> None:
    layout = one_view(content, heads, heads_outside=heads_outside, padding=padding)
    (view,), slots = layout.views, mapped(tables, beyond)
    with pytest.MonkeyPatch.context() as patch, allocate(layout, "cpu") as cache:
        patch.setitem(fill.CHUNK_BYTES, "cpu", run * STATES * heads * content * fill.LONG_RUN)
        assert write(cache, view, slots) == slots.count * heads * content
        checked = Checked()
        check(cache, view, slots, checked)
        assert (checked.states, checked.wrong) == (slots.count, 0)
        seen = cache.bytes_of(view)
        request = data.draw(st.sampled_from([number for number, table in enumerate(tables) if table]))
        table = tables[request]
        position = data.draw(st.integers(0, len(table) * STATES - (STATES - beyond) - 1))
        place = (table[position // STATES], heads - 1, position % STATES, content - 1)
        seen[place] ^= 1
        check(cache, view, slots, checked)
        (found,) = checked.mismatches
        assert (found.request, found.position, found.block) == (request, position, place[0])
        assert (found.head, found.byte, checked.wrong) == (heads - 1, content - 1, 1)


def test_rooms_are_kept_and_given_back() -> None:
    with allocate(one_view(16, 2, heads_outside=False, padding=0), "cpu") as cache:
        first = cache.room("expected", 64)
        assert cache.room("expected", 32).data_ptr() == first.data_ptr()
        assert cache.room("found", 64).data_ptr() != first.data_ptr()
        assert cache.room("expected", 128).numel() == 128
    assert not cache._rooms
