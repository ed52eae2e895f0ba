"""Names of prefixes: whichever way they are worked out, two requests share what their identities share."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.plans.arrival import Arrival
from kvplan.simulation.cache_only.hits import most_hits
from kvplan.simulation.load.generate import asked_of, generated
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.names import Names, known_blocks, name
from kvplan.simulation.time.stretches import Headed
from kvplan.simulation.vllm.settings import Engine, Group

WIDE = 4
FAR = 10**6


@st.composite
def rows(draw: st.DrawFn) -> list[Arrival]:
    """Prompts that fork off a common tree of identities, some of which end before the prompt's end."""
    found: list[list[int]] = [[]]
    fresh = 0
    for _ in range(draw(st.integers(1, 8))):
        before = draw(st.sampled_from(found))
        kept = draw(st.integers(0, len(before)))
        more = draw(st.integers(0, 5))
        found.append([*before[:kept], *range(fresh, fresh + more)])
        fresh += more
    return [
        Arrival(0, max(1, len(ids) * WIDE - draw(st.integers(0, WIDE - 1))), draw(st.integers(1, 9)), ids)
        for ids in found[1:]
    ]


def shared(one: Arrival, other: Arrival, hashed: int, block: int) -> int:
    """Blocks whose tokens up to their end are the same in both."""
    known = min(known_blocks(each, WIDE, hashed) // (block // hashed) for each in (one, other))
    return next(
        (
            place
            for place in range(known)
            if one.ids[: -(-(place + 1) * block // WIDE)] != other.ids[: -(-(place + 1) * block // WIDE)]
        ),
        known,
    )


def alike(names: Names) -> list[list[int]]:
    """Of each two requests the blocks up to which their chains are alike."""
    chains = [Chain(path, number) for number, path in enumerate(names.paths)]
    return [[one.alike(other, 0, FAR) for other in chains[:place]] for place, one in enumerate(chains)]


@given(rows(), st.sampled_from([(4, 4), (1, 1), (2, 2), (4, 8), (8, 8), (2, 6), (3, 3)]), st.data())
def test_chains_share_what_identities_share(
    found: list[Arrival], sizes: tuple[int, int], data: st.DataObject
) -> None:
    expected = [[shared(one, other, *sizes) for other in found[:place]] for place, one in enumerate(found)]
    names = name(found, WIDE, *sizes)
    assert alike(names) == expected
    places = sorted(data.draw(st.sets(st.integers(0, len(found) - 1), min_size=1)))
    part = [[expected[place][other] for other in places if other < place] for place in places]
    assert alike(names.of(places)) == part
    assert all(stop > start for path in names.paths for start, stop, _ in path)


@given(
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), min_size=1, max_size=8),
    st.sampled_from([(4, 4), (1, 1), (4, 8), (8, 8), (4, 12), (3, 3)]),
)
def test_stretches_are_named_as_lists_are(
    head: int, turns: list[tuple[int, int]], sizes: tuple[int, int]
) -> None:
    """Sessions that grow turn by turn behind one head."""
    ends = dict.fromkeys(range(4), 0)
    stretched = []
    for session, more in turns:
        ends[session] += more
        rest = range(1000 * (session + 1), 1000 * (session + 1) + ends[session])
        ids = Headed(range(head), rest) if head else rest
        stretched.append(Arrival(0, len(ids) * WIDE, 1, ids))
    listed = [Arrival(0, one.prompt, one.answer, list(one.ids)) for one in stretched]
    assert alike(name(stretched, WIDE, *sizes)) == alike(name(listed, WIDE, *sizes))


@given(st.integers(0, 5), st.integers(0, 7), st.slices(12))
def test_a_headed_row_is_its_list(head: int, rest: int, cut: slice) -> None:
    row = Headed(range(head), range(20, 20 + rest))
    whole = [*range(head), *range(20, 20 + rest)]
    assert list(row) == whole
    assert list(row[cut]) == whole[cut]
    assert [row[place] for place in range(-len(whole), len(whole))] == whole * 2


@pytest.mark.parametrize("more", ["", ",prefix=512", ",input=100000"])
def test_a_generated_load_keeps_no_identities(more: str) -> None:
    """Requests of a load, their names and what a cache without limit finds: a few hundred bytes each, however
    long the prompts are."""
    tracemalloc.start()
    try:
        load = generated(asked_of(f"requests=2000,rate=10,output=200{more}"))
        load.trace().names(16, 16)
        most_hits(load, Engine(100, (Group(),)))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 2000 < 500
    assert peak / 2000 < 1000
