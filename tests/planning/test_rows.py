"""The table of a plan: the row of a kind is what a plan for that kind alone begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.planning.ask import CONTEXT, FEWEST, OBJECTIVES, Ask
from kvplan.planning.context import longest
from kvplan.planning.found import Found
from kvplan.planning.rows import Each, Rows, rows_of
from kvplan.plans.fleet import Fleet, Kind, Offer
from kvplan.plans.plan import QUALITIES
from kvplan.plans.workload import Shape, Workload
from kvplan.settings import Settings
from kvplan.units import GIB
from tests.laws.sampling import sampled
from tests.planning.asks import a_gpu, a_shape, an_ask, catalogues
from tests.planning.brute import brute_force

MODELS = ("qwen3-0.6b", "llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b", "gemma-3-4b")
ENGINES = ("vllm", "vllm", "vllm@0.19", "sglang", "trtllm", "llamacpp")


@st.composite
def asks(draw: st.DrawFn, *, most: int = 5) -> Ask:
    engine = draw(st.sampled_from(ENGINES))
    shapes = tuple(draw(a_shape()) for _ in range(draw(st.sampled_from((1, 1, 3)))))
    stated = GIB * draw(st.integers(1, 30)) if engine == "llamacpp" or draw(st.booleans()) else None
    return an_ask(
        draw(st.sampled_from(MODELS)),
        *draw(catalogues(most=most)),
        engine=engine,
        base=Settings(weights=stated),
        shapes=shapes,
        requests=draw(st.sampled_from((1, 3, 40, 700))),
        objective=draw(st.sampled_from(OBJECTIVES)),
        max_gpus=draw(st.sampled_from((2, 8, 64))),
        quality=draw(st.sampled_from(("lossless", "safe", "aggressive"))),
        tp=draw(st.sampled_from((None, (1, 2), (1, 3, 4)))),
        pp=draw(st.sampled_from((None, (1,), (1, 2)))),
        safe=draw(st.booleans()),
    )


def each_of(ask: Ask) -> Each | None:
    return partial(longest, stretch=False) if ask.objective == CONTEXT else None


def plain(found: Found) -> Found:
    """Without the place among the offers, which is the table's."""
    return found._replace(key=())


def kind_of(found: Found) -> Kind:
    return found.offer.kind


def alone(ask: Ask, kind: Kind) -> Rows:
    offers = tuple(offer for offer in ask.offers if offer.kind == kind)
    return rows_of([replace(ask, offers=offers)], 1, each=each_of(ask))


@pytest.mark.laws
@sampled(6, 600)
@given(asks(), st.integers(1, 6))
def test_the_row_of_a_kind_is_what_the_kind_alone_begins_with(ask: Ask, top: int) -> None:
    table = rows_of([ask], top, each=each_of(ask))
    kinds = {offer.kind for offer in ask.offers}
    if len(kinds) == 1 and ask.objective != CONTEXT:
        return
    for row in table.rows:
        assert plain(row.found) == plain(alone(ask, kind_of(row.found)).rows[0].found)
    rows = {kind_of(row.found) for row in table.rows}
    assert len(rows) == len(table.rows)
    without = {one.offer.kind: one for one in table.without}
    assert not rows & set(without)
    assert rows | set(without) == kinds
    for kind, one in without.items():
        assert one.why.message
        if one.beyond:
            assert len(table.rows) == top
        else:
            assert not alone(ask, kind).rows


@pytest.mark.laws
@sampled(6, 600)
@given(asks(), st.integers(1, 4))
def test_a_shorter_table_is_the_beginning_of_a_longer_one(ask: Ask, top: int) -> None:
    whole = [plain(row.found) for row in rows_of([ask], 50, each=each_of(ask)).rows]
    shown = [plain(row.found) for row in rows_of([ask], top, each=each_of(ask)).rows]
    assert shown == whole[:top]


@pytest.mark.laws
@sampled(2, 300)
@given(asks(most=3))
def test_every_row_is_what_brute_force_finds(ask: Ask) -> None:
    best: dict[Kind, Found] = {}
    for found in brute_force(ask):
        best.setdefault(kind_of(found), found)
    kinds = {offer.kind for offer in ask.offers}
    rows = rows_of([ask], len(kinds)).rows
    if len(kinds) == 1:
        rows = rows[:1]
    assert {kind_of(row.found): row.found.key for row in rows} == {
        kind: found.key for kind, found in best.items()
    }


