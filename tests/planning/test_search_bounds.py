"""The bisections and limits of the search, against the scan that they replace."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kvplan.engines.budget.law import Rejection
from kvplan.planning.ask import REQUESTS, Ask, Demand, Running, Speed
from kvplan.planning.search import _Search, search
from kvplan.planning.space import classes
from kvplan.plans.workload import Shape
from kvplan.settings import Settings
from tests.laws.sampling import for_each
from tests.planning.asks import a_gpu, an_ask, priced


def _paced_ask(**changes: Any) -> Ask:
    """TPOT is a millisecond for each sequence that runs, TTFT ten."""

    def speed(model: object, gpu: object, settings: object, running: Running) -> Speed:
        each = running.requests
        return Speed((0, each * 0.01, 1e9), (0, each * 0.001, 1e9), (0, 1000.0, 1e9))

    return an_ask("llama-3.1-8b", a_gpu(80), speed=speed, quality="lossless", tp=(1,), pp=(1,), **changes)


def _paced(ask: Ask, most: int) -> int | Rejection:
    one = next(one for one, why in classes(ask) if why is None)
    return _Search(ask, 1, by_kind=False)._paced(one, ask.offers[0], 4096, most, 16)


@for_each(("limit", "most"), [(limit, most) for limit in range(1, 12) for most in range(1, 12)])
def test_the_most_that_keep_a_time_are_found(limit: int, most: int) -> None:
    """One that takes exactly the time keeps it."""
    assert _paced(_paced_ask(tpot=limit * 0.001), most) == min(limit, most)
    assert _paced(_paced_ask(ttft=limit * 0.01), most) == min(limit, most)


def test_the_stricter_of_two_times_counts() -> None:
    assert _paced(_paced_ask(tpot=0.009, ttft=0.04), 100) == 4
    assert _paced(_paced_ask(tpot=0.003, ttft=0.04), 100) == 3


def test_a_time_that_one_request_misses_is_said_with_both_figures() -> None:
    why = _paced(_paced_ask(tpot=0.0015, samples=2), 8)
    assert isinstance(why, Rejection)
    assert (why.code, why.message) == ("tpot", "TPOT about 2.0 ms with 1 running; 1.5 ms asked")


def test_samples_of_a_prompt_count_once_in_requests() -> None:
    """Of eight sequences in time, with two samples of a prompt, four requests."""
    found = search(_paced_ask(tpot=0.008, samples=2, requests=4, seqs=(8,)), wanted=1).found[0]
    assert (found.replicas, found.capacity) == (1, 4)


def _too_few(ask: Ask) -> Rejection:
    return next(each.why for each in search(ask, wanted=1).rejected if each.why.code == "too-few-gpus")


def test_every_pool_of_an_engine_holds_requests() -> None:
    """Two data-parallel pools hold twice what one holds, in what is said of too few GPUs."""
    held = []
    for dp in (1, 2):
        ask = an_ask(
            "llama-3.1-8b", priced(a_gpu(40), None, 2), quality="lossless", tp=(1,), pp=(1,), dp=(dp,),
            requests=5000, max_gpus=dp,
        )  # fmt: skip
        words = _too_few(ask).message
        held.append(int(words.split("which hold ")[1].split()[0].replace(",", "")))
    assert held[1] == 2 * held[0] > 0


def test_what_is_asked_as_well_is_named_only_where_it_is_in_the_way() -> None:
    """Requests that do not fit themselves are said first."""
    also = (Demand(3000, Shape(4000, 96)),)
    ask = an_ask(
        "llama-3.1-8b", a_gpu(40), quality="lossless", tp=(1,), pp=(1,), max_gpus=1, requests=1, also=also
    )
    assert "do not hold 3,000 of 4,096 tokens as well" in _too_few(ask).message
    many = an_ask(
        "llama-3.1-8b", a_gpu(40), quality="lossless", tp=(1,), pp=(1,), max_gpus=1, requests=5000, also=also
    )
    assert "of 5,000 requests" in _too_few(many).message


@pytest.mark.parametrize("shapes", [(Shape(1000, 100), Shape(3000, 300), Shape(200, 50))])
def test_the_most_requests_of_a_mix_use_all_gpus(shapes: tuple[Shape, ...]) -> None:
    """On as many engines as there are GPUs: more GPUs hold more, and the last engine counts."""
    most = []
    for gpus in (1, 2, 3):
        ask = an_ask(
            "llama-3.1-8b", priced(a_gpu(24), None, gpus), quality="lossless", tp=(1,), pp=(1,),
            shapes=shapes, objective=REQUESTS, requests=1,
        )  # fmt: skip
        found = search(ask, wanted=1).found[0]
        assert found.replicas == gpus
        most.append(found.requests)
    assert all(less < more for less, more in pairwise(most))


@for_each(("limit", "samples"), [(limit, samples) for limit in range(2, 40, 3) for samples in (1, 2)])
def test_max_num_seqs_admits_no_more_than_keep_the_times(limit: int, samples: int) -> None:
    found = search(_paced_ask(tpot=limit * 0.001, samples=samples, requests=50), wanted=1).found[0]
    assert found.max_num_seqs <= limit
    assert found.max_num_seqs // samples >= found.per_engine


@for_each("tokens", [1, 3, 15, 16, 63, 300])
def test_a_step_of_fewer_tokens_than_sequences_is_no_candidate(tokens: int) -> None:
    """vLLM refuses max_num_batched_tokens below max_num_seqs: no pool of so many sequences is looked at."""
    base = Settings(max_num_batched_tokens=tokens)
    asked = an_ask(
        "llama-3.1-8b", a_gpu(80), quality="lossless", tp=(1,), pp=(1,), requests=tokens, base=base
    )
    for one in search(asked, wanted=3).found:
        assert one.max_num_seqs <= tokens
