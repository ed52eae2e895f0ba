"""The model of torch's caching allocator: the published rules, and laws that hold for any row of requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.weights.caching_allocator import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    SMALL,
    SMALL_SEGMENT,
    Allocator,
    allocated,
    reserved_for,
    rounded,
    segment_of,
    why_unpredictable,
)
from tests.proof.fake_cuda import segments_of

MIB = 1 << 20
sizes = st.integers(0, 64 * MIB)


@pytest.mark.parametrize(
    ("asked", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (268_435_456, 268_435_456, 268_435_456),
    ],
)
def test_one_request(asked: int, block: int, segment: int) -> None:
    assert rounded(asked) == block
    assert segment_of(block) == segment
    allocator = Allocator()
    allocator.malloc(asked)
    assert (allocator.requested, allocator.reserved) == (asked, segment)


def test_small_requests_share_a_segment_until_it_is_full() -> None:
    assert reserved_for([512] * (SMALL_SEGMENT // 512)) == SMALL_SEGMENT
    assert reserved_for([512] * (SMALL_SEGMENT // 512 + 1)) == 2 * SMALL_SEGMENT


def test_a_large_segment_is_cut_while_more_than_a_mib_is_left() -> None:
    # 20 MiB - 9 - 9 leaves 2 MiB, which a request of 1.5 MiB takes.
    assert reserved_for([9 * MIB, 9 * MIB, 3 * MIB // 2]) == LARGE_SEGMENT
    # What is left of 12 MiB after 11 is not more than 1 MiB: the block keeps it.
    allocator = Allocator()
    allocator.malloc(11 * MIB)
    assert (allocator.allocated, allocator.reserved) == (12 * MIB, 12 * MIB)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = Allocator()
    large, small = allocator.malloc(40 * MIB), allocator.malloc(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.malloc(25 * MIB)
    assert allocator.reserved == 70 * MIB
    allocator.malloc(40 * MIB)  # still whole: the 25 went into the 30
    assert allocator.reserved == 70 * MIB


def test_neighbours_join_and_whole_segments_go_back() -> None:
    allocator = Allocator()
    handles = [allocator.malloc(4 * MIB) for _ in range(5)]
    assert allocator.reserved == LARGE_SEGMENT
    for handle in handles[:4]:
        allocator.free(handle)
    allocator.empty_cache()
    assert allocator.reserved == LARGE_SEGMENT  # one block is still held
    allocator.malloc(16 * MIB)
    assert allocator.reserved == LARGE_SEGMENT  # the four had joined
    allocator.free(handles[4])
    assert allocator.requested == 16 * MIB


def test_a_handle_is_freed_once() -> None:
    allocator = Allocator()
    handle = allocator.malloc(100)
    allocator.free(handle)
    allocator.free(handle)
    assert (allocator.requested, allocator.allocated) == (0, 0)


@given(st.lists(st.tuples(sizes, st.booleans()), max_size=60))
def test_what_is_counted_adds_up(row: list[tuple[int, bool]]) -> None:
    """requested ≤ allocated ≤ reserved ≤ the segments of each alone; all comes back."""
    allocator, kept, alone = Allocator(), [], 0
    for size, keep in row:
        handle = allocator.malloc(size)
        alone += segment_of(rounded(size)) if size else 0
        if keep:
            kept.append(handle)
        else:
            allocator.free(handle)
        assert 0 <= allocator.requested <= allocator.allocated <= allocator.reserved <= alone
        assert allocator.reserved % SMALL_SEGMENT == 0
        assert allocator.allocated % MIN_BLOCK == 0
        assert allocator.peak_reserved >= allocator.reserved
    for handle in kept:
        allocator.free(handle)
    assert allocator.requested == allocator.allocated == 0
    allocator.empty_cache()
    assert allocator.reserved == 0


@given(st.lists(sizes, max_size=40), sizes)
def test_more_tensors_never_reserve_less(row: list[int], more: int) -> None:
    assert reserved_for([*row, more]) >= reserved_for(row)


@given(st.lists(sizes, max_size=60), st.none() | st.integers(21, 512).map(lambda mib: mib * MIB))
def test_what_is_allocated_is_what_the_allocator_counts(row: list[int], max_split: int | None) -> None:
    whole = Allocator(max_split=max_split)
    for size in row:
        whole.malloc(size)
    assert allocated(row, max_split) == whole.allocated


@given(st.integers(SMALL + 1, 4096 * MIB))
def test_one_large_tensor_wastes_less_than_a_segment(size: int) -> None:
    assert size <= reserved_for([size]) < size + LARGE_SEGMENT


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"PYTORCH_CUDA_ALLOC_CONF": ""}, None),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, None),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native,garbage_collection_threshold:0.8"}, None),
        ({"PYTORCH_ALLOC_CONF": "pinned_use_background_threads:True"}, None),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}, "PYTORCH_ALLOC_CONF=max_split_size_mb:128"),
        ({"PYTORCH_HIP_ALLOC_CONF": "roundup_power2_divisions:4"},
         "PYTORCH_HIP_ALLOC_CONF=roundup_power2_divisions:4"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
         "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    ],
)  # fmt: skip
def test_settings_that_change_the_rules(environment: dict[str, str], expected: str | None) -> None:
    assert why_unpredictable(environment) == expected


@pytest.mark.gpu
def test_the_real_allocator_agrees() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    row = [1, 513, MIB, MIB + 1, 3 * MIB, 10 * MIB - 1, 10 * MIB, 33 * MIB, 700, 19 * MIB]
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in row]
    assert torch.cuda.memory_reserved() - before == reserved_for(row)
    del tensors


@given(
    st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=25),
    st.lists(st.integers(1, 40 * MIB), max_size=10),
    st.booleans(),
)
def test_a_prediction_from_a_snapshot_is_that_of_the_allocator_itself(
    before: list[tuple[int, bool]], sizes: list[int], emptied: bool
) -> None:
    """The law: whatever is held and free, the snapshot is all that the next segments depend on."""
    there = Allocator()
    handles = [(there.malloc(size), kept) for size, kept in before]
    for handle, kept in handles:
        if not kept:
            there.free(handle)
    if emptied:
        there.empty_cache()
    predicted = reserved_for(sizes, list(segments_of(there)))
    held = there.reserved
    for size in sizes:
        there.malloc(size)
    assert predicted == there.reserved - held


def test_segments_of_graphs_and_of_other_streams_serve_nobody_else() -> None:
    there = Allocator()
    there.free(there.malloc(15 * MIB))
    (segment,) = segments_of(there)
    assert reserved_for([15 * MIB], [segment]) == 0
    for elsewhere in ({"segment_pool_id": (0, 1)}, {"stream": 7}):
        assert reserved_for([15 * MIB], [{**segment, **elsewhere}]) == 16 * MIB
