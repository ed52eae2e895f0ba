"""Plans for requests at a rate: plan, check and simulate agree, and less to do takes no more GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import make_settings
from kvplan.api.estimates import speed_of
from kvplan.api.planning.drafted import with_drafts
from kvplan.engines.base import parse_version
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.planning.ask import Running, Speed, SpeedOf
from kvplan.planning.results import PlanResult
from kvplan.plans.findings import Severity
from kvplan.plans.workload import Shape, Workload
from kvplan.report.plan_file import plan_text
from kvplan.simulation.load import drawn
from tests.laws.sampling import WHOLE, sampled
from tests.simulation.outcomes import simulated


@pytest.fixture(autouse=True, scope="module")
def short_loads() -> Iterator[None]:
    """A fifth of the requests that are drawn otherwise, for every command alike: what these laws say holds of
    any number, and hundreds of questions are asked of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn, "LEAST", drawn.LEAST // 5)
        patch.setattr(drawn, "EACH", drawn.EACH // 5)
        yield


MODELS = ("llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b", "gpt-oss-20b")


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """Rates, limits and burstiness; prompts of one length or three; under vLLM drafts, more or less right."""
    prompts = draw(st.lists(st.integers(50, 6000), min_size=1, max_size=3, unique=True))
    answer = draw(st.integers(1, 800))
    asked: dict[str, Any] = {
        "workload": Workload(tuple(Shape(prompt, answer) for prompt in sorted(prompts))),
        "gpu": draw(st.sampled_from(("h100", "l40s", "h200"))),
        "engine": draw(st.sampled_from(("vllm", "vllm", "vllm", "sglang"))),
        "arrival": draw(st.sampled_from((0.5, 2, 5, 20))),
        "burstiness": draw(st.sampled_from((1, 1, 2.5))),
        "pool": draw(st.sampled_from(("likely", "likely", "safe"))),
        "top": 1,
    }
    for name, limits in (("ttft", (0.3, 1.0, 3.0)), ("tpot", (0.02, 0.05, 0.15))):
        limit = draw(st.sampled_from((*limits, None)))
        if limit is not None:
            asked[name] = limit
    if not asked.keys() & {"ttft", "tpot"}:
        asked["ttft"] = 1.0
    if asked["engine"] == "vllm" and draw(st.booleans()):
        right = draw(st.sampled_from(("0%", "70%", 2.4, "0.8,0.6,0.4")))
        asked |= {"speculative_config": "ngram:3", "acceptance": right}
    return asked


def _planned(model: str, asked: dict[str, Any]) -> PlanResult:
    return kvplan.plan(model, **asked)


@pytest.mark.laws
@sampled(1, 200)
@given(model=st.sampled_from(MODELS), asked=questions())
def test_what_a_plan_writes_simulate_keeps_and_check_passes(
    model: str, asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = _planned(model, asked)
    if found.plan is None:
        return
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(plan_text(found.plan), encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    assert [one.message for one in checked.findings if one.severity is Severity.ERROR] == []
    if found.simulated is None:
        return
    (plan,) = kvplan.load_plans(path)
    answer = simulated(plan, search=False, helps=False)
    assert not answer.missed
    assert answer.safely if plan.require.pool == "safe" else answer.keeps
    if plan.require.pool == "likely":
        assert answer.goodput.value == found.simulated.goodput[1]
        assert answer.likely.requests == found.simulated.requests


DRAFTED: dict[str, Any] = {
    "gpu": "h100", "tokens": 4096, "arrival": 2, "tpot": "0.1", "top": 1, "speculative_config": "ngram:3",
}  # fmt: skip
_SHAPE = Shape(3000, 400)


@pytest.mark.parametrize(("name", "drafts"), [("llama-3.1-8b", "ngram:3"), ("glm-4.6-fp8", "mtp:1")])
def test_the_estimate_before_a_simulation_counts_the_tokens_of_a_step(name: str, drafts: str) -> None:
    """It never falls as requests rise, nor rises with what is right, and saves no more than every token."""
    model, choice = kvplan.load_model(name), choose("vllm")
    settings = make_settings(gpu="h200", speculative_config=drafts, tensor_parallel_size=4)
    most = settings.num_speculative_tokens + 1
    plain = speed_of("vllm", parse_version(choice.version))
    assert plain is not None

    def tpot(speed: SpeedOf, requests: int) -> float:
        assert settings.gpu is not None
        found = speed(model, settings.gpu, settings, Running(requests, _SHAPE))
        assert isinstance(found, Speed)
        return found.tpot[1]

    for requests in (1, 16, 200):
        own = tpot(plain, requests)
        times = [tpot(with_drafts(plain, choice, right), requests) for right in ("0%", "70%", "100%")]
        assert own <= times[0]
        assert times == sorted(times, reverse=True)
        assert times[2] * most >= own * (1 - 1e-9)
    counts = [tpot(with_drafts(plain, choice, "70%"), requests) for requests in (1, 2, 8, 32, 128, 256)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"requests": 4}, "counts where arrivals are simulated"), ({"acceptance": "2.4,1"}, "more than all"),
     ({"speculative_config": None}, "none are drafted"), ({"acceptance": "0.9,0.8"}, "3 tokens are drafted")],
)  # fmt: skip
def test_an_acceptance_of_nothing_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said):
        kvplan.plan("llama-3.1-8b", **{"acceptance": "70%"} | DRAFTED | change)


