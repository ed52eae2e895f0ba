"""The step time of a speed profile: taken together and one by one steps last the same."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api import load_model, make_settings
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.planning.speed import deployment_of, speed_profile, step_seconds
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from kvplan.simulation.vllm.step import Step

MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite")


@cache
def _profile(name: str) -> SpeedProfile:
    model, settings = load_model(name), make_settings(gpu="h100")
    inventory, per_token, table = speed_inputs(model)
    assert settings.gpu is not None
    return speed_profile(model, settings.gpu, inventory, per_token, deployment_of(settings, "vllm"), table)


def _plain(count: int, context: int) -> Step:
    step = Step()
    step.count = step.tokens = count
    step.context = context
    return step


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(MODELS), st.integers(1, 300), st.integers(1, 70_000), st.integers(0, 299),
    st.sampled_from([1.0, 0.5, 1.9]),
)  # fmt: skip
def test_a_line_says_what_single_steps_say(name: str, count: int, mean: int, more: int, scale: float) -> None:
    clock, context = SpeedClock(_profile(name), scale, scale), count * mean + more % count
    first, each, most = clock.line(count, context)
    assert most >= 1
    for number in {1, 2, most // 2, most}:
        if 1 <= number <= most:
            assert clock.lasts(_plain(count, context + count * number)) == first + number * each
    if most < 1 << 60:  # beyond its end the line may bend, and never jumps
        after = clock.lasts(_plain(count, context + count * (most + 1)))
        assert abs(after - (first + (most + 1) * each)) <= max(2 * count, after // 50)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 300), st.integers(1, 60_000))
def test_it_is_the_roofline(name: str, count: int, mean: int) -> None:
    profile = _profile(name)
    exact = step_seconds(profile, count, ((mean, 1.0),)) * 1e9
    assert SpeedClock(profile).lasts(_plain(count, count * mean)) == pytest.approx(exact, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 3000), st.integers(1, 400)), min_size=1, max_size=12
    ),
    st.integers(300, 2000), st.booleans(),
)  # fmt: skip
def test_jumps_equal_single_steps(
    name: str, rows: list[tuple[int, int, int]], blocks: int, overlap: bool
) -> None:
    arrivals, at = [], 0
    for gap, prompt, answer in rows:
        at += gap * 10**6
        arrivals.append(Arrival(at, prompt, answer))
    groups = (Group("window", 16, 128), Group()) if name == "gpt-oss-20b" else (Group(),)
    engine = Engine(blocks, groups, batch=1024, sequences=8, length=4000, overlap=overlap, retention=0)
    single, jumped = (_served(engine, arrivals, name, jump) for jump in (False, True))
    assert (single is None) == (jumped is None)
    if single is not None and jumped is not None:
        assert single.rows == jumped.rows
        assert single.columns == jumped.columns


def _served(engine: Engine, arrivals: list[Arrival], name: str, jump: bool) -> Answer | None:
    try:
        return simulate(Trace(arrivals, 1), engine, SpeedClock(_profile(name)), jump=jump, rows=True)
    except KvplanError:
        return None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS), st.integers(0, 40), st.integers(1, 6), st.integers(0, 40), st.integers(1, 6),
    st.integers(50, 2000),
)  # fmt: skip
def test_a_step_lasts_as_long_whatever_was_asked_before(
    name: str, count: int, prompts: int, others: int, their_prompts: int, tokens: int
) -> None:
    """Steps of as many tokens differ by how many of their requests begin."""

    def lasts(clock: SpeedClock, answers: int, chunks: int) -> float:
        return clock.mixed(answers, answers * 300, tokens, [(tokens // chunks, 0)] * chunks)

    fresh, used = SpeedClock(_profile(name)), SpeedClock(_profile(name))
    lasts(used, others, their_prompts)
    lasts(used, count + prompts - 1, 1)  # as many requests, of which fewer begin
    assert lasts(used, count, prompts) == lasts(fresh, count, prompts)
