"""Groups worked out by hand, where the recorded answers have no such model.

Each case follows vllm-project/vllm 0.32 vllm/v1/core/kv_cache_utils.py by the function that it names. A layer
is its kind and the bytes of its page; blocks are of 16 tokens unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.engines.vllm.cache_layout.grouping import CannotGroupError, Group, block_bytes, make_groups
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind
from kvplan.engines.vllm.versions import rules_of

FULL, MLA, SLIDING, CHUNKED, MAMBA = (
    SpecKind.FULL, SpecKind.MLA, SpecKind.SLIDING, SpecKind.CHUNKED, SpecKind.MAMBA,
)  # fmt: skip
CROSS, SLIDING_MLA = SpecKind.CROSS, SpecKind.SLIDING_MLA


RULES = rules_of("0.32")


def layer(kind: SpecKind, page: int, *, block: int = 16, **more: object) -> Spec:
    """A layer whose page of ``block`` tokens has ``page`` bytes; windows are of 128 tokens."""
    state = page if kind is MAMBA else page // block
    window = {"window": 128} if kind in (SLIDING, SLIDING_MLA, CHUNKED) else {}
    slots = {"slots": 1} if kind is MAMBA else {}
    return Spec(kind, block, state, (kind.value, page), **{**window, **slots, **more})  # type: ignore[arg-type]


def groups(*specs: Spec, disable_hybrid: bool = False, block_outermost: bool = False) -> list[Group]:
    return make_groups(
        dict(enumerate(specs)), RULES, disable_hybrid=disable_hybrid, block_outermost=block_outermost
    )


def layers_of(made: list[Group]) -> list[tuple[int, ...]]:
    return [group.layers for group in made]


# --------------------------------------------------------------------------------- one group, whole


def test_no_layers_no_groups() -> None:
    assert groups() == []


def test_equal_layers_are_one_group_of_one_shape() -> None:
    (group,) = groups(layer(FULL, 64), layer(FULL, 64))
    assert (group.layers, group.uniform_type) == ((0, 1), False)
    assert group.first == layer(FULL, 64)
    assert group.bytes_per_block == 128


def test_a_group_on_a_stage() -> None:
    (group,) = groups(*[layer(FULL, 64)] * 4)
    assert group.on(frozenset({1, 3})).layers == (1, 3)
    assert len(group.on(frozenset({1, 3})).specs) == 2
    assert not group.on(frozenset()).layers


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (layer(FULL, 64), layer(FULL, 32)),
        (layer(FULL, 64), layer(MLA, 32)),
        (layer(SLIDING, 64), layer(SLIDING, 32)),
        (layer(SLIDING, 64), layer(SLIDING_MLA, 32)),
        (layer(CHUNKED, 64), layer(CHUNKED, 32)),
        (layer(CROSS, 64), layer(CROSS, 32)),
        (layer(MAMBA, 64), replace(layer(MAMBA, 64), shape=("other",))),
    ],
    ids=lambda spec: f"{spec.kind.value}-{spec.page_bytes}",
)
def test_as_many_tokens_in_every_layer_is_one_group(first: Spec, second: Spec) -> None:
    """is_uniform_type: pages may differ, token slots may not."""
    (group,) = groups(first, second)
    assert (group.layers, group.uniform_type) == ((0, 1), True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (layer(FULL, 64), layer(FULL, 64, block=32)),
        (layer(FULL, 64), layer(FULL, 64, dcp_sharded=False)),
        (layer(FULL, 64), layer(SLIDING, 64)),
        (layer(SLIDING, 64), layer(SLIDING, 64, window=256)),
        (layer(SLIDING, 64), layer(CHUNKED, 64)),
        (layer(CHUNKED, 64), layer(CHUNKED, 64, window=256)),
        (layer(MAMBA, 64), layer(MAMBA, 64, slots=2)),
        (layer(MAMBA, 64), layer(MAMBA, 32)),
        (layer(MAMBA, 64), layer(FULL, 64)),
        (layer(SLIDING, 64), layer(FULL, 64)),
    ],
    ids=lambda spec: f"{spec.kind.value}-{spec.page_bytes}-{spec.block_size}",
)
def test_what_differs_in_tokens_has_tables_of_its_own(first: Spec, second: Spec) -> None:
    assert layers_of(groups(first, second)) == [(0,), (1,)]


def test_promoted_windows_of_two_lengths_do_not_merge() -> None:
    """FullAttentionSpec.merge takes one window at most."""
    kept = [layer(FULL, 64, kept_window=width) for width in (128, None)]
    (merged,) = groups(*kept)
    assert not merged.uniform_type
    (apart,) = groups(kept[0], layer(FULL, 64, kept_window=256))
    assert apart.uniform_type


# --------------------------------------------------------------------------------- pages of one size


@pytest.mark.parametrize(
    ("full", "windows", "sizes"),
    [
        (13, 12, [13, 12]),  # 2 · 13 < 3 · 12: one group of each
        (12, 17, [12, 17]),  # 34 < 36
        (12, 18, [12, 9, 9]),  # 36 is not less than 36: as many a group as the rarest has
        (2, 3, [2, 2, 1]),  # the same, as small as can be
        (35, 52, [35, 52]),  # 104 < 105
        (2, 10, [2, 2, 2, 2, 2, 2]),
        (4, 10, [4, 4, 3, 3]),
    ],
)
def test_as_many_layers_a_group_as_the_rarest_kind(full: int, windows: int, sizes: list[int]) -> None:
    """_get_kv_cache_groups_uniform_page_size."""
    made = groups(*[layer(FULL, 64)] * full, *[layer(SLIDING, 64)] * windows)
    assert [len(group.layers) for group in made] == sizes


def test_layers_of_a_kind_are_dealt_in_turn() -> None:
    made = groups(*[layer(FULL, 64)] * 2, *[layer(SLIDING, 64)] * 5)
    assert layers_of(made) == [(0, 1), (2, 5), (3, 6), (4,)]


def test_kinds_that_merge_share_a_bucket() -> None:
    """A promoted layer joins those that are full from the start; a chunk of another length does not."""
    made = groups(layer(FULL, 64), layer(FULL, 64, kept_window=128), layer(SLIDING, 64), layer(SLIDING, 64))
    assert layers_of(made) == [(0, 1), (2, 3)]


# ------------------------------------------------------------------------------- pages made equal


def test_smaller_pages_get_longer_blocks() -> None:
    """unify_kv_cache_spec_page_size: a page that divides the largest holds more tokens."""
    wide, narrow = groups(layer(FULL, 96), layer(SLIDING, 32))
    assert wide.first.block_size == 16
    assert (narrow.first.block_size, narrow.first.page_bytes, narrow.first.padded) == (48, 96, None)


def test_pages_that_do_not_divide_are_padded() -> None:
    wide, narrow = groups(layer(FULL, 96), layer(SLIDING, 64))
    assert (narrow.first.block_size, narrow.first.page_bytes, narrow.first.padded) == (16, 96, 96)
    assert wide.first.padded is None


def test_a_padded_page_is_padded_further() -> None:
    _, narrow = groups(layer(FULL, 96), layer(SLIDING, 16, padded=32))
    assert (narrow.first.block_size, narrow.first.padded) == (16, 96)


def test_states_are_padded_even_where_they_divide() -> None:
    _, state = groups(layer(FULL, 96), layer(MAMBA, 32))
    assert (state.first.block_size, state.first.page_bytes) == (16, 96)


def test_latents_beside_windows_that_do_not_divide_are_all_allocated_in_full() -> None:
    """_try_get_full_allocation_fallback_groups."""
    (group,) = groups(layer(MLA, 64), layer(SLIDING, 96))
    assert group.uniform_type
    assert [spec.kind for spec in group.specs] == [MLA, FULL]
    assert [spec.page_bytes for spec in group.specs] == [64, 96]


@pytest.mark.parametrize(
    "others",
    [
        [layer(FULL, 96, block=32)],
        [layer(SLIDING, 96), layer(CHUNKED, 96)],
        [layer(SLIDING, 96), layer(SLIDING_MLA, 96)],
        [layer(SLIDING, 96), layer(MAMBA, 96)],
    ],
    ids=["no-window", "chunk", "latent-window", "state"],
)
def test_latents_beside_anything_else_cannot_be_made_equal(others: list[Spec]) -> None:
    with pytest.raises(CannotGroupError, match="cannot be made equal"):
        groups(layer(MLA, 64), *others)


# ---------------------------------------------------------------------------- without the hybrid manager


def test_without_the_hybrid_manager_windows_are_full() -> None:
    """_promote_local_kv_cache_specs: blocks of the full layers, the window kept for computing."""
    (group,) = groups(layer(FULL, 64), layer(SLIDING, 64), disable_hybrid=True)
    promoted = group.specs[1]
    assert (promoted.kind, promoted.window, promoted.kept_window) == (FULL, None, 128)
    assert promoted.block_size == 16


def test_promoted_windows_take_the_block_of_the_full_layers() -> None:
    window = layer(SLIDING, 64, padded=100)
    (group,) = groups(layer(FULL, 128, block=32), window, disable_hybrid=True)
    promoted = group.specs[1]
    assert promoted.block_size == 32
    assert promoted.padded == 128, "twice the tokens in twice the bytes"
    (short,) = groups(layer(FULL, 64), window, disable_hybrid=True)
    assert short.specs[1].padded == 100


def test_of_two_full_block_sizes_none_is_taken() -> None:
    specs = [layer(FULL, 64), layer(FULL, 128, block=32), layer(SLIDING, 64)]
    with pytest.raises(CannotGroupError, match="one unified type"):
        groups(*specs, disable_hybrid=True)


def test_windows_of_two_lengths_are_not_promoted_to_one_shape() -> None:
    specs = [layer(FULL, 64), layer(SLIDING, 64), layer(SLIDING, 64, window=256)]
    alike = [replace(spec, shape=("same",)) for spec in specs]
    with pytest.raises(CannotGroupError, match="one unified type"):
        groups(*alike, disable_hybrid=True)
    with pytest.raises(CannotGroupError, match="one unified type"):  # windows are looked at before shapes
        groups(*specs[:2], replace(specs[2], shape=("other",)), disable_hybrid=True)


def test_only_windows_stay_what_they_are() -> None:
    (group,) = groups(layer(SLIDING, 64), layer(SLIDING, 32), disable_hybrid=True)
    assert {spec.kind for spec in group.specs} == {SLIDING}


def test_windows_over_latents_are_not_promoted() -> None:
    with pytest.raises(CannotGroupError, match="windows over latents"):
        groups(layer(MLA, 64), layer(SLIDING_MLA, 64), disable_hybrid=True)


@pytest.mark.parametrize("release", ["0.24", "0.27", "0.30"])
def test_windows_over_latents_were_promoted_to_latents(release: str) -> None:
    """Until 0.30: MLAAttentionSpec of the full layers' blocks, which keeps no window; one of K and V keeps
    its own blocks until 0.27."""
    specs = dict(enumerate([layer(MLA, 128, block=32), layer(SLIDING_MLA, 64)]))
    (group,) = make_groups(specs, rules_of(release), disable_hybrid=True, block_outermost=False)
    promoted = group.specs[1]
    assert (promoted.kind, promoted.block_size) == (MLA, 32)
    assert (promoted.window, promoted.kept_window) == (None, None)


def test_replicated_layers_are_promoted_apart() -> None:
    """Layers that decode context parallelism does not divide: states count with those that it does."""
    sharded = [replace(layer(kind, 64), shape=("same",)) for kind in (FULL, SLIDING)]
    whole = [replace(spec, dcp_sharded=False) for spec in sharded]
    made = groups(*sharded, *whole, disable_hybrid=True)
    assert sorted(layers_of(made)) == [(0, 1), (2, 3)]
    assert all(spec.kind is FULL for group in made for spec in group.specs)


# --------------------------------------------------------------- blocks that hold pages of several sizes


def two_pages(repeats: int) -> list[Spec]:
    """Full layers, in turn of 64 and of 32 bytes."""
    return [layer(FULL, 64), layer(FULL, 32)] * repeats


def test_pages_of_one_size_are_not_packed() -> None:
    specs = [*[layer(FULL, 64)] * 2, *[layer(SLIDING, 64)] * 4]
    assert groups(*specs, block_outermost=True) == groups(*specs)


def test_the_packed_block_repeats_as_the_mixed_bucket_does() -> None:
    """_get_packed_kv_cache_groups: 4 pairs; 8 windows make two groups of 4."""
    made = groups(*two_pages(4), *[layer(SLIDING, 64)] * 8, block_outermost=True)
    assert layers_of(made) == [tuple(range(8)), (8, 10, 12, 14), (9, 11, 13, 15)]
    assert all(group.uniform_type for group in made)
    assert [group.bytes_per_block for group in made] == [384, 256, 256]


def test_two_mixed_buckets_stay_whole() -> None:
    """8 pairs beside 4 pairs of another length of block: the larger number is the least chunk."""
    longer = [layer(FULL, 64, block=32), layer(FULL, 32, block=32)] * 4
    made = groups(*two_pages(8), *longer, block_outermost=True)
    assert [len(group.layers) for group in made] == [16, 8]
    assert {spec.page_bytes for spec in made[0].specs} == {64, 32}


@pytest.mark.parametrize(("windows", "parts"), [(4, 1), (5, 1), (6, 1), (8, 2), (10, 2), (12, 3), (13, 3)])
def test_the_chunk_that_wastes_least(windows: int, parts: int) -> None:
    """Approximate gcd of 4 and so many, at least 4, the larger of equals: 10 is dealt by fives."""
    made = groups(*two_pages(4), *[layer(SLIDING, 64)] * windows, block_outermost=True)
    assert len(made) == 1 + parts


def test_states_take_as_many_blocks_as_the_widest_group_leaves() -> None:
    """The anchor is 2 · 96 bytes: two states of 96 a block, so five states in three groups."""
    made = groups(*two_pages(2), *[layer(MAMBA, 96)] * 5, block_outermost=True)
    assert [len(group.layers) for group in made] == [4, 2, 2, 1]
    assert layers_of(made)[1:] == [(4, 7), (5, 8), (6,)]


def test_a_state_wider_than_the_anchor_has_a_group_of_its_own() -> None:
    made = groups(*two_pages(1), *[layer(MAMBA, 1000)] * 2, block_outermost=True)
    assert layers_of(made) == [(0, 1), (2,), (3,)]


def test_without_a_mixed_bucket_windows_are_dealt_as_states_are() -> None:
    """No bucket has pages of two sizes: the full layers' 2 · 64 bytes hold four windows of 32."""
    made = groups(*[layer(FULL, 64)] * 2, *[layer(SLIDING, 32)] * 9, block_outermost=True)
    assert [len(group.layers) for group in made] == [2, 3, 3, 3]


