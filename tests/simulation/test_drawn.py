"""Arrivals that are drawn for a rate, and runs that end once they are hopeless."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvplan.api import load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.plans.workload import Shape
from kvplan.simulation.load.drawn import EACH, LEAST, SIDE, Drawn
from kvplan.simulation.load.load import drawn_load
from kvplan.simulation.outcome import Target, late_share
from kvplan.simulation.search import kept, on_replicas
from kvplan.simulation.served import Served, serve

SHAPES = (Shape(2000, 100, 3), Shape(500, 300))
CASE = ("likely", "likely")


@pytest.fixture(scope="module")
def served() -> Served:
    settings = make_settings(gpu="h100", max_model_len=4096, max_num_seqs=64)
    return serve(load_model("llama-3.1-8b"), choose("vllm"), settings)


def test_another_rate_stretches_the_same_requests() -> None:
    slow, fast = (drawn_load(Drawn(SHAPES, rate)) for rate in (2.0, 4.0))
    assert len(slow.arrivals) == LEAST
    assert [one.prompt for one in slow.arrivals] == [one.prompt for one in fast.arrivals]
    assert all(abs(a.at_ns - 2 * b.at_ns) <= 2 for a, b in zip(slow.arrivals, fast.arrivals, strict=True))
    assert fast.at_rate(Fraction(2)).arrivals[-1].at_ns == slow.arrivals[-1].at_ns


def test_some_engines_have_what_they_would_have_beside_all() -> None:
    """Of 20 engines the first eight get the very requests that dealing to 20 in turn gives them."""
    drawn = Drawn(SHAPES, 10.0, 2.5)
    some, every = drawn_load(drawn, 20), drawn_load(drawn, 20, dealt=False)
    assert (some.engines, len(some.arrivals)) == (SIDE, SIDE * EACH)
    first = [one for place, one in enumerate(every.arrivals) if place % 20 < SIDE]
    assert [(one.at_ns, one.prompt) for one in some.arrivals] == [
        (one.at_ns, one.prompt) for one in first[: len(some.arrivals)]
    ]


@pytest.mark.parametrize("rate", [5.0, 20.0, 60.0])
@pytest.mark.parametrize("ttft_ms", [60, 150, 1000])
def test_a_run_that_ends_early_would_not_have_kept_the_target(
    served: Served, rate: float, ttft_ms: int
) -> None:
    load, target = drawn_load(Drawn(SHAPES, rate)), Target(ttft_ms * 10**6, 15 * 10**6)
    for replicas in (1, 2):
        whole = on_replicas(served, load, replicas, "round-robin").run(
            served.engine("likely"), served.speeds.clock("likely"), target, served.speeds.frontend("likely")
        )
        found = kept(served, load, replicas, "round-robin", target, CASE)
        assert (found is not None) == whole.keeps(target)
        if found is not None:
            assert (found.good, found.ttft, found.tpot) == (whole.good, whole.ttft, whole.tpot)


def test_a_share_is_exact() -> None:
    assert late_share([1] * 99 + [5], 4, 100) == Fraction(1, 100)
    assert late_share([], 4, 0) == 0
