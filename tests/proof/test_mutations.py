"""Faults that an engine (or kvplan's picture of it) might have, each injected, each caught.

A fault is a context manager that breaks one thing; the workload test must fail, for the stated reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.tensors import Layout
from kvplan.plans.receipt import CONFIRMED, REFUTED, Figure
from kvplan.proof.validate import fill, findings, workload_test
from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.blocks import BlockTables, Request
from kvplan.proof.validate.devices import CpuDevice
from kvplan.proof.validate.findings import WorkloadTest
from kvplan.proof.validate.found import workload_figures
from kvplan.proof.validate.free import FreeBlocks
from kvplan.proof.validate.pattern import rows
from kvplan.proof.validate.stages.base import Bench
from tests.laws.sampling import some
from tests.proof.models import OPTIONS, small, smallest

Fault = Callable[[pytest.MonkeyPatch, Layout], Layout]
Reason = Callable[[WorkloadTest], bool]


def layout_for(name: str, engine: str = "vllm", **options: Any) -> Layout:
    return smallest(small(name), engine, **{"tokens": 300, **OPTIONS[engine], **options})


def read_wrong(found: WorkloadTest) -> bool:
    return found.states_wrong > 0 and bool(found.mismatches)


def lacking(found: WorkloadTest) -> bool:
    return found.states_missing > 0


def tensors(found: WorkloadTest) -> bool:
    return bool(found.tensors_wrong)


# ------------------------------------------------------------------------------------------------- the faults


def wrong_block_id(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The second request's table names a block of the first."""
    admit = BlockTables.admit

    def broken(self: BlockTables, *args: Any, **named: Any) -> Request | None:
        request = admit(self, *args, **named)
        if request is not None and request.number == 1:
            request.tables[0].blocks[0] = self.requests[0].tables[0].blocks[0]
        return request

    patch.setattr(BlockTables, "admit", broken)
    patch.setattr(BlockTables, "release", _quiet(BlockTables.release))
    return layout


def _quiet(release: Callable[..., None]) -> Callable[..., None]:
    """The allocator's own check of double frees is put aside, so that the data have to tell."""

    def broken(self: BlockTables, request: Request) -> None:
        for pool in self.pools:
            for table, group in zip(request.tables, self.groups, strict=True):
                if self.pools[group.pool] is pool:
                    table.blocks = [block for block in table.blocks if pool.references[block]]
        release(self, request)

    return broken