def test_an_unbalanced_bucket_stays_whole() -> None:
    made = groups(*two_pages(2), layer(FULL, 64), *[layer(SLIDING, 64)] * 4, block_outermost=True)
    assert len(made[0].layers) == 5
    assert [len(group.layers) for group in made[1:]] == [4]


# ----------------------------------------------- latents with pooled index keys before 0.32 (GLM-5.3-Flash)


def with_pools(*states: int, latent: int = 1024, stages: tuple[int, ...] = ()) -> list[Group]:
    """Of 0.31: of each number so many states of 900 bytes, then a latent, its pooled keys of 64 and a ring of
    24. stages: how many of the numbers lie on each."""
    specs: list[Spec] = []
    ends: list[int] = []
    for count in states:
        specs += [layer(MAMBA, 900)] * count
        specs += [
            layer(MLA, latent, stride=48),
            Spec(MLA, 16, 16, ("indexer",), tokens_per_state=4, stride=48),
            Spec(SpecKind.RING, 4, 6, ("tail",), dcp_sharded=False),
        ]
        ends.append(len(specs))
    bounds, start = [], 0
    for stage in stages or (len(states),):
        end = ends[start + stage - 1]
        bounds.append(frozenset(range(ends[start - 1] if start else 0, end)))
        start += stage
    return make_groups(
        dict(enumerate(specs)), rules_of("0.31"), disable_hybrid=False, block_outermost=True, stages=bounds
    )


