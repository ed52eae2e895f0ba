"""Groups whose layers lie side by side in a block, by hand: latents with windows, and with pooled keys."""

from __future__ import annotations

import pytest

from kvplan.engines.vllm.cache_layout.grouping import CannotGroupError
from kvplan.engines.vllm.cache_layout.side_by_side import are_pooled, pooled_groups, tuple_groups
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind
from kvplan.engines.vllm.versions import rules_of
from tests.engines.test_vllm_grouping import layer, layers_of

MLA, WINDOW, RING, STATE = SpecKind.MLA, SpecKind.SLIDING_MLA, SpecKind.RING, SpecKind.MAMBA
OLD = next(
    rules for rules in map(rules_of, ("0.28", "0.27", "0.26", "0.25")) if rules.latent_blocks != "largest"
)


def numbered(*specs: Spec) -> dict[int, Spec]:
    return dict(enumerate(specs))


# ------------------------------------------------------------------------------- windows over latents


def test_one_full_latent_and_one_window() -> None:
    made = tuple_groups(numbered(layer(MLA, 64), layer(WINDOW, 64)), OLD)
    assert layers_of(made) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("latents", "windows", "chunk"),
    [
        (1, 1, [(1,)]),
        (1, 2, [(1,), (2,)]),  # chunks of one leave nothing unused, one of two a place beside the latent
        (2, 3, [(2, 3, 4)]),  # chunks of two and of three leave one place: the larger
        (2, 5, [(2, 5), (3, 6), (4,)]),  # chunks of two leave one place, one of five three
    ],
)
def test_windows_lie_in_chunks_that_leave_least_unused(
    latents: int, windows: int, chunk: list[tuple[int, ...]]
) -> None:
    made = tuple_groups(numbered(*[layer(MLA, 64)] * latents, *[layer(WINDOW, 64)] * windows), OLD)
    assert layers_of(made) == [tuple(range(latents)), *chunk]


def test_a_window_takes_the_least_page_of_the_latents_that_holds_it() -> None:
    latents = [layer(MLA, 64), layer(MLA, 128)]
    for page, taken in ((32, 64), (64, 64), (96, 128), (128, 128)):
        _, windows = tuple_groups(numbered(*latents, layer(WINDOW, page)), OLD)
        assert [spec.page_bytes for spec in windows.specs] == [taken], page


def test_one_window_that_is_too_large_is_enough_to_refuse() -> None:
    with pytest.raises(CannotGroupError, match="larger than every page"):
        tuple_groups(numbered(layer(MLA, 64), layer(WINDOW, 32), layer(WINDOW, 128)), OLD)


def test_windows_without_full_latents_are_refused() -> None:
    with pytest.raises(CannotGroupError, match="full latents"):
        tuple_groups(numbered(layer(WINDOW, 64)), OLD)


# ----------------------------------------------------------------------- latents, pooled keys and states


def pooled(*states: int) -> dict[int, Spec]:
    """A latent of 64 bytes a page, its keys (one for four tokens), a ring, and states of these bytes."""
    keys = layer(MLA, 64, tokens_per_state=4)
    assert keys.page_bytes == 16
    ring = Spec(RING, 16, 1, ("ring", 16), window=16)
    return numbered(layer(MLA, 64), keys, ring, *(layer(STATE, page) for page in states))


def test_latents_and_keys_rings_and_states() -> None:
    assert are_pooled(pooled(64))
    assert not are_pooled(numbered(layer(MLA, 64), layer(STATE, 64)))
    assert not are_pooled(numbered(layer(MLA, 64), layer(MLA, 64, tokens_per_state=4)))
    made = pooled_groups(pooled(32, 64, 64), [frozenset(range(6))])
    assert layers_of(made) == [(0, 1), (2,), (3,), (4,), (5,)]  # a state for each latent of the stage
    assert [[spec.page_bytes for spec in group.specs] for group in made[2:]] == [[64]] * 3


def test_one_state_that_is_too_large_is_enough_to_refuse() -> None:
    with pytest.raises(CannotGroupError, match="states' pages"):
        pooled_groups(pooled(32, 96), [frozenset(range(5))])


def test_a_stage_with_states_alone_is_refused() -> None:
    with pytest.raises(CannotGroupError, match="no latents"):
        pooled_groups(pooled(64, 64), [frozenset({0, 1, 2}), frozenset({3, 4})])