def test_the_catalogue_of_the_report() -> None:
    """30 × L40S stood where 8 do, as a leftover of the pruning."""
    asked = {"requests": 100, "tokens": "8k", "depth": False, "pool": "likely"}
    both = kvplan.plan("llama-3.3-70b", gpu=["h100", "h200", "b200", "l40s"], **asked)  # type: ignore[arg-type]
    for option in both.options:
        assert option == kvplan.plan("llama-3.3-70b", gpu=option.gpu, **asked).options[0]  # type: ignore[arg-type]
    assert {option.gpu: option.gpus for option in both.options}["l40s-48gb"] == 8


def test_of_as_many_gpus_the_cheaper_comes_first_else_what_draws_least() -> None:
    """Without prices by the energy of a token, unknown last; with prices by cost, unpriced ones last."""
    plain_plan = kvplan.plan("llama-3.1-8b", requests=4, tokens="8k", top=50, depth=False)
    assert plain_plan.objective == FEWEST
    places = []
    for one in plain_plan.options:
        gpu = kvplan.load_gpu(one.gpu)
        draws = one.gpus * (gpu.power_watts or inf) * (one.speed.tpot[1] if one.speed else inf)
        worst = QUALITIES.index(one.quality)
        places.append((one.gpus, worst, draws if worst == 0 else 0))
    assert len(set(places)) > 10
    assert places == sorted(places)
    assert not plain_plan.options[0].gpu.startswith("gb")
    kinds = ("h100", "l40s", "a100", "h200", "b200")
    fleet = Fleet(
        tuple(Offer(kvplan.load_gpu(name), price_per_gpu_hour=price) for name, price in zip(kinds, PRICES))
    )
    rows = kvplan.plan("llama-3.1-8b", requests=4, tokens="8k", fleet=fleet, depth=False).options
    costs = [(one.gpus, one.cost_per_hour is None, one.cost_per_hour or 0) for one in rows]
    assert len(rows) == 5
    assert costs == sorted(costs)
    assert rows[-1].gpu.startswith("a100")


@pytest.mark.laws
@sampled(1, 60)
@given(
    st.sampled_from(("llama-3.1-8b", "qwen3-32b", "gpt-oss-120b", "llama-3.3-70b")),
    st.permutations(("h100", "h200", "l40s", "b200", "a100", "rtx-4090")),
    st.lists(st.integers(20, 900), min_size=3, max_size=3),
    st.sampled_from((1, 7, 64, 500)),
    st.sampled_from((2048, 8192)),
)
def test_the_first_row_of_objective_cost_is_the_cheapest_token(
    model: str, kinds: Sequence[str], cents: list[int], requests: int, tokens: int
) -> None:
    """By the JSON's own figures; and no plan of one kind alone is cheaper."""
    offers = [
        Offer(kvplan.load_gpu(kind), price_per_gpu_hour=Fraction(price, 100))
        for kind, price in zip(kinds, cents)
    ]

    def costs(some: list[Offer]) -> list[float]:
        found = kvplan.plan(
            model, requests=requests, tokens=tokens, fleet=Fleet(tuple(some)), objective="cost", depth=False
        )
        millions = [one["cost_per_million_tokens"] for one in found.model_dump()["options"]]
        return [one[1] if one else inf for one in millions]  # ranks over nodes: no speed is known

    together = costs(offers)
    assert together == sorted(together)
    each = [alone[0] for offer in offers if (alone := costs([offer]))]
    assert together[:1] == sorted(each)[:1]


PRICES = (Fraction(5, 2), Fraction(9, 10), None, Fraction(7, 2), Fraction(5))


def test_kinds_beyond_the_table_are_named() -> None:
    result = kvplan.plan("llama-3.1-8b", requests=4, tokens="8k", top=2, depth=False)
    assert len(result.options) == 2
    codes = [one.code for one in result.unserved]
    assert result.more_options == codes.count("beyond-top") > 10
    assert "engine-gpu" in codes
    dumped = result.model_dump()
    assert dumped["more_options"] == result.more_options
    assert {"engine", "gpu", "where", "code", "message", "example"} == set(dumped["unserved"][0])