def test_rings_lie_in_pages_of_the_index_keys_and_states_in_those_of_the_latents() -> None:
    """_get_kv_cache_groups_glm5_next; a block is latents and keys, no multiple of rows."""
    made = with_pools(3, 3)
    assert layers_of(made) == [(3, 4, 9, 10), (5, 11), (0, 6), (1, 7), (2, 8)]
    assert [group.specs[0].page_bytes for group in made] == [1024, 64, 1024, 1024, 1024]
    assert block_bytes(made, rules_of("0.31")) == 2 * (1024 + 64)
    assert block_bytes(made, rules_of("0.31")) % 48


def test_a_stage_with_fewer_latents_makes_more_groups_of_states() -> None:
    """_pp_balanced_mamba_group_count: 1 and 5 states make three groups on one stage, five on two."""
    assert len(with_pools(1, 5)) == 2 + 3
    assert len(with_pools(1, 5, stages=(1, 1))) == 2 + 5


def test_a_state_that_no_latent_s_page_holds_stops_it() -> None:
    with pytest.raises(CannotGroupError, match="do not fit"):
        with_pools(3, latent=512)


def test_a_stage_of_states_alone_stops_it() -> None:
    specs = {
        0: layer(MAMBA, 900),
        1: layer(MLA, 1024),
        2: Spec(MLA, 16, 16, ("indexer",), tokens_per_state=4),
    }
    stages = (frozenset({0}), frozenset({1, 2}))
    with pytest.raises(CannotGroupError, match="no latents to share"):
        make_groups(specs, rules_of("0.31"), disable_hybrid=False, block_outermost=True, stages=stages)


