"""The levers: by hand, against laws, and against the engine's own counts."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.planning.levers import Link, Seconds, Situation, levers
from kvplan.plans.workload import Shape, Workload
from kvplan.record import dumped
from kvplan.units import GB, GIB, apportion

PCIE = Link("PCIe", 50 * GB, 40 * GB, 60 * GB, 0.0005, "a test")


def situation(
    model: str, workload: Workload, *, engine: str = "vllm@0.32", requests: int = 8, **options: Any
) -> Situation:
    settings = make_settings(**{"kv_cache_memory": "8GiB", "max_model_len": 8192, **options})
    return Situation(load_model(model), choose(engine), settings, workload, requests)


def named(found: tuple[Any, ...], name: str) -> Any:
    return next(lever for lever in found if lever.name.startswith(name))


def test_a_shared_prefix_is_held_once() -> None:
    # llama-3.1-8b: 131,072 B a token, blocks of 16: 8 GiB are 4,096 blocks, one of them the null block.
    plain = Workload((Shape(1000, 24),))
    seen = situation("llama-3.1-8b", Workload((Shape(1000, 24),), shared_prefix_tokens=500))
    lever = named(levers(seen), "prefix sharing")
    assert lever.applies
    assert lever.effect("held once") == 31 * 16 * 131072  # 500 tokens are 31 whole blocks
    assert lever.effect("each sequence's own") == (64 - 31) * 16 * 131072
    assert lever.effect("sequences with sharing") == (4095 - 31) // 33
    assert lever.effect("sequences without sharing") == 4095 // 64
    assert not named(levers(situation("llama-3.1-8b", plain)), "prefix sharing").applies


def test_samples_share_the_prompt_but_not_its_last_block() -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(1000, 24),), samples=4))
    lever = named(levers(seen), "prefix sharing")
    own = 64 - 62  # 1,000 tokens are 62 whole blocks; the 63rd is copied for every sample
    assert lever.effect("each sequence's own") == own * 16 * 131072
    assert lever.effect("sequences with sharing") == 4095 // (62 + 4 * own) * 4


def test_nothing_is_shared_of_states_and_passed_windows() -> None:
    workload = Workload((Shape(4000, 96),), shared_prefix_tokens=2000)
    seen = situation("gemma-3-27b", workload, max_num_batched_tokens=2048)
    lever = named(levers(seen), "prefix sharing")
    whole = 2000 // 16 * 16
    assert lever.effect("held once") == whole * seen.bytes_per_token  # the ten full layers alone
    assert lever.effect("held once") < seen.held_bytes(2000)


@pytest.mark.parametrize("engine", ["vllm@0.32", "trtllm"])
def test_levers_count_as_the_engine_does(engine: str) -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(900, 100),), shared_prefix_tokens=256), engine=engine)
    before = named(levers(seen), "prefix sharing").effect("sequences without sharing")
    assert before == seen.requests_with() == seen.usable_bytes // seen.held_bytes(1000)


def test_an_engine_with_fixed_pools_is_not_computed() -> None:
    workload = Workload((Shape(2000, 500),), shared_prefix_tokens=1500)
    seen = situation("gpt-oss-20b", workload, engine="sglang", max_model_len=None)
    found = levers(seen)
    for name in ("prefix sharing", "preemption", "contiguous"):
        assert "several pools" in named(found, name).summary


def test_kv_formats_are_those_allowed_and_taken() -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(900, 100),)), gpu="h100")
    lever = named(levers(seen, formats=("fp8_e4m3", "no_such")), "KV format")
    assert [one.name for one in lever.effects] == ["fp8_e4m3"]
    assert lever.effects[0].value > 2 * (seen.requests_with() or 0) - 2
    assert not named(levers(seen, formats=()), "KV format").applies


def test_windows_save_what_the_engine_says() -> None:
    seen = situation("gemma-3-27b", Workload((Shape(7900, 100),)), max_num_batched_tokens=2048)
    lever = named(levers(seen), "windows")
    assert lever.applies
    without = seen.ask(8000, disable_hybrid_kv_cache_manager=True).per_gpu.kv_bytes_per_request
    assert (lever.effect("with windows"), lever.effect("without")) == (seen.held_bytes(8000), without)


def test_dcp_helps_where_ranks_hold_the_same() -> None:
    load = Workload((Shape(900, 100),))
    latent = situation("deepseek-v3", load, tensor_parallel_size=8, gpu="h200")
    assert named(levers(latent), "decode context").applies
    assert not named(
        levers(situation("llama-3.1-8b", load, tensor_parallel_size=8)), "decode context"
    ).applies


def test_offload_wins_with_a_fast_link_and_loses_with_a_slow_one() -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(4000, 100),)))
    bytes_moved = 250 * 16 * 131072

    def prefill(tokens: int) -> Seconds:
        return Seconds(tokens / 8000, tokens / 10000, tokens / 6000)

    fast = named(levers(seen, tiers=((PCIE, 64 * GIB),), prefill=prefill), "offload")
    assert fast.applies
    assert fast.effect("time to load it") == pytest.approx(0.0005 + bytes_moved / (50 * GB))
    assert fast.effect("break-even bandwidth") == pytest.approx(bytes_moved / 0.5)
    assert fast.effect("tokens held") == 64 * GIB // 131072
    slow = Link("slow", GB // 2, GB // 2, GB // 2)
    assert not named(levers(seen, tiers=((slow, 0),), prefill=prefill), "offload").applies
    assert "not say how fast" in named(levers(seen), "offload").summary


def test_disaggregation_hides_all_but_a_layer() -> None:
    workload = Workload((Shape(4000, 100),), requests_per_second=Fraction(2))
    seen = situation("llama-3.1-8b", workload)

    def prefill(tokens: int) -> Seconds:
        return Seconds(10.0, 10.0, 10.0)

    lever = named(levers(seen, transfers=(PCIE,), prefill=prefill), "disaggregated")
    sent = lever.effect("transfer over PCIe")
    assert lever.effect("shown of it over PCIe") == pytest.approx(sent / 32 + 0.0005)
    assert lever.effect("bandwidth of the load") == 2 * 4000 * 131072
    assert lever.effect("prefill engines busy") == 20


def test_mooncakes_transfer_times() -> None:
    """Qwen3-8B over 8 × RoCE: Mooncake's table, fitted as 0.39 ms + bytes / 146 GB/s, 6 % at most."""
    link = Link("RoCE", 146 * GB, 140 * GB, 152 * GB, 0.00039)
    seen = situation("qwen3-8b", Workload((Shape(32768, 1),)), max_model_len=40960)
    lever = named(levers(seen, transfers=(link,)), "disaggregated")
    assert lever.effect("transfer over RoCE") == pytest.approx(0.03165, rel=0.06)