def test_two_offers_of_one_kind_are_one_row() -> None:
    """What a fleet has twice of a kind leaves the other kinds their rows."""
    large, small = a_gpu(178, (8, 0)), a_gpu(14, (8, 0))
    base = Settings(weights=10 * GIB)
    ask = an_ask("gemma-3-4b", large, large, small, objective=CONTEXT, max_gpus=2, base=base)
    table = rows_of([ask], 2, each=each_of(ask))
    assert [row.found.offer.gpu.memory_stated_bytes // GIB for row in table.rows] == [178, 14]


def test_the_price_of_a_token_by_hand() -> None:
    """An hour's price over what all engines answer in it."""
    fleet = Fleet((Offer(kvplan.load_gpu("h100"), price_per_gpu_hour=Fraction(5, 2)),))
    found = kvplan.plan("llama-3.1-70b", requests=64, tokens=8192, fleet=fleet, depth=False).options[0]
    assert found.speed is not None
    assert found.cost_per_million_tokens is not None
    low, likely, high = found.cost_per_million_tokens
    assert found.requests_per_engine * found.replicas == 64
    rate = found.speed.tokens_per_second[1] * found.replicas
    assert likely == pytest.approx(2.5 * found.gpus / (rate * 3600) * 1e6)
    assert low < likely < high


def test_arrivals_make_no_more_tokens_than_they_ask() -> None:
    """However fast the engines are: 2 requests a second of 500 answered tokens are 1,000 tokens a second."""
    fleet = Fleet((Offer(kvplan.load_gpu("h100"), price_per_gpu_hour=Fraction(5, 2)),))
    load = Workload((Shape(2000, 500),))
    found = kvplan.plan(
        "llama-3.1-8b", workload=load, arrival=2, ttft=2, tpot="0.05", fleet=fleet, objective="cost",
        depth=False,
    ).options[0]  # fmt: skip
    assert found.cost_per_million_tokens is not None
    low, likely, _ = found.cost_per_million_tokens
    assert low == pytest.approx(2.5 * found.gpus / 3600 / 1000 * 1e6)
    assert likely >= low


@pytest.mark.parametrize(
    ("model", "gpus", "quality"),
    [
        ("llama-3.3-70b", ["b200", "l40s"], "safe"),
        ("deepseek-r1", ["b200", "h200"], "aggressive"),
        ("qwen3-32b", ["h100"], "safe"),
        ("llama-3.1-70b", ["h100", "h200"], "aggressive"),
    ],
)
def test_the_checkpoint_that_was_asked_for_is_always_shown(model: str, gpus: list[str], quality: str) -> None:
    """In a row of its own where no option has it, as it would be planned alone."""
    found = kvplan.plan(model, requests=32, tokens="8k", gpu=gpus, quality=quality, depth=False, top=2)
    asked = kvplan.load_model(model).id
    assert asked in {one.model for one in found.rows}
    assert all(one.other_checkpoint == "" for one in found.rows if one.model == asked)
    if found.own is not None:
        assert asked not in {one.model for one in found.options}
        assert found.rows[-1] == found.own
        assert found.model_dump()["own"]["model"] == asked
    headline = str(found).partition(":")[0]
    assert headline == found.options[0].model.rpartition("/")[2]


def test_a_checkpoint_that_fits_nowhere_says_why() -> None:
    found = kvplan.plan(
        "deepseek-r1", requests=4, tokens="4k", gpu="4xb200", quality="aggressive", depth=False
    )
    assert found.options[0].model == "nvidia/DeepSeek-R1-FP4"
    assert found.own is None
    assert any("no row for deepseek-ai/DeepSeek-R1 itself" in text for text in found.warnings)


def test_a_build_of_another_model_is_no_candidate() -> None:
    """llama-3.1-8b is the base model: nothing instruct, nothing distilled from another one."""
    found = kvplan.plan(
        "llama-3.1-8b", requests=64, tokens="8k", gpu=["h100", "l40s"], quality="aggressive", top=50
    )
    named = {one.model for one in (*found.rows, *found.pareto)}
    assert not [name for name in named if "instruct" in name.lower() or "distill" in name.lower()]