def test_pages_of_several_sizes_stop_it() -> None:
    pooled = Spec(MLA, 16, 16, ("indexer",), tokens_per_state=4)
    specs = [layer(MAMBA, 900), layer(MLA, 1024), layer(MLA, 2048), pooled]
    with pytest.raises(CannotGroupError, match="several sizes"):
        make_groups(dict(enumerate(specs)), rules_of("0.31"), disable_hybrid=False, block_outermost=True)


def test_a_block_of_several_page_sizes_by_release() -> None:
    """Until 0.22 as many of each page as the group with most layers has; then as many as any has of it."""
    whole = (layer(MLA, 64), layer(MLA, 64), layer(MLA, 64), layer(MLA, 32))
    few = (layer(MLA, 32), layer(MLA, 32))
    made = [Group((0, 1, 2, 3), whole, uniform_type=True), Group((4, 5), few, uniform_type=True)]
    assert block_bytes(made, rules_of("0.22")) == (64 + 32) * 3
    assert block_bytes(made, rules_of("0.24")) == 64 * 3 + 32 * 2
    assert block_bytes(made, rules_of("0.28")) == 64 * 3 + 32
    assert block_bytes(made[:1], rules_of("0.22")) == 64 * 3 + 32


def test_windows_and_chunks_alone_are_not_promoted() -> None:
    """There is no full layer whose blocks they could take."""
    alike = [replace(layer(kind, 64), shape=("same",)) for kind in (SLIDING, CHUNKED)]
    with pytest.raises(CannotGroupError, match="one unified type"):
        groups(*alike, disable_hybrid=True)