def test_no_preemption_while_everything_fits() -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(900, 100),)), requests=20)
    assert named(levers(seen), "preemption").effect("requests preempted") == 0
    tight = situation("llama-3.1-8b", Workload((Shape(100, 900),)), requests=150)
    assert (named(levers(tight), "preemption").effect("requests preempted") or 0) > 0.2


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"speculative_method": "ngram", "num_speculative_tokens": 3}, "drafted tokens are right is not known")],
)  # fmt: skip
def test_preemptions_that_no_simulation_counts_have_a_reason(settings: dict[str, Any], said: str) -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(900, 100),)), **settings)
    lever = named(levers(seen), "preemption")
    assert not lever.applies
    assert said in lever.summary
    drafted = Workload((Shape(900, 100),), acceptance="70%")
    assert named(levers(situation("llama-3.1-8b", drafted, **settings)), "preemption").effects


def test_contiguous_reservation_wastes_what_the_paper_says() -> None:
    seen = situation("llama-3.1-8b", Workload((Shape(161, 338), Shape(19, 58))), max_model_len=2048)
    lever = named(levers(seen), "contiguous")
    assert 0.6 < (lever.effect("reserved and unused") or 0) < 0.95
    assert lever.effect("requests with static reservation") == 4095 // 128


@given(st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any))
def test_apportioned_counts_sum_and_stay_within_one(amount: int, weights: list[int]) -> None:
    counts = apportion(amount, weights)
    assert sum(counts) == amount
    assert all(
        abs(count - Fraction(amount * weight, sum(weights))) < 1 for count, weight in zip(counts, weights)
    )


def test_without_a_pool_there_is_nothing_to_say() -> None:
    with pytest.raises(KvplanError, match="without a pool"):
        situation("llama-3.1-8b", Workload((Shape(100, 10),)), kv_cache_memory=None)


def test_every_lever_is_json() -> None:
    found = levers(
        situation("qwen3-next-80b-a3b-thinking", Workload((Shape(900, 100),))), tiers=((PCIE, GIB),)
    )
    assert len({lever.name for lever in found}) == len(found) == 9
    for lever in found:
        shown = dumped(lever)
        assert shown["summary"]
        for effect in shown["effects"]:
            assert effect["low"] <= effect["value"] <= effect["high"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-8b", {}),
        ("llama-3.1-8b", {"engine": "sglang"}),
        ("gemma-3-12b", {}),
        ("gpt-oss-20b", {}),
        ("falcon-h1-7b", {}),
        ("qwen3-8b", {"decode_context_parallel_size": 2, "tensor_parallel_size": 16}),
        (
            "deepseek-v3",
            {"num_speculative_tokens": 2, "speculative_method": "mtp", "kv_cache_memory": "40GiB"},
        ),
    ],
)
def test_bytes_counted_for_a_request_are_the_engines_at_every_length(
    model: str, options: dict[str, Any]
) -> None:
    """The lengths of a block are not all asked, and are right all the same."""
    seen = situation(model, Workload((Shape(3000, 1000),)), **options)
    lengths = [*range(1, 40), *range(3, 3990, 211), *range(3990, 4003), 7000]
    chance = random.Random(7)
    chance.shuffle(lengths)
    for tokens in lengths:
        assert seen.held_bytes(tokens) == seen.ask(tokens).per_gpu.reserved_bytes_per_request