def _gpus(model: str, asked: dict[str, Any]) -> float:
    found = _planned(model, asked)
    return found.gpus if found.plan is not None else float("inf")


@pytest.mark.laws
@sampled(1, 100)
@given(
    model=st.sampled_from(MODELS), asked=questions(),
    looser=st.sampled_from((Fraction(6, 5), Fraction(2), Fraction(5))),
)  # fmt: skip
def test_a_looser_limit_never_takes_more_gpus(model: str, asked: dict[str, Any], looser: Fraction) -> None:
    before = _gpus(model, asked)
    for name in ("ttft", "tpot"):
        if name in asked:
            assert _gpus(model, asked | {name: Fraction(str(asked[name])) * looser}) <= before


@pytest.mark.laws
@sampled(1, 100)
@given(
    model=st.sampled_from(MODELS), asked=questions(),
    lower=st.sampled_from((Fraction(9, 10), Fraction(1, 2), Fraction(1, 10))),
)  # fmt: skip
def test_a_lower_rate_never_takes_more_gpus(model: str, asked: dict[str, Any], lower: Fraction) -> None:
    rate = Fraction(str(asked["arrival"])) * lower
    assert _gpus(model, asked | {"arrival": rate}) <= _gpus(model, asked)


@pytest.mark.laws
@sampled(1, 30)
@given(model=st.sampled_from(MODELS), asked=questions())
def test_one_replica_less_does_not_keep_them(model: str, asked: dict[str, Any]) -> None:
    """The number that is written is the least of its layout, found by runs and not by the estimate."""
    found = _planned(model, asked)
    if found.plan is None or found.simulated is None or found.plan.replicas < 2:
        return
    fewer = simulated(
        found.plan, replicas=found.plan.replicas - 1, search=False, helps=False, pool=found.plan.require.pool
    )
    runs = dict(fewer.runs)
    case = ("safe", "slow") if found.plan.require.pool == "safe" else ("likely", "likely")
    assert not runs[case].keeps(fewer.target)


@pytest.mark.laws
@sampled(1, 40)
@given(model=st.sampled_from(MODELS), asked=questions())
def test_the_best_is_the_same_however_few_are_shown(model: str, asked: dict[str, Any]) -> None:
    assert _gpus(model, asked) == _gpus(model, asked | {"top": 3})


TRACE = Path(__file__).parents[3] / "shared" / "traces" / "azure_llm_2023_code.csv"


@pytest.mark.beside
def test_the_azure_trace_of_code_has_one_answer(tmp_path: Path) -> None:
    """A few GPUs by the mean load, dozens by its bursts: the three commands have one answer."""
    if not TRACE.is_file():
        pytest.skip("the collection of traces is not beside the checkout")
    from kvplan.files.traces.lengths import read_lengths

    trace = tmp_path / TRACE.name
    rows = TRACE.read_text(encoding="utf-8").splitlines(keepends=True)
    trace.write_text("".join(rows if WHOLE else rows[:3001]), encoding="utf-8")
    shapes = read_lengths(trace, name=str(trace)).shapes()
    found = kvplan.plan(
        "llama-3.1-70b", workload=Workload(shapes, trace=str(trace)), trace=trace, arrival="2.57", ttft=1,
        tpot="0.1", gpu="h100", top=1,
    )  # fmt: skip
    assert found.plan is not None
    assert found.simulated is not None
    assert found.gpus > 13
    path = tmp_path / "az.yaml"
    path.write_text(plan_text(found.plan), encoding="utf-8")
    (checked,) = kvplan.check(path).plans
    assert [one.message for one in checked.findings if one.severity is Severity.ERROR] == []
    (plan,) = kvplan.load_plans(path)
    answer = simulated(plan, search=False, helps=False)
    assert answer.keeps
    assert answer.goodput.value == found.simulated.goodput[1]
