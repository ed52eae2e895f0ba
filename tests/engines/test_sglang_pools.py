"""SGLang's pools worked out by hand, with round numbers: what a page, a cap, a draft and a state take.

sgl-project/sglang 0.5.23 model_executor/pool_configurator.py and mem_cache/kv_cache_configurator.py, by the
functions that `kvplan.engines.sglang.cache_layout.pools` names.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from kvplan.dtypes import BFLOAT16, kv_dtype
from kvplan.engines.sglang.cache_layout.cells import Cell
from kvplan.engines.sglang.cache_layout.pools import build_pools, solve, split_stages, trailing
from kvplan.engines.sglang.cache_layout.stages import PoolError, Pools, Sizes, Stage
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.families import (
    FullAttention,
    GatedDeltaNet,
    MultiHeadLatentAttention,
    SlidingWindow,
    SparseIndexer,
)
from kvplan.model import Layer, Model, runs_of

BF16 = kv_dtype("bfloat16")
DEVICE: Any = None
ARGUMENTS = Arguments(
    device=DEVICE, dtype=BFLOAT16, kv=BF16, latent=BF16, index=BF16, backend="fa3",
    decode_backend="fa3", page_size=1, tp=1, pp=1, state_tp=1, whole_prefill=False, given_requests=None,
    draft_windows=0, attn_tp=1, attn_dp=1, dcp=1, ep=1, moe_a2a_backend="none", context_len=8192,
    chunked_prefill_size=1000, graph_max_batch=8, window_pool=False, swa_ratio=Fraction(1, 2),
    radix=True, overlap=True, strategy="",
    slots_per_request=1, state_ratio=Fraction(1, 4), padding_slot=1, max_slots=None, max_total_tokens=None,
    max_running_requests=None, draft_tokens=0, draft_layers=0, conv_dtype=BFLOAT16, ssm_dtype=None,
)  # fmt: skip
FULL = Stage(1, (1, 0, 0), Cell(full=100, full_k=50))
MIXED = Stage(2, (1, 1, 0), Cell(full=100, full_k=50, window=40, window_k=20))
WINDOWS = Stage(1, (0, 1, 0), Cell(window=40, window_k=20))


def pools(*stages: Stage, slot: int = 0, window: int | None = None, **arguments: Any) -> Pools:
    return Pools(replace(ARGUMENTS, **arguments), stages, slot, window)


def tokens(made: Pools, memory: int) -> int:
    return solve(made, memory).max_total_num_tokens


# --------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("memory", "page", "expected"),
    [(100_000, 1, 1000), (100_099, 1, 1000), (100_000, 64, 960), (6400, 64, 64)],
)
def test_tokens_are_whole_pages(memory: int, page: int, expected: int) -> None:
    assert tokens(pools(FULL, page_size=page), memory) == expected


def test_no_page_is_no_pool() -> None:
    with pytest.raises(PoolError, match="hold no page of 64 tokens"):
        solve(pools(FULL, page_size=64), 6399)


def test_one_token_is_a_pool() -> None:
    assert tokens(pools(FULL), 100) == 1


def test_the_smallest_stage_decides() -> None:
    larger = replace(FULL, target=Cell(full=300))
    assert tokens(pools(FULL, larger), 30_000) == 100
    assert tokens(pools(larger, FULL), 30_000) == 100


def test_a_stage_without_a_cache_is_left_out() -> None:
    empty = Stage(3, (0, 0, 0), Cell())
    assert tokens(pools(empty, FULL), 10_000) == 100
    assert tokens(pools(empty, page_size=64, context_len=8200), 1) == 8192
    assert tokens(pools(empty, page_size=64, max_total_tokens=1000), 1) == 960


@pytest.mark.parametrize(("cap", "expected"), [(500, 448), (2000, 960), (64, 64)])
def test_max_total_tokens_in_whole_pages(cap: int, expected: int) -> None:
    assert tokens(pools(FULL, page_size=64, max_total_tokens=cap), 100_000) == expected


def test_index_keys_and_extras_are_in_the_cell() -> None:
    stage = Stage(1, (1, 0, 0), Cell(full=100, index=20), draft_full=30, extra=50)
    assert tokens(pools(stage), 200_000) == 1000


# -------------------------------------------------------------------------------------------- windows


def test_a_window_pool_has_its_share_of_tokens() -> None:
    """100 + 40 / 2 bytes a token; half as many tokens in the window pool, in whole pages."""
    made = pools(MIXED, window=128, page_size=10)
    assert solve(made, 120_000) == Sizes(1000, 500, 0, 500)
    finer = replace(made, arguments=replace(made.arguments, swa_ratio=Fraction(509, 1000)))
    assert solve(finer, 120_360).window_tokens == 500


def test_a_window_pool_is_larger_than_a_window_and_a_page() -> None:
    made = pools(MIXED, window=490, page_size=10)
    with pytest.raises(PoolError, match=r"500 tokens\) cannot hold one request"):
        solve(made, 120_000)
    assert solve(replace(made, window=489), 120_000).window_tokens == 500


def test_windows_alone_keep_all_tokens() -> None:
    assert solve(pools(WINDOWS, window=128), 40_000) == Sizes(1000, 1000, 0, 500)
    assert solve(pools(WINDOWS, FULL, window=128), 200_000).window_tokens == 1000


def test_what_a_request_trails() -> None:
    """window + 128 steps of as many tokens as are drafted + a page."""
    assert trailing(pools(MIXED, window=1000, page_size=64)) == 1000 + 128 + 64
    assert trailing(pools(MIXED, window=1000, page_size=64, draft_tokens=4)) == 1000 + 512 + 64


@pytest.mark.parametrize(
    ("arguments", "cap"),
    [
        # Each request: 1,000 + 128 + 10, and a page to decode; two chunks of prompts and a page.
        ({}, 8 * (1138 + 10) + 2 * 1000 + 10),
        ({"overlap": False}, 8 * (1138 + 10) + 1000 + 10),
        # Four drafted tokens are rounded up to a page, twice with overlap.
        ({"draft_tokens": 4}, 8 * (1000 + 512 + 10 + 20) + 2 * 1000 + 10),
        ({"draft_tokens": 4, "overlap": False}, 8 * (1000 + 512 + 10 + 10) + 1000 + 10),
        ({"draft_tokens": 14, "overlap": False}, 8 * (1000 + 14 * 128 + 10 + 20) + 1000 + 10),
        ({"attn_dp": 4}, 2 * (1138 + 10) + 2 * 250 + 10),
        ({"attn_dp": 16}, 1 * (1138 + 10) + 2 * 62 + 10),
    ],
)
def test_the_known_need_of_windows(arguments: dict[str, Any], cap: int) -> None:
    """compute_swa_request_cap: no radix cache, and so many requests; in whole pages."""
    known = {"radix": False, "max_running_requests": 8, "page_size": 10}
    made = pools(MIXED, window=1000, **{**known, **arguments})
    cap = -(-cap // 10) * 10
    found = solve(made, 100 * 50_000 + cap * 40)
    assert (found.max_total_num_tokens, found.window_tokens) == (50_000, cap)
    assert solve(made, 100 * 50_000 + cap * 40 - 1).max_total_num_tokens == 49_990


def test_the_known_need_leaves_a_page_or_is_refused() -> None:
    made = pools(MIXED, window=1000, radix=False, max_running_requests=8, page_size=10)
    cap = 11_200
    assert solve(made, cap * 40 + 1000).max_total_num_tokens == 10
    with pytest.raises(PoolError, match=r"window pool of 11,200 tokens leaves no room"):
        solve(made, cap * 40 + 999)
    assert solve(made, cap * 40 + 1000).window_tokens == 10, "no more than the full pool"


@pytest.mark.parametrize(
    "changed", [{"radix": True}, {"max_running_requests": None}], ids=["radix", "no-number-of-requests"]
)
def test_otherwise_the_need_is_not_known(changed: dict[str, Any]) -> None:
    known = {"radix": False, "max_running_requests": 8}
    found = solve(pools(MIXED, window=100, **{**known, **changed}), 120_000)
    assert (found.max_total_num_tokens, found.window_tokens) == (1000, 500)


# --------------------------------------------------------------------------------------------- states


def states(memory: int, *, slot: int = 1000, **arguments: Any) -> tuple[int, int]:
    """(slots, tokens) where a token has 1 byte, so that the tokens are the bytes left."""
    found = solve(pools(Stage(1, (1, 0, 1), Cell(full=1)), slot=slot, **arguments), memory)
    return found.state_slots, found.max_total_num_tokens


def test_states_take_their_share_first() -> None:
    """A quarter beside one: a fifth of 1,000,000 is 200 slots, one of them padding."""
    assert states(1_000_000) == (199, 800_000)
    assert states(1_004_995) == (199, 804_995)
    assert states(1_000_000, padding_slot=0) == (200, 800_000)


def test_slots_that_are_asked_for() -> None:
    assert states(1_000_000, max_slots=100) == (100, 899_000)
    assert states(1_000_000, max_slots=100, attn_dp=4) == (25, 974_000)


def test_without_a_radix_cache_a_slot_a_request() -> None:
    assert states(1_000_000, radix=False, max_running_requests=50) == (50, 949_000)
    assert states(1_000_000, radix=False, max_running_requests=50, attn_dp=5) == (10, 989_000)
    assert states(1_000_000, radix=False, max_running_requests=2, attn_dp=5) == (1, 998_000)
    assert states(1_000_000, max_running_requests=50) == (199, 800_000), "with one, by the share"


def test_drafts_keep_states_of_their_own() -> None:
    """Each request that may run has a state a drafted token, and so has the padding."""
    known = {"draft_tokens": 3, "max_running_requests": 10}
    assert states(1_000_000, max_slots=100, **known) == (100, 1_000_000 - 101_000 - 11 * 3000)
    assert states(1_000_000, max_slots=6, slots_per_request=2, **known) == (6, 1_000_000 - 7000 - 4 * 3000)
    assert states(1_000_000, radix=False, **known) == (10, 1_000_000 - 11_000 - 11 * 3000)
    # (200,000 - 4 · 1,000) // (1,000 · (1 + 3 / 2)): 78 slots; ten requests may run.
    assert states(1_000_000, slots_per_request=2, **known) == (78, 1_000_000 - 79_000 - 11 * 3000)
    few = {**known, "max_running_requests": 100}
    assert states(1_000_000, slots_per_request=2, **few) == (78, 1_000_000 - 79_000 - 40 * 3000)


def test_too_little_for_a_state() -> None:
    """A fifth of the memory must hold a slot and the padding."""
    assert states(10_000) == (1, 8000)
    with pytest.raises(PoolError, match="too few for the states of one request"):
        states(9_999)


# --------------------------------------------------------------------------------- stages and their drafts


def model(*layers: Layer, drafts: tuple[Layer, ...] = ()) -> Model:
    made = Model("m", "test", "test", None, runs_of(list(layers)), "bfloat16", 8192)
    return replace(made, draft_layers=drafts)


DENSE = Layer((FullAttention(2, 64),))  # 512 bytes a token
WINDOW = Layer((SlidingWindow(4, 64, 100),))  # 1,024 bytes a token of the window
STATE = Layer((GatedDeltaNet(2, 4, 8, 8, 4),))
SPARSE = Layer((MultiHeadLatentAttention(64, 16), SparseIndexer(32)))


@pytest.mark.parametrize(
    ("layers", "stages", "lengths"),
    [(10, 1, [10]), (10, 2, [5, 5]), (10, 3, [3, 3, 4]), (11, 3, [3, 4, 4]), (2, 3, [0, 1, 1])],
)
def test_the_last_stages_take_the_remainder(layers: int, stages: int, lengths: list[int]) -> None:
    numbered: Any = list(range(layers))
    found = split_stages(numbered, stages)
    assert [len(part) for part in found] == lengths
    assert [layer for part in found for layer in part] == numbered


def test_layers_of_a_stage_are_summed_by_what_they_keep() -> None:
    arguments = replace(ARGUMENTS, window_pool=True)
    made = build_pools(model(DENSE, DENSE, WINDOW, STATE), arguments)
    (stage,) = made.stages
    assert (stage.layers, stage.keeping) == (4, (2, 1, 1))
    assert (stage.full, stage.window) == (1024, 1024)
    assert made.slot_bytes == stage.target.slot == (2 * 2 * 8 + 4 * 8) * 3 * 2 + 4 * 8 * 8 * 4
    assert made.window == 100


def test_the_largest_state_of_the_stages_is_every_slots() -> None:
    made = build_pools(model(DENSE, STATE), replace(ARGUMENTS, pp=2))
    assert [stage.target.slot for stage in made.stages] == [0, made.slot_bytes]
    assert made.window is None


@pytest.mark.parametrize(("layers", "drafts", "extra"), [(4, 1, 512), (4, 2, 1024), (3, 1, 512)])
def test_a_draft_is_so_many_mean_layers(layers: int, drafts: int, extra: int) -> None:
    (stage,) = build_pools(model(*[DENSE] * layers), replace(ARGUMENTS, draft_layers=drafts)).stages
    assert (stage.draft_full, stage.draft_window) == (extra, 0)


def test_a_draft_of_layers_of_two_widths_rounds_down() -> None:
    """(512 + 768 + 1,024) / 3 layers, states left out; twice that for two, divided last."""
    mixed = [DENSE, Layer((FullAttention(3, 64),)), Layer((FullAttention(4, 64),)), STATE]
    (one,) = build_pools(model(*mixed), replace(ARGUMENTS, draft_layers=1)).stages
    assert one.draft_full == 768
    odd = [DENSE, DENSE, Layer((FullAttention(3, 64),))]
    (two,) = build_pools(model(*odd), replace(ARGUMENTS, draft_layers=2)).stages
    assert two.draft_full == (512 + 512 + 768) * 2 // 3


def test_states_alone_give_a_draft_nothing() -> None:
    (stage,) = build_pools(model(STATE, STATE), replace(ARGUMENTS, draft_layers=1)).stages
    assert (stage.draft_full, stage.draft_window) == (0, 0)


@pytest.mark.parametrize(("windows", "full", "window"), [(0, 1024, 0), (1, 512, 1024), (3, 0, 2048)])
def test_drafts_beside_a_window_pool(windows: int, full: int, window: int) -> None:
    """Two draft layers, as many of them windows as the draft's config has: the widest of the stage."""
    arguments = replace(ARGUMENTS, window_pool=True, draft_layers=2, draft_windows=windows)
    narrow = Layer((FullAttention(1, 64),))
    (stage,) = build_pools(model(narrow, DENSE, WINDOW), arguments).stages
    assert (stage.draft_full, stage.draft_window) == (full, window)


def test_a_draft_of_sparse_latents_has_index_keys_of_its_own() -> None:
    """160 bytes of latent and 64 of an index key; ranks of context parallelism keep every token's of both."""
    arguments = replace(ARGUMENTS, draft_layers=2)
    plain = replace(SPARSE, parts=SPARSE.parts[:1])
    (stage,) = build_pools(model(SPARSE, plain, plain), arguments).stages
    assert stage.draft_full == 160 * 3 * 2 // 3 + 2 * 64
    (wide,) = build_pools(model(SPARSE, plain, plain), replace(arguments, dcp=2)).stages
    assert wide.draft_full == 2 * stage.draft_full
