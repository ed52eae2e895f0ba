"""Data-parallel ranks: one is no rank, dense ones are replicas, those with experts wait for each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_gpu, load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.engines.scheduling import BY_COUNTS, IN_TURN
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.planning.speed import speed_profile
from kvplan.planning.speed.profile import Deployment
from kvplan.plans.arrival import Arrival
from kvplan.record import replace
from kvplan.simulation.fleet.closed import ClosedDealt
from kvplan.simulation.fleet.disaggregated import Disaggregated, Split
from kvplan.simulation.fleet.lockstep import Lockstep, RankClock
from kvplan.simulation.fleet.ranked import DealtOverRanks
from kvplan.simulation.fleet.ranks import RankedReplica, Ranks, _ByCounts
from kvplan.simulation.fleet.run import Dealt
from kvplan.simulation.fleet.together import Joined
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target
from kvplan.simulation.schedulers import simulate_any, viewed
from kvplan.simulation.served import serve
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.results import COLUMNS
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.time.timeline import BEYOND, Trace
from kvplan.simulation.vllm.releases import Rules
from kvplan.simulation.vllm.settings import Engine
from kvplan.simulation.vllm.step import Step
from scripts.check_scheduler import engine_of, trace_of
from scripts.scheduler_scenarios import scenario
from scripts.sglang_scenarios import scenario as sglang_scenario
from tests.simulation.outcomes import simulated

NOWHERE, TRACE = Path(), "examples/traces/chat-sessions.jsonl.gz"
TIME = StepTime(1_000_000, 1000, 7)


def _load(count: int, seed: int, gap: int = 3_000_000) -> Load:
    chance, at, rows = random.Random(seed), 0, []
    for _ in range(count):
        at += chance.randrange(gap)
        rows.append(Arrival(at, chance.randint(1, 400), chance.randint(1, 60), ()))
    return Load(tuple(rows))


def _engine(**more: Any) -> Engine:
    return Engine(**{"blocks": 300, "batch": 256, "sequences": 16, "release": "0.32", **more})


@pytest.mark.parametrize("draw", [scenario, sglang_scenario])
@pytest.mark.parametrize("seed", range(30))
def test_one_rank_that_steps_with_itself_is_a_replica(draw: Callable[[int], Any], seed: int) -> None:
    """Schedulers of both kinds, overlapping or not, with every column of every request."""
    said = draw(seed)
    engine, trace, time = (
        engine_of(said["engine"]),
        trace_of(said["trace"], NOWHERE),
        StepTime(**said["step"]),
    )
    try:
        alone = simulate_any(trace, engine, time)
    except KvplanError:
        return
    rank = viewed(Joined, engine)(trace, engine, RankClock())
    for place in range(len(trace.arrivals)):
        rank.give(place)
    Lockstep([rank], time, engine.depth).advance()
    assert {name: rank.answer.columns[name] for name in COLUMNS} == alone.columns


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_dense_ranks_in_turn_are_replicas_in_turn(seed: int, overlap: bool) -> None:
    load, engine = _load(120, seed), _engine(overlap=overlap)
    ranks = DealtOverRanks(load, 1, Ranks(3, dealt=IN_TURN), "round-robin").run(engine, TIME, Target())
    replicas = Dealt(load, 3, "round-robin").run(engine, TIME, Target())
    assert (ranks.ttft, ranks.tpot, ranks.hits, ranks.end_ns) == (
        replicas.ttft, replicas.tpot, replicas.hits, replicas.end_ns,
    )  # fmt: skip


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("dealt", [IN_TURN, BY_COUNTS])
@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "session", "llm-d"])
def test_every_request_is_served_once(router: str, dealt: str, lockstep: bool) -> None:
    load, engine = _load(200, 5), _engine(overlap=True, length=380)
    made = DealtOverRanks(load, 2, Ranks(3, lockstep, dealt), router).run(engine, TIME, Target())
    refused = sum(row.prompt >= 380 for row in load.arrivals)
    assert made.refused == refused > 0
    assert (made.requests, len(made.ttft)) == (200, 200 - refused)
    assert made.answer_tokens == sum(
        engine.answered(row.prompt, row.answer) for row in load.arrivals if row.prompt < 380
    )


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_wait_for_each_other_are_never_sooner(seed: int) -> None:
    load, engine = _load(150, seed), _engine()
    alone, together = (
        DealtOverRanks(load, 1, Ranks(4, lockstep, IN_TURN), "round-robin").run(engine, TIME, Target())
        for lockstep in (False, True)
    )
    assert together.end_ns >= alone.end_ns
    assert sum(together.latency) > sum(alone.latency)


def test_all_steps_of_a_lockstep_begin_and_end_together() -> None:
    """Requests that come to different ranks in one step get their tokens at the same times."""
    rows = [Arrival(0, 40, 6, ()), Arrival(0, 4, 6, ()), Arrival(0, 90, 6, ())]
    replica = RankedReplica(Trace(rows, 1), _engine(), TIME, Ranks(3, True, IN_TURN))
    for place in range(3):
        replica.give(place)
    replica.advance(BEYOND)
    columns = [rank.answer.columns for rank in replica.ranks]
    assert {column["first_token_ns"][0] for column in columns} == {1_000_000 + 90 * 1000 + 90 * 7}
    assert len({column["finished_ns"][0] for column in columns}) == 1


def test_a_closed_load_keeps_its_number_on_ranks_that_step_together() -> None:
    load, engine = _load(60, 1), _engine()
    alone = ClosedDealt(load, 3, 12, Ranks(3, False)).run(engine, TIME, Target())
    together = ClosedDealt(load, 3, 12, Ranks(3, True)).run(engine, TIME, Target())
    assert len(together.ttft) == len(alone.ttft) == 60
    assert together.answer_tokens == alone.answer_tokens
    assert together.end_ns >= alone.end_ns


class _Told:
    """A rank as a front end is told of it."""

    def __init__(self, waiting: int, running: int, used: float) -> None:
        self.queued, self.at_work, self.limits = waiting, waiting + running, self
        self.blocks, self.free, self.left = 100, round(100 * (1 - used)), ()


def _first(release: str, *ranks: _Told, lockstep: bool = True) -> int:
    deals = _ByCounts(ranks, Rules.of(release), lockstep)  # type: ignore[arg-type]
    deals.tell()
    return deals.pick(0, 0)


def test_front_ends_weigh_as_their_release_does() -> None:
    """Up to 0.26 a waiting request counts four times; since 0.27 the fuller the cache the more."""
    assert _first("0.26", _Told(2, 0, 0.9), _Told(0, 7, 0.9)) == 1
    assert _first("0.27", _Told(2, 0, 0.3), _Told(0, 7, 0.3)) == 0
    assert _first("0.27", _Told(2, 0, 1.0), _Told(0, 7, 1.0)) == 1
    busy = _Told(0, 7, 0.3), _Told(0, 1, 0.3)
    assert _first("0.26", *busy, lockstep=False) == 0  # dense ranks tell nothing before 0.27
    assert _first("0.27", *busy, lockstep=False) == 1


def test_between_two_tellings_a_burst_is_spread() -> None:
    ranks = [_Told(0, 0, 0.0) for _ in range(4)]
    for release in ("0.24", "0.25", "0.27"):
        deals = _ByCounts(ranks, Rules.of(release), True)  # type: ignore[arg-type]
        chosen = [deals.pick(place, 0) for place in range(40)]
        assert [chosen.count(rank) for rank in range(4)] == [10] * 4


@cache
def _clock(ranks: int) -> SpeedClock:
    model, gpu = load_model("qwen3-30b-a3b"), load_gpu("h100")
    inventory, per_token, table = speed_inputs(model)
    deployment = Deployment(data_parallel_size=ranks, enable_expert_parallel=True)
    return SpeedClock(speed_profile(model, gpu, inventory, per_token, deployment, table))


def _answers(count: int, mean: int = 900) -> Step:
    step = Step()
    step.count = step.tokens = count
    step.context = mean * count
    return step


class _Prompt:
    prompt = computed = 2000


def _prompts() -> Step:
    step = Step()
    step.count, step.tokens, step.context = 1, 2000, 2000
    step.parts = [(_Prompt(), 2000)]  # type: ignore[list-item]
    return step


def test_equal_ranks_take_what_one_says_of_all() -> None:
    clock = _clock(4)
    for step in (_answers(1), _answers(48), _prompts()):
        assert clock.together([step] * 4) == pytest.approx(clock.lasts(step), abs=2)


def test_a_rank_with_fewer_tokens_saves_experts_alone() -> None:
    """All as busy as the busiest is the most, the busiest with nobody beside it the least."""
    clock = _clock(4)
    for most, few in ((_answers(64), _answers(3)), (_prompts(), _answers(3))):
        alone, mixed = clock.together([most]), clock.together([most, few, few, few])
        assert alone < mixed < clock.together([most] * 4)


def test_simulate_says_how_ranks_are_served() -> None:
    made = simulated(
        "qwen3-30b-a3b", trace=TRACE, gpu="h100", data_parallel_size=2, enable_expert_parallel=True,
        replicas=1, first=60,
    )  # fmt: skip
    assert any("2 data-parallel ranks: they step together" in note for note in made.notes)
    dense = simulated("llama-3.1-8b", trace=TRACE, gpu="h100", data_parallel_size=2, replicas=1, first=60)
    assert any("2 data-parallel ranks: the server deals" in note for note in dense.notes)


def test_a_pipeline_of_ranks_that_share_experts_is_refused() -> None:
    with pytest.raises(KvplanError, match="share experts"):
        simulated("qwen3-30b-a3b", trace=TRACE, gpu="h100", data_parallel_size=2, pipeline_parallel_size=2)


def test_more_ranks_than_can_be_served_are_refused() -> None:
    with pytest.raises(KvplanError, match="data-parallel ranks"):
        DealtOverRanks(_load(1, 1), 1000, Ranks(8), "round-robin")


def test_kept_is_what_the_whole_run_says() -> None:
    load, target = _load(150, 3, gap=400_000), Target(ttft_ns=40_000_000, tpot_ns=3_000_000, goodput=0.9)
    for lockstep in (False, True):
        dealt = DealtOverRanks(load, 1, Ranks(2, lockstep, BY_COUNTS), "round-robin")
        for blocks in (300, 3000):
            for sequences in (4, 64):
                engine = replace(_engine(), blocks=blocks, sequences=sequences)
                whole = dealt.run(engine, TIME, target)
                assert (dealt.kept(engine, TIME, target) is not None) == whole.keeps(target)


def test_sglangs_attention_groups_are_ranks_that_step_together() -> None:
    """Each group has its own pool, its part of max_running_requests and of the prompt's chunk."""
    model = load_model("qwen3-30b-a3b")
    own = {"max_num_seqs": 64, "attn_dp_size": 4}
    settings = make_settings(gpu="h100", tensor_parallel_size=8, **own)
    served = serve(model, choose("sglang"), settings, pool="likely")
    assert served.ranks == Ranks(4, True, IN_TURN)
    assert served.gpus == 8
    plain = serve(
        model, choose("sglang"),
        make_settings(gpu="h100", tensor_parallel_size=8, max_num_seqs=64),
        pool="likely",
    )  # fmt: skip
    engine, whole = served.engine("likely"), plain.engine("likely")
    assert isinstance(engine, SglangEngine)
    assert isinstance(whole, SglangEngine)
    assert (engine.sequences, whole.sequences) == (16, 64)
    assert (engine.chunk or 0) * 4 == whole.chunk
    assert engine.conservativeness == pytest.approx(0.3 * whole.conservativeness)
    clock = served.speeds.clock("likely")
    assert isinstance(clock, SpeedClock)
    assert (clock.profile.deployment.tensor_parallel_size, clock.profile.deployment.data_parallel_size) == (
        2, 4,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("overlap", [False, True])
def test_disaggregated_ranks_that_step_with_themselves_are_replicas(seed: int, overlap: bool) -> None:
    load, engine = _load(60, seed), _engine(overlap=overlap, blocks=120)
    plain = Disaggregated(load, Split(2, 2, 1000), "round-robin").run(engine, TIME, Target())
    alone = Disaggregated(load, Split(2, 2, 1000), "round-robin", Ranks(1, True))
    made = alone.run(engine, TIME, Target())
    assert (made.ttft, made.tpot, made.latency, made.transfers) == (
        plain.ttft, plain.tpot, plain.latency, plain.transfers,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_disaggregated_dense_ranks_are_more_replicas(seed: int) -> None:
    load, engine = _load(80, seed), _engine(blocks=120)
    replicas = Disaggregated(load, Split(4, 2, 1000), "round-robin").run(engine, TIME, Target())
    ranks = Disaggregated(load, Split(2, 1, 1000), "round-robin", Ranks(2)).run(engine, TIME, Target())
    assert (ranks.ttft, ranks.tpot, ranks.blocks) == (replicas.ttft, replicas.tpot, replicas.blocks)


@pytest.mark.parametrize("seed", range(8))
def test_disaggregated_ranks_that_wait_for_each_other_serve_everything(seed: int) -> None:
    load, engine = _load(80, seed), _engine(blocks=120, overlap=seed % 2 == 0)
    alone, together = (
        Disaggregated(load, Split(1, 1, 1000), "round-robin", Ranks(3, lockstep)).run(engine, TIME, Target())
        for lockstep in (False, True)
    )
    assert len(together.ttft) == 80
    assert together.transfers == alone.transfers == sum(row.prompt > 1 for row in load.arrivals)
    assert sum(together.latency) > sum(alone.latency)