def missing_copy_on_write(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Two requests write into the block that they share."""
    growth = BlockTables._growth
    patch.setattr(BlockTables, "_growth", lambda *args: (growth(*args)[0], 0))
    return layout


def copy_left_out(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The tables change, but the block's content is not copied."""
    patch.setattr(workload_test, "copy_blocks", lambda *_: None)
    return layout


def prefix_hit_too_long(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """A block is taken for a hit whose tokens differ at its end."""
    keys = BlockTables._keys

    def broken(self: BlockTables, index: int, tokens: int, pieces: Any) -> Any:
        return keys(self, index, tokens, [(tokens, pieces[0][1])])

    patch.setattr(BlockTables, "_keys", broken)
    return layout


def short_tensor(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    zeros = torch.zeros

    def broken(shape: Any, **named: Any) -> Any:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return zeros((sizes[0] - 1, *sizes[1:]), **named)

    patch.setattr(torch, "zeros", broken)
    return layout


def wrong_dtype(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """As many bytes of another type."""
    zeros, other = torch.zeros, {torch.bfloat16: torch.float16, torch.int8: torch.uint8}
    patch.setattr(
        torch, "zeros", lambda shape, dtype, device: zeros(shape, dtype=other[dtype], device=device)
    )
    return layout


def wide_dtype(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Twice as many bytes."""
    zeros = torch.zeros
    patch.setattr(
        torch, "zeros", lambda shape, dtype, device: zeros(shape, dtype=torch.float32, device=device)
    )
    return layout


def window_given_back_early(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """A block goes back while its last token is still seen."""
    drop, visible = BlockTables._drop, BlockTables.visible

    def broken(self: BlockTables, index: int, request: Request) -> None:
        def early(index: int, tokens: int, encoder: int = 0) -> int:
            return visible(self, index, tokens, encoder) + 1

        self.__dict__["visible"] = early
        try:
            drop(self, index, request)
        finally:
            del self.__dict__["visible"]

    patch.setattr(BlockTables, "_drop", broken)
    return layout


def stale_table(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Blocks of a running request are freed and handed out again, but its table is kept."""

    def broken(self: BlockTables, request: Request) -> None:
        for group, table in zip(self.groups, request.tables, strict=True):
            self.pools[group.pool].release([*table.blocks, *table.spare])

    patch.setattr(BlockTables, "release", broken)
    return layout


def swapped_key_and_value(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The kernel writes K where V lies."""
    write = fill.write
    names = {view.name: view for view in layout.views}

    def broken(cache: Any, view: Any, slots: Any, tick: Any = None) -> int:
        other = names[view.name[:-1] + {"k": "v", "v": "k"}[view.name[-1]]]
        place = replace(view, name=other.name)
        return write(cache, place, slots, tick)

    patch.setattr(workload_test, "write", broken)
    return layout


def swapped_halves(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """As above where K and V of a token lie side by side."""
    write = fill.write

    def broken(cache: Any, view: Any, slots: Any, tick: Any = None) -> int:
        written = write(cache, view, slots, tick)
        block = cache.bytes_of(view)[slots.blocks[:1]]
        half = view.content // 2
        cache.bytes_of(view)[slots.blocks[:1]] = torch.cat([block[..., half:], block[..., :half]], dim=-1)
        return written

    patch.setattr(workload_test, "write", broken)
    return layout


def swapped_heads(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Tokens and heads of a page are taken for each other when the cache is written."""
    write = fill.write

    def broken(cache: Any, view: Any, slots: Any, tick: Any = None) -> int:
        dense = replace(view, head_stride=view.states * view.content, state_stride=view.content)
        return write(cache, dense, slots, tick)

    patch.setattr(workload_test, "write", broken)
    return layout


def state_page_unpadded(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """States follow each other without the padding to the attention page."""
    views = tuple(
        replace(view, block_stride=view.content) if view.states == 1 else view for view in layout.views
    )
    assert views != layout.views
    return replace(layout, views=views)


def layers_overlap(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The second layer of a group begins two blocks early."""
    second = next(view for view in layout.views if view.offset and view.group == layout.views[0].group)
    moved = replace(second, offset=second.offset - 2 * second.block_stride)
    return replace(layout, views=tuple(moved if view is second else view for view in layout.views))


def groups_share_blocks(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Two groups count the blocks of one pool apart, so that a block is in both."""
    pools = tuple(layout.pools[0] for _ in layout.groups)
    groups = tuple(replace(group, pool=index) for index, group in enumerate(layout.groups))
    return replace(layout, pools=pools, groups=groups)


def null_block_used(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The allocator hands out block 0, one more than the prediction counts."""
    start = FreeBlocks.__init__
    patch.setattr(
        FreeBlocks, "__init__", lambda self, pool: start(self, replace(pool, first=0) if pool.first else pool)
    )
    return layout


def padding_written(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """A padded token's slot is taken for slot 0 of a real layer."""
    write = fill.write

    def broken(cache: Any, view: Any, slots: Any, tick: Any = None) -> int:
        cache.bytes_of(view)[0, :, 0] = 1
        return write(cache, view, slots, tick)

    patch.setattr(workload_test, "write", broken)
    return layout


def freed_twice(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """A request's blocks are freed a second time when it has ended."""
    release = BlockTables.release

    def broken(self: BlockTables, request: Request) -> None:
        again = list(request.tables[0].blocks)
        release(self, request)
        self.pools[0].release(again)

    patch.setattr(BlockTables, "release", broken)
    return layout


def block_leaks(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """A finished request keeps one block."""
    release = FreeBlocks.release
    patch.setattr(FreeBlocks, "release", lambda self, blocks: release(self, blocks[1:]))
    return layout


def refusal_takes_blocks(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """The refused request is not undone."""
    admit = BlockTables.admit

    def broken(self: BlockTables, *args: Any, **named: Any) -> Request | None:
        request = admit(self, *args, **named)
        if request is None and self.pools[0].free:
            self.pools[0].allocate(1)
        return request

    patch.setattr(BlockTables, "admit", broken)
    return layout


def one_request_too_many(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    return replace(layout, requests=layout.requests + 1)


def one_request_too_few(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    return replace(layout, requests=layout.requests - 1)


def prediction_off(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    return replace(layout, predicted_bytes=layout.predicted_bytes + 1)


def bit_flips(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """One bit of one written byte changes while the cache is full."""
    refuse = workload_test.Run.refuse

    def broken(self: workload_test.Run) -> None:
        refuse(self)
        request = next(iter(self.tables.requests.values()))
        view = self.layout.views[-1]
        block = request.tables[view.group].blocks[0]
        self.cache.bytes_of(view)[block, -1, 0, -1] ^= 1

    patch.setattr(workload_test.Run, "refuse", broken)
    return layout


def context_rank_off(patch: pytest.MonkeyPatch, layout: Layout) -> Layout:
    """Written as one rank of context parallelism, read as another."""
    write = fill.write

    def broken(cache: Any, view: Any, slots: Any, tick: Any = None) -> int:
        moved = replace(
            slots,
            block_rows=rows(
                slots.block_owner[:, :1].expand_as(slots.block_rows),
                slots.block_owner[:, 1:] + 1 + torch.arange(slots.states) * slots.step,
            ),
        )
        return write(cache, view, moved, tick)

    patch.setattr(workload_test, "write", broken)
    return layout


# --------------------------------------------------------------------------------------------------- the list

MUTATIONS: tuple[tuple[Fault, tuple[Any, ...], dict[str, Any], Reason], ...] = (
    (wrong_block_id, ("full_attention",), {}, read_wrong),
    (wrong_block_id, ("mla", "sglang"), {}, read_wrong),
    (missing_copy_on_write, ("full_attention",), {}, read_wrong),
    (copy_left_out, ("full_attention",), {}, read_wrong),
    (copy_left_out, ("gated_delta_net", "llamacpp"), {}, read_wrong),
    (prefix_hit_too_long, ("full_attention",), {}, read_wrong),
    (short_tensor, ("full_attention",), {}, tensors),
    (short_tensor, ("full_attention", "sglang"), {}, tensors),
    (wrong_dtype, ("full_attention",), {}, tensors),
    (wrong_dtype, ("full_attention", "sglang"), {}, tensors),
    (wide_dtype, ("full_attention", "trtllm"), {}, tensors),
    (window_given_back_early, ("sliding_window",), {}, lacking),
    (window_given_back_early, ("two heads", "sglang"), {"tokens": 1400, "max_model_len": 2048}, lacking),
    (stale_table, ("full_attention",), {}, read_wrong),
    (stale_table, ("sliding_window", "trtllm"), {}, read_wrong),
    (swapped_key_and_value, ("full_attention", "sglang"), {}, read_wrong),
    (swapped_key_and_value, ("full_attention", "trtllm"), {}, read_wrong),
    (swapped_halves, ("full_attention",), {}, read_wrong),
    (swapped_heads, ("full_attention",), {}, read_wrong),
    (state_page_unpadded, ("gated_delta_net",), {"requests": 6}, read_wrong),
    (state_page_unpadded, ("short_convolution",), {}, read_wrong),
    (layers_overlap, ("full_attention",), {}, read_wrong),
    (groups_share_blocks, ("sliding_window",), {}, read_wrong),
    (null_block_used, ("full_attention",), {}, lambda found: not found.reserved_untouched),
    (null_block_used, ("full_attention", "sglang"), {}, lambda found: not found.reserved_untouched),
    (padding_written, ("mla",), {}, lambda found: not found.reserved_untouched),
    (freed_twice, ("full_attention",), {}, lambda found: found.table_error is not None),
    (block_leaks, ("full_attention",), {}, lambda found: not found.all_freed),
    (refusal_takes_blocks, ("full_attention",), {"tokens": 290}, lambda found: not found.undisturbed),
    (one_request_too_many, ("mla",), {}, lambda found: found.requests_admitted < found.requests_predicted),
    (one_request_too_few, ("mla",), {}, lambda found: found.requests_admitted > found.requests_predicted),
    (prediction_off, ("mla",), {}, lambda found: found.bytes_allocated != found.bytes_predicted),
    (bit_flips, ("full_attention",), {}, read_wrong),
    (bit_flips, ("mamba1", "generic"), {}, read_wrong),
    (context_rank_off, ("mla",), {}, read_wrong),
)


@contextmanager
def injected(fault: Fault, layout: Layout) -> Iterator[Layout]:
    with pytest.MonkeyPatch.context() as patch:
        yield fault(patch, layout)


INJECTED = some(MUTATIONS, 100, by=lambda entry: entry[0])
"""Each fault once; in `make laws` in every layout."""


@pytest.mark.laws
@pytest.mark.parametrize(
    ("fault", "arguments", "options", "reason"),
    INJECTED,
    ids=[f"{entry[0].__name__}-{'-'.join(entry[1])}" for entry in INJECTED],
)
def test_fault_is_caught(fault: Fault, arguments: Any, options: dict[str, Any], reason: Reason) -> None:
    layout = layout_for(*arguments, **options)
    assert workload_test.workload_test(layout).ok
    with injected(fault, layout) as broken:
        found = workload_test.workload_test(broken)
    assert not found.ok
    assert reason(found), replace(found, attention=())
    assert verdict_of(found) == REFUTED


def figures_of(found: WorkloadTest) -> list[Figure]:
    bench = Bench(CpuDevice())
    workload_figures(bench, found)
    return bench.figures


def verdict_of(found: WorkloadTest) -> str:
    """The receipt's, of a run in which nothing else is wrong: by figures alone, whatever findings say."""
    return CONFIRMED if all(figure.agrees for figure in figures_of(found)) else REFUTED


_BAD_ATTENTION = AttentionError("GQA", "bfloat16", "sdpa", 0, 1, 1, 2.0, 1.0)
BROKEN: dict[str, Any] = {
    "bytes_allocated": st.integers(0, 99),
    "requests_admitted": st.integers(0, 9),
    "extra_refused": st.just(False),
    "undisturbed": st.just(False),
    "all_freed": st.just(False),
    "states_wrong": st.integers(1, 10**12),
    "states_missing": st.integers(1, 10**12),
    "reserved_untouched": st.just(False),
    "tensors_wrong": st.just(("kv_cache: 1 bytes, not 2",)),
    "attention": st.sampled_from(
        [(_BAD_ATTENTION,), (replace(_BAD_ATTENTION, error=float("nan")), _BAD_ATTENTION)]
    ),
    "table_error": st.just("end: block 1 is freed twice"),
}
HARMLESS: dict[str, Any] = {
    "refilled": st.integers(0, 9),
    "shared_tokens": st.integers(0, 9),
    "attention": st.sampled_from(
        [
            (),
            (replace(_BAD_ATTENTION, note="not run: RuntimeError"),),
        ]
    ),
}
GOOD = replace(
    findings.NOTHING, bytes_predicted=100, bytes_allocated=100, requests_predicted=10, requests_admitted=10,
    extra_refused=True, undisturbed=True, all_freed=True, reserved_untouched=True,
)  # fmt: skip


@given(st.sets(st.sampled_from(sorted(BROKEN))), st.data())
def test_every_finding_of_the_exercise_decides_the_verdict(broken: set[str], data: st.DataObject) -> None:
    """The law: what makes an workload_test bad makes an exact figure differ, and nothing else does."""
    drawn = {name: data.draw(strategy) for name, strategy in HARMLESS.items()}
    drawn |= {name: data.draw(BROKEN[name]) for name in sorted(broken)}
    found = replace(GOOD, **drawn)
    assert found.ok == (not broken)
    assert verdict_of(found) == (CONFIRMED if found.ok else REFUTED)
    checks = next(one for one in figures_of(found) if one.name == "attention_checks")
    assert checks.measured == sum(not one.note for one in found.attention)


def test_every_field_that_can_be_wrong_is_in_the_law() -> None:
    """A new finding of an workload_test has to be put into the verdict, or named as harmless here."""
    counted = {"device", "blocks", "states_written", "bytes_written", "states_verified", "mismatches",
               "fragmentation", "blocks_copied", "bytes_predicted", "requests_predicted",
               "stopped_at"}  # fmt: skip
    assert {*BROKEN, *HARMLESS, *counted} == set(WorkloadTest.__slots__)  # type: ignore[attr-defined]


def test_a_mismatch_is_named() -> None:
    """The bit that flipped is named to the byte."""
    layout = layout_for("full_attention")
    with injected(bit_flips, layout) as broken:
        found = workload_test.workload_test(broken)
    (named,) = found.mismatches
    view = layout.views[-1]
    assert (named.request, named.layer, named.position) == (0, view.layer, 0)
    assert (named.head, named.component, named.byte) == (view.heads - 1, "v", view.content - 1)
    assert named.written ^ named.found == 1
    assert found.states_wrong == 1
