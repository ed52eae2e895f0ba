"""What a simulation answers, by its library."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.report.layout import plain
from kvplan.report.schema import answer_schema
from kvplan.report.simulate import answer_screen, simulation_screen
from kvplan.simulation.cache_only.hits import by_identity, hit_rates, most_hits
from kvplan.simulation.fleet.run import ROUTERS, Dealt, deal
from kvplan.simulation.load.chance import gaps
from kvplan.simulation.load.generate import Asked, asked_of, generated
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target, percentile, saturated
from kvplan.simulation.over_time import means
from kvplan.simulation.results import SimulationResult
from kvplan.simulation.served import FAST, LIKELY, SLOW
from kvplan.simulation.shown import shown as shown_as
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.replica import Trace
from kvplan.simulation.vllm.replica import simulate as serve
from kvplan.simulation.vllm.settings import Engine as Settings
from scripts.scheduler_scenarios import sample_rows
from tests.conftest import BESIDE
from tests.report.schemas import answer_errors
from tests.simulation.outcomes import simulated

LOAD = generated(
    Asked(requests=120, rate=2.0, input=600, output=40, prefix=320, turns=2, think=5.0, input_cv=0.7)
)
DEPLOYED: dict[str, Any] = {"gpu": "h100", "max_model_len": 8192}


def _answer(load: Load = LOAD, **asked: Any) -> SimulationResult:
    quick = {"replicas": 1, "search": False, "helps": False}
    found = simulated("llama-3.1-8b", trace=load, **{**DEPLOYED, **quick, **asked})
    assert isinstance(found, SimulationResult)
    return found


def test_the_whole_answer_is_the_schema_and_a_short_screen() -> None:
    found = _answer(replicas="auto", ttft=1, tpot=Fraction(1, 20), search=True, helps=True)
    data = shown_as(found).model_dump()
    assert answer_errors(answer_schema("simulate"), json.loads(json.dumps(data))) == []
    assert [run["speed"] for run in data["runs"]] == ["likely", "fast", "slow"] * 2
    assert found.needed is not None
    assert found.needed.likely == 1
    rows = plain(simulation_screen(found, where="1 × h100", rules="vLLM")).splitlines()
    assert len(rows) <= 26
    assert max(map(len, rows)) <= 80
    rates = found.sustainable
    assert rates is not None
    assert 0 < rates.low <= rates.value <= rates.high


def test_the_interval_encloses_the_likely_figure_and_hits_hardly_move() -> None:
    found = _answer()
    for share in (0.5, 0.9, 0.99):
        for figure in (found.ttft(share), found.tpot(share), found.latency(share)):
            assert figure.low <= figure.value <= figure.high
    hits = found.hit_rate
    assert 0 < hits.low <= hits.high <= found.most_hits + 1e-9
    assert hits.high - hits.low < 0.02


def test_the_pool_is_that_of_size() -> None:
    found = _answer(kv_cache_memory="20GiB")
    sized = kvplan.size("llama-3.1-8b", kv_cache_memory="20GiB", **DEPLOYED)
    assert sized.pool is not None
    assert dict(found.pool_blocks) == {"likely": sized.pool.num_blocks - 1}
    assert len(found.runs) == len((FAST, LIKELY, SLOW))


def test_a_step_time_of_ones_own_has_no_interval_of_speeds() -> None:
    found = _answer(step_time="4ms + 20us*tokens + 10ns*context")
    assert [case for case, _ in found.runs] == [("likely", "likely"), ("safe", "likely")]
    assert "4 ms" in found.step_time


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3))
def test_twice_the_replicas_never_serve_worse(replicas: int) -> None:
    target: dict[str, Any] = {"ttft": Fraction(1, 5), "tpot": Fraction(1, 40), "pool": "likely"}
    few, many = (_answer(replicas=count, rate=30, **target) for count in (replicas, 2 * replicas))
    assert many.goodput.value >= few.goodput.value - 0.02


def test_a_load_beyond_the_capacity_is_saturated() -> None:
    load = generated(Asked(requests=250, rate=100.0, input=2000, output=60))
    found = _answer(load, max_num_seqs=2)
    assert found.saturated_runs == 6
    assert not found.keeps
    assert not _answer(load, max_num_seqs=2, rate=0.2, pool="likely").saturated_runs


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"engine": "trtllm", "pipeline_parallel_size": 2}, "not-simulated"),
        ({"engine": "sglang", "pipeline_parallel_size": 2}, "not-simulated"),
        ({"engine": "vllm@0.30", "pipeline_parallel_size": 2}, "not-simulated"),
        ({"num_speculative_tokens": 2, "speculative_method": "ngram"}, "no-acceptance"),
        ({"gpu": None, "kv_cache_memory": "20GiB"}, "no-step-time"),
        ({"gpu": None, "step_time": "6ms"}, "no-pool"),
        ({"step_time": "6 minutes"}, "bad-step-time"),
        ({"step_time": "0ms"}, "bad-step-time"),
        ({"replicas": 0}, "bad-replicas"),
        ({"replicas": "many"}, "bad-replicas"),
        ({"router": "roundrobin"}, "bad-router"),
        ({"rate": 0}, "bad-rate"),
        ({"ttft": -1}, "bad-time"),
        ({"goodput": 2}, "bad-setting"),
        ({"engine": "vllm@0.19"}, "not-simulated"),
    ],
)
def test_what_is_refused_has_a_way_out(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        _answer(**asked)
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_where_no_request_is_taken_nothing_is_kept_up_with() -> None:
    with pytest.raises(KvplanError, match="max_model_len") as caught:
        _answer(max_model_len=20)
    assert caught.value.code == "all-refused"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"max_model_len": 1600}, "1,600 tokens or more (max_model_len)"),
        ({"engine": "sglang", "max_model_len": 1600}, "1,594 tokens or more (the context, less six)"),
        ({"engine": "trtllm", "max_num_batched_tokens": 1600}, "more than 1,600 tokens (max_num_tokens"),
        ({"engine": "trtllm", "max_model_len": 1600}, "1,600 tokens or more (max_seq_len)"),
    ],
)
def test_who_is_refused_is_said_and_in_no_figure(asked: dict[str, Any], why: str) -> None:
    also: dict[str, Any] = {"rate": 1, "pool": "likely"}
    found = _answer(LOAD, **{**also, **asked})
    assert 0 < found.likely.refused < found.likely.requests
    assert any(why in note for note in found.notes)
    assert found.hit_rate.high <= found.most_hits + 1e-9
    said = " ".join(plain(answer_screen(shown_as(found))).split())
    assert f"{found.likely.refused} of {found.likely.requests} requests are refused" in said


@given(st.integers(0, 10**6))
def test_the_most_hits_are_those_of_a_cache_without_limit(seed: int) -> None:
    chance = random.Random(seed)
    wide = chance.choice([16, 32, 48, 512])
    rows = sample_rows(chance, wide, chance.choice([6, 20]), chance.random() < 0.6)
    arrivals = tuple(Arrival(0, row["input"], row["output"], row["ids"]) for row in rows)
    engine = Settings(blocks=100_000, sequences=1, length=10**6)
    found = serve(Trace(arrivals, wide), engine, StepTime(1, 0, 0))
    load = Load(arrivals, wide)
    assert most_hits(load, engine) * load.prompt_tokens == pytest.approx(sum(found.columns["cached_tokens"]))


def test_a_pool_that_does_not_hold_one_request_is_refused() -> None:
    load = Load((Arrival(0, 6000, 10),))
    with pytest.raises(KvplanError, match="vLLM would not start") as caught:
        _answer(load, kv_cache_memory="20GiB", num_gpu_blocks_override=100, max_model_len=None)
    assert (caught.value.code, caught.value.exit_code) == ("no-pool", 1)


def test_a_request_that_never_fits_is_named() -> None:
    from kvplan.simulation.time.clock import StepTime
    from kvplan.simulation.vllm.settings import Engine

    with pytest.raises(KvplanError, match=r"mine.*request 0") as caught:
        Dealt(Load((Arrival(0, 6000, 10),), name="mine"), 1).run(Engine(100), StepTime(), Target())
    assert caught.value.code == "request-never-fits"


def test_a_trace_without_times_needs_a_rate() -> None:
    load = Load(tuple(Arrival(0, 100, 5) for _ in range(20)))
    with pytest.raises(KvplanError, match="when requests come"):
        _answer(load)
    found = _answer(load, rate=4)
    assert 1 < found.rate < 12


# --- parts ---


def test_percentiles_are_values() -> None:
    assert percentile([], 0.5) == 0
    assert [percentile(range(1, 101), share) for share in (0.01, 0.5, 0.99, 1)] == [1, 50, 99, 100]


def test_saturation_by_hand() -> None:
    span = 10**12
    assert not saturated([0] * 100, span)
    assert saturated([number * 10**9 for number in range(100)], span)
    assert not saturated([(99 - number) * 10**9 for number in range(100)], span)
    assert not saturated([5] * 9, span)


def test_means_of_a_series() -> None:
    assert means([(0, 4), (10, 0), (20, 0)], 4) == [4, 4, 0, 0]
    assert means([(0, 4)], 4) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=30),
    st.integers(1, 9),
    st.sampled_from(ROUTERS),
)
def test_every_request_is_dealt_once(chains: list[list[int]], pools: int, router: str) -> None:
    rows = [Arrival(place, 10, 1, ids) for place, ids in enumerate(chains)]
    dealt = deal(rows, pools, router)
    assert sorted(place for places in dealt for place in places) == list(range(len(rows)))
    assert all(places == sorted(places) for places in dealt)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=25), st.integers(1, 30))
def test_hit_rates_rise_with_the_cache(words: list[list[int]], size: int) -> None:
    made: dict[tuple[int, ...], int] = {}
    chains = [[made.setdefault(tuple(one[: at + 1]), len(made)) for at in range(len(one))] for one in words]
    assert by_identity(chains, size) <= by_identity(chains, size + 1)
    seen: set[int] = set()
    best = 0
    for chain in chains:
        best += len(seen.intersection(chain))
        seen.update(chain)
    total = sum(map(len, chains))
    assert by_identity(chains, len(made) + 1) == (best / total if total else 0.0)


def test_a_cache_without_limit_is_the_most() -> None:
    rates = hit_rates(LOAD, [400, 2000, None])
    assert [one.tokens for one in rates] == sorted(one.tokens for one in rates)
    assert rates[-1].tokens == pytest.approx(most_hits(LOAD, Settings(blocks=1)))


@pytest.mark.beside
def test_hit_rates_of_the_conversation_trace() -> None:
    """The marks that are published for it: of identities, and what vLLM finds of prompt tokens."""
    path = BESIDE / "traces" / "mooncake_fast25_conversation.jsonl"
    if not path.is_file():
        pytest.skip("the collection of traces is not beside the checkout")
    from kvplan.simulation.deployed import load_from

    rates = hit_rates(load_from(path), [1000, 10_000, 50_000, None])
    assert [f"{one.ids:.2%}" for one in rates] == ["4.45%", "21.16%", "35.46%", "36.64%"]
    assert [f"{one.tokens:.2%}" for one in rates] == ["4.55%", "21.65%", "36.15%", "37.34%"]


@pytest.mark.parametrize(("kind", "cv"), [("poisson", 1.0), ("gamma", 2.5), ("gamma", 0.4), ("weibull", 2.0)])
def test_generated_gaps_have_their_mean_and_spread(kind: str, cv: float) -> None:
    from random import Random

    gap = gaps(kind, cv, Random(3).random)
    found = [gap() for _ in range(20_000)]
    mean = sum(found) / len(found)
    spread = (sum((one - mean) ** 2 for one in found) / len(found)) ** 0.5
    assert mean == pytest.approx(1, rel=0.07)
    assert spread / mean == pytest.approx(cv, rel=0.12)


def test_generated_sessions_contain_what_was_said() -> None:
    words = "requests=40,turns=4,prefix=64,input=100,output=50,seed=9,input_cv=0.5"
    load = generated(asked_of(words))
    again = generated(asked_of(words)).arrivals
    assert [(one.at_ns, one.prompt, one.answer) for one in load.arrivals] == [
        (one.at_ns, one.prompt, one.answer) for one in again
    ]
    assert len(load.arrivals) == 40
    chains = [tuple(one.ids) for one in load.arrivals]
    longest = max(load.arrivals, key=lambda one: one.prompt)
    assert any(tuple(longest.ids[: len(chain)]) == chain for chain in chains if chain != tuple(longest.ids))
    for one in load.arrivals:
        assert len(one.ids) == (one.prompt + one.answer) // load.wide


@pytest.mark.parametrize(
    "words",
    ["requests=x", "reqests=4", "rate=0", "requests", "rate=nan", "arrivals=weekly", "servegen=x,turns=2"],
)
def test_words_that_say_no_load(words: str) -> None:
    with pytest.raises(KvplanError) as caught:
        asked_of(words)
    assert caught.value.code == "bad-load"


def test_runs_of_a_fleet_count_every_request() -> None:
    from kvplan.simulation.time.clock import StepTime
    from kvplan.simulation.vllm.settings import Engine

    run = Dealt(LOAD, 3).run(Engine(4000, length=8192), StepTime(), Target())
    assert len(run.ttft) == run.requests == len(LOAD.arrivals)
    assert run.peak <= run.blocks == 12_000
    _rising(run.ttft)


def _rising(values: Sequence[int]) -> None:
    assert list(values) == sorted(values)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_a_watched_run_is_the_run(seed: int) -> None:
    """Whatever the groups and their rules: the same columns, and no more blocks in use than there are."""
    from pathlib import Path

    from kvplan.simulation.fleet.watched import watched
    from kvplan.simulation.time.clock import StepTime
    from kvplan.simulation.vllm.replica import simulate
    from scripts.check_scheduler import trace_of, vllm_engine
    from scripts.scheduler_scenarios import scenario

    asked = scenario(seed)
    trace, engine, time = (
        trace_of(asked["trace"], Path()),
        vllm_engine(asked["engine"]),
        StepTime(**asked["step"]),
    )
    try:
        plain_run = simulate(trace, engine, time)
    except KvplanError:
        return
    found = watched(trace, engine, time)
    assert found is not None
    run, used = found
    assert run.columns == plain_run.columns
    assert run.end_ns == plain_run.end_ns
    assert all(0 <= count <= engine.blocks for _, count in used)
    assert [at for at, _ in used] == sorted(at for at, _ in used)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 30), st.integers(1, 400), st.integers(2, 200), st.integers(60, 400), st.booleans())
def test_a_closed_load_keeps_as_many_under_way(
    flight: int, prompt: int, answer: int, blocks: int, overlap: bool
) -> None:
    from kvplan.simulation.load.closed_loop import simulate_closed
    from kvplan.simulation.time.clock import StepTime
    from kvplan.simulation.vllm.settings import Engine

    rows = [Arrival(0, prompt, answer) for _ in range(flight + 60)]
    engine = Engine(blocks, batch=2048, sequences=64, length=4096, overlap=overlap)
    run = simulate_closed(rows, 1, engine, StepTime(), flight)
    finished, admitted = run.columns["finished_ns"], run.columns["admitted_ns"]
    assert min(finished) > 0
    ends = sorted(finished)
    for number in range(flight, len(rows)):  # nobody comes before so many have gone
        assert admitted[number] >= ends[number - flight]
    if flight * -(-(prompt + answer) // 16) <= blocks:
        assert run.preemptions == 0


def _client(folder: Any, number: int, rows: str, lengths: str) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text(rows)
    data = {"0": {"input_tokens": lengths, "output_tokens": "{7: 1.0}", "reason_ratio": "{}"}}
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(data))


def test_servegens_clients_send_what_they_say(tmp_path: Any) -> None:
    _client(
        tmp_path, 0, "0,0,0,,0,0\n600,2.0,1.5,Gamma,0.4,1\n1200,4.0,1.0,Weibull,1,1\n", "{50: 0.25, 60: 0.75}"
    )
    _client(tmp_path, 1, "600,1.0,1.0,Gamma,1,1\n1200,0,0,,0,0\n", "{900: 1.0}")
    load = generated(asked_of(f"servegen={tmp_path},start=600,seconds=600,seed=3"))
    counts = {size: sum(one.prompt == size for one in load.arrivals) for size in (50, 60, 900)}
    assert sum(counts.values()) == len(load.arrivals)
    assert counts[900] == pytest.approx(600, rel=0.2)
    assert counts[50] + counts[60] == pytest.approx(1200, rel=0.2)
    assert counts[60] / counts[50] == pytest.approx(3, rel=0.3)
    assert all(0 <= one.at_ns < 600 * 10**9 and one.answer == 7 for one in load.arrivals)
    twice = generated(asked_of(f"servegen={tmp_path},start=600,seconds=600,seed=3,rate=2"))
    assert len(twice.arrivals) == pytest.approx(2 * len(load.arrivals), rel=0.2)
    with pytest.raises(KvplanError, match="sends anything"):
        generated(asked_of(f"servegen={tmp_path},start=0,seconds=600"))


@pytest.mark.parametrize(
    "rows", ["600,x,1,Gamma,1,1", "600,1", "600,1,1,Cauchy,1,1", "600,-1,1,Gamma", "9,1,1,Gamma\n9,1,1,Gamma"]
)
def test_clients_that_are_none(rows: str, tmp_path: Any) -> None:
    _client(tmp_path, 0, rows + "\n", "{50: 1}")
    with pytest.raises(KvplanError, match="no window of a client"):
        generated(asked_of(f"servegen={tmp_path}"))


@pytest.mark.beside
def test_published_clients() -> None:
    path = BESIDE / "traces" / "servegen_deepseek_r1.tar.gz"
    if not path.is_file():
        pytest.skip("the collection of traces is not beside the checkout")
    load = generated(asked_of(f"servegen={path},start=43200,seconds=60"))
    assert len(load.arrivals) > 50


def _example(folder: Path, *changes: tuple[str, str]) -> Path:
    example = Path(__file__).parents[2] / "examples" / "plans" / "chat-llama-3.1-8b-trace-h100.yaml"
    text = example.read_text(encoding="utf-8").replace("../traces", str(example.parents[1] / "traces"))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return path


SPLIT = "fleet:\n  prefill_replicas: 1\n  decode_replicas: 2\n  link: 50GB/s\nrequire:"


def test_a_plan_of_two_kinds_of_replicas_counts_both(tmp_path: Path) -> None:
    (checked,) = kvplan.check(_example(tmp_path, ("replicas: 1\n", ""), ("require:", SPLIT))).plans
    assert not checked.findings
    (plan,) = kvplan.load_plans(tmp_path / "plan.yaml")
    assert (plan.replicas, plan.fleet.link) == (3, 50 * 10**9)
    with pytest.raises(KvplanError, match="1 to prefill and 2 to decode are 3, not 1"):
        kvplan.load_plans(_example(tmp_path, ("require:", SPLIT)))


def test_a_refused_request_keeps_no_target_and_check_says_so(tmp_path: Path) -> None:
    changes = (
        ("vllm@0.32", "trtllm"), ("serve:\n  max_model_len: 16384", "serve:\n  max_num_tokens: 1600"),
        ("hit_rate: 50%", "tpot: 1ms"),
    )  # fmt: skip
    (checked,) = kvplan.check(_example(tmp_path, *changes)).plans
    found = {finding.code: finding.message for finding in checked.findings}
    assert "294 of 400 requests are refused: prompts of more than" in found["requests-refused"]
    assert found["goodput-too-low"].startswith("26.5 % of requests")
    assert found["tpot-too-long"].endswith("ms, and 1 ms are allowed")


def test_a_plan_is_held_against_its_trace(tmp_path: Any) -> None:
    """check and simulate say the same of what a plan requires, and more replicas mend what they can."""
    path = _example(
        tmp_path, ("hit_rate: 50%", "hit_rate: 90%"), ("goodput: 95%", "goodput: 99%"),
        ("  ttft: 1s", "  requests_per_second: 30\n  ttft: 600ms"), ("tpot: 50ms", "tpot: 60ms"),
    )  # fmt: skip
    (checked,) = kvplan.check(path).plans
    found = {finding.code: finding for finding in checked.findings}
    assert {"goodput-too-low", "hit-rate-too-low"} <= set(found)
    assert found["goodput-too-low"].help[0].startswith("replicas: ")
    assert not found["hit-rate-too-low"].help
    (plan,) = kvplan.load_plans(path)
    answer = simulated(plan, search=False, helps=False)
    assert set(answer.missed) == {found[code].message for code in ("goodput-too-low", "hit-rate-too-low")}
    mended = simulated(
        plan, replicas=int(found["goodput-too-low"].help[0].split()[-1]), search=False, helps=False
    )
    assert mended.goodput.value >= 0.99
