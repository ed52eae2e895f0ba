"""How many replicas a load needs: the least that keep it, also where a trace is too short for a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.plans.arrival import Arrival
from kvplan.report.layout import plain
from kvplan.report.simulate import TOO_SHORT, simulation_screen
from kvplan.report.simulate_html import rules_of, simulation_page
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome
from kvplan.simulation.results import SimulationResult
from kvplan.simulation.search import _grown, least_of
from tests.laws.sampling import sampled
from tests.simulation.outcomes import simulated


@given(st.integers(1, 300), st.integers(0, 300))
def test_the_least_is_that_of_a_full_scan(least: int, above: int) -> None:
    asked: list[int] = []

    def keeps(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert least_of(keeps, least + above) == least
    assert len(asked) <= 2 * (least + above).bit_length() + 1
    assert all(number > 0 for number in asked)


@pytest.mark.parametrize("times", [(0,), (0, 10**7), (0, 10**6, 2 * 10**6)])
def test_a_few_requests_at_once_need_one_replica(times: tuple[int, ...]) -> None:
    load = Load(tuple(Arrival(at, 500, 50) for at in times), 16, "few", "azure")
    found = simulated("llama-3.1-8b", gpu="h100-sxm-80gb", trace=load, replicas="auto", helps=False)
    assert isinstance(found, SimulationResult)
    assert found.needed is not None
    assert (found.needed.likely, found.needed.safe) == (1, 1)
    text = plain(simulation_screen(found, where="1 × h100", rules=rules_of(found)))
    assert "0.00 (" not in text
    if len(times) == 1:
        assert TOO_SHORT in text
        assert TOO_SHORT in simulation_page(found, where="1 × h100")


@given(least=st.integers(1, 1200), first=st.integers(1, 1024), most=st.integers(1, 1024))
def test_the_search_ends_at_the_least_or_at_the_most(least: int, first: int, most: int) -> None:
    found, tried = _grown(lambda number: number >= least, first, most)
    assert found == (least if least <= most else None)
    assert tried <= most
    assert found is not None or tried == most


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Requests one by one, or so many at each step; not spread, as a program may hand them over."""
    together = draw(st.sampled_from((1, 3, 10)))
    step = draw(st.integers(1, 3000)) * 10**6
    prompt, answer = draw(st.sampled_from(((400, 20), (4096, 100), (9000, 10))))
    return Load(tuple(Arrival(i // together * step, prompt, answer) for i in range(60)), 16, "drawn", "azure")


@pytest.mark.laws
@sampled(4, 60)
@given(load=loads(), ttft=st.sampled_from((0.1, 0.5, 2.0)), goodput=st.sampled_from((0.8, 0.9, 0.99)))
def test_auto_is_the_scan_over_replicas(load: Load, ttft: float, goodput: float) -> None:
    """By the likely times: the least number of replicas of which a run keeps the target, or none of all."""

    def asked(replicas: int | str) -> SimulationResult:
        found = simulated(
            "llama-3.1-8b", gpu="h100-sxm-80gb", trace=load, replicas=replicas, ttft=ttft, tpot=0.05,
            goodput=goodput, helps=False,
        )  # fmt: skip
        assert isinstance(found, SimulationResult)
        return found

    needed = asked("auto").needed
    assert needed is not None
    if needed.likely is None:
        assert not asked(len(load.arrivals)).keeps
        return
    assert asked(needed.likely).keeps
    assert needed.likely == 1 or not asked(needed.likely - 1).keeps


def test_requests_of_one_step_are_spread_over_it() -> None:
    times = [0, 0, 0, 3, 3, 6, 12, 12]
    load = Load(tuple(Arrival(at * 10**9, 10, 1) for at in times), 16, "steps", "mooncake").over_its_steps()
    assert [one.at_ns / 10**9 for one in load.arrivals] == [0, 1, 2, 3, 4.5, 6, 12, 13.5]
    assert "whole steps of 3 s" in load.notes[0]


@pytest.mark.parametrize("times", [(0, 0, 0), (0, 1, 2, 3), (0, 0, 1, 2, 3)])
def test_times_of_their_own_and_one_burst_stay(times: tuple[int, ...]) -> None:
    load = Load(tuple(Arrival(at, 10, 1) for at in times), 16, "own", "azure")
    assert load.over_its_steps() is load


@sampled(3, 60)
@given(
    st.integers(0, 10**6), st.sampled_from(["llama-3.1-8b", "gpt-oss-20b"]),
    st.sampled_from(["vllm", "sglang"]),
    st.sampled_from([40, 150, 600]), st.sampled_from([50, 300, 2000]), st.integers(1, 3),
)  # fmt: skip
def test_what_is_pruned_changes_no_answer(
    seed: int, model: str, engine: str, rate: int, ttft_ms: int, replicas: int
) -> None:
    """A run that ends once its answer is known, one that is asked for twice, a router that is given up."""
    from kvplan.api.simulating import deployment
    from kvplan.simulation.answer import OTHERS, best_router
    from kvplan.simulation.load.generate import asked_of, generated
    from kvplan.simulation.outcome import Target
    from kvplan.simulation.search import Question, on_replicas

    load = generated(
        asked_of(f"requests=120,rate={rate},turns=3,think=1,input=600,input_cv=1,output=20,seed={seed}")
    )
    served, _ = deployment(model, gpu="l40s", engine=engine)
    target = Target(ttft_ms * 10**6, None, 0.9)
    question = Question(served, load, "round-robin", target)

    def whole(number: int, router: str, case: tuple[str, str]) -> Outcome:
        clock, frontend = served.speeds.clock(case[1]), served.speeds.frontend(case[1])
        return on_replicas(served, load, number, router).run(served.engine(case[0]), clock, target, frontend)

    for case in served.cases:
        plain = whole(replicas, "round-robin", case)
        assert question.runs(case).keeps(replicas) == plain.keeps(target)
        assert figures(question.runs(case).whole(replicas)) == figures(plain)
    if replicas > 1:
        case = "likely", "likely"
        runs = {router: whole(replicas, router, case) for router in OTHERS}
        best = max(runs, key=lambda router: (runs[router].goodput, runs[router].hit_rate))
        found, run = best_router(question, replicas)
        assert (found, figures(run)) == (best, figures(runs[best]))


def figures(run: Outcome) -> tuple[object, ...]:
    return run.good, run.hits, run.preemptions, run.end_ns, run.steps, list(run.ttft), list(run.tpot)


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 40)), min_size=1, max_size=4, unique=True),
    st.integers(1, 400), st.sampled_from([None, 5, 9]), st.sampled_from([0.5, 0.9, 1.0]),
)  # fmt: skip
def test_requests_alone_are_those_of_their_lengths(
    lengths: list[tuple[int, int]], ttft_ms: int, tpot_ms: int | None, goodput: float
) -> None:
    from kvplan.api.simulating import deployment
    from kvplan.simulation.outcome import Target
    from kvplan.simulation.search import keeps_alone, kept

    served, _ = deployment("llama-3.1-8b", gpu="l40s", step_time="5ms+50us*tokens")
    load = Load(tuple(Arrival(0, *lengths[place % len(lengths)]) for place in range(13)))
    target = Target(ttft_ms * 10**6, None if tpot_ms is None else tpot_ms * 10**6, goodput)
    case = "likely", "likely"
    every = kept(served, load.apart(10_000), 1, "round-robin", target, case, alone=True)
    assert keeps_alone(served, load, target, case) == (every is not None)
