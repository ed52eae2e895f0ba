"""All plans of a check against a fleet: GPUs by kind, spare engines, nodes, cost, hours."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api.checking.hours import tokens_by_hour
from kvplan.api.checking.paths import check_paths
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.plans.fleet import Fleet, Offer
from kvplan.plans.plan import Plan
from kvplan.plans.using import FleetUse, fleet_use
from kvplan.report.check import render
from kvplan.settings import Settings

H100, H200 = kvplan.load_gpu("h100"), kvplan.load_gpu("h200")


def a_plan(gpus: int, tp: int = 1, *, gpu: kvplan.Gpu = H100, price: int | None = None) -> Plan:
    settings = Settings(gpu=gpu, tensor_parallel_size=tp)
    cost = None if price is None else Fraction(price)
    return Plan("a", "llama-3.1-8b", "vllm@0.33", gpus, settings, price_per_gpu_hour=cost)


def a_fleet(*offers: dict[str, Any], spare: int = 0) -> Fleet:
    return Fleet(tuple(Offer(**{"gpu": H100, **one}) for one in offers), "USD", "cluster.yaml", spare)


def used(plans: list[Plan], fleet: Fleet, **loads: list[int]) -> FleetUse:
    return fleet_use(plans, fleet, {int(name[1:]): load for name, load in loads.items()})


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from((1, 2, 4, 8))), min_size=1, max_size=6),
    st.integers(0, 100),
    st.integers(0, 2),
)
def test_gpus_are_the_sum_of_the_plans(engines: list[tuple[int, int]], there: int, spare: int) -> None:
    """Of one large node: what lacks is what is beyond it, in whole engines."""
    plans = [a_plan(count * tp, tp) for count, tp in engines]
    (kind,) = used(plans, a_fleet({"available": there, "gpus_per_node": 1000}, spare=spare)).kinds
    total = sum(count * tp for count, tp in engines)
    assert (kind.gpus, kind.spare) == (total, spare * max(tp for _, tp in engines))
    assert (kind.missing > 0) == (kind.needed > there)
    assert kind.peak_gpus == kind.mean_gpus == total


def test_an_engine_lies_inside_a_node() -> None:
    """Three engines of five do not fit two nodes of eight, though there are 16 GPUs."""
    nodes = {"available": 16, "gpus_per_node": 8}
    assert used([a_plan(10, 5)], a_fleet(nodes)).passed
    (kind,) = used([a_plan(15, 5)], a_fleet(nodes)).kinds
    assert (kind.needed, kind.available, kind.missing) == (15, 16, 5)
    assert used([a_plan(16, 16)], a_fleet(nodes)).passed  # larger than a node: on whole ones
    assert not used([a_plan(16, 16), a_plan(1)], a_fleet(nodes)).passed
    assert used([a_plan(8, 8), a_plan(4, 4), a_plan(4, 4)], a_fleet(nodes)).passed


def test_a_kind_that_the_fleet_lacks_is_missing() -> None:
    found = used([a_plan(2), a_plan(4, gpu=H200)], a_fleet({"available": None}))
    assert [(one.gpu, one.available, one.missing) for one in found.kinds] == [
        ("h100-sxm-80gb", None, 0),
        ("h200-sxm-141gb", 0, 4),
    ]
    assert not found.passed


def test_the_cheapest_offers_are_taken_first() -> None:
    offers = (
        {"available": 4, "price_per_gpu_hour": Fraction(3)},
        {"available": 8, "price_per_gpu_hour": Fraction(2)},
    )
    (kind,) = used([a_plan(10)], a_fleet(*offers)).kinds
    assert kind.cost_per_hour == 8 * 2 + 2 * 3
    (own,) = used([a_plan(10, price=5)], a_fleet({"available": 12})).kinds
    assert own.cost_per_hour == 50  # the plan's own price where the fleet has none
    unknown = used([a_plan(10)], a_fleet({"available": 12}))
    assert unknown.cost_per_hour is None
    assert unknown.kinds[0].cost_per_hour is None


def test_hours_need_engines_in_proportion_to_their_tokens() -> None:
    plans = [a_plan(8, 2), a_plan(3)]
    (kind,) = used(plans, a_fleet({}), p0=[100, 50, 10, 0]).kinds
    assert kind.peak_gpus == 8 + 3
    assert kind.mean_gpus == Fraction(8 + 4 + 2 + 2, 4) + 3  # at least one engine
    (both,) = used([a_plan(4), a_plan(4)], a_fleet({}), p0=[1, 4], p1=[4, 1, 4, 1]).kinds
    assert both.peak_gpus == 5  # the shorter trace begins anew: their peaks are apart
    assert used(plans, a_fleet({})).hours == 0


def a_trace(tmp_path: Path, hours: list[int]) -> Path:
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens"]
    rows += [f"{at * 3600 + place}.0,900,100" for at, many in enumerate(hours) for place in range(many)]
    (tmp_path / "day.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    text = "kvplan: plan/v1\nmodel: llama-3.1-8b\ngpu: h100\ngpus: 4\nworkload: {trace: day.csv}\n"
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_trace_is_read_by_hours(tmp_path: Path) -> None:
    (plan,) = kvplan.load_plans(a_trace(tmp_path, [3, 0, 5, 1]))
    assert tokens_by_hour(plan) == (3000, 0, 5000, 1000)
    (short,) = kvplan.load_plans(a_trace(tmp_path, [3, 2]))
    assert tokens_by_hour(short) == ()  # of less than two hours nothing is said


CLUSTER = """kvplan: fleet/v1
currency: USD
spare: 1
offers:
  - {gpu: h100, available: %d, price_per_gpu_hour: 2}
"""


@pytest.mark.parametrize(("there", "code"), [(5, 0), (4, 1)])
def test_too_few_gpus_fail_the_check_in_every_form(
    tmp_path: Path, there: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, cluster = a_trace(tmp_path, [1, 8, 2]), tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER % there, encoding="utf-8")
    words = ["check", str(plan), "--fleet", str(cluster)]
    assert main(words) == code
    shown = " ".join(capsys.readouterr().out.split())
    assert ("the fleet has the GPUs" in shown) == (code == 0)
    assert ("5 × h100-sxm-80gb are needed (4 and 1 spare), and 4 are there" in shown) == (code == 1)
    assert main([*words, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["fleet"]["kinds"][0] | {"gpu": ""} == {
        "gpu": "", "plans": 1, "gpus": 4, "spare": 1, "available": there, "missing": 5 - there,
        "cost_per_hour": 10.0, "peak_gpus": 4, "mean_gpus": 2.0,
    }  # fmt: skip
    assert told["exit_code"] == code
    report = check_paths([plan], fleet=cluster)
    for form in ("github", "junit", "sarif", "markdown"):
        assert ("are needed" in render(report, form)) == (code == 1), form


def test_quiet_is_one_line_where_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_trace(tmp_path, [1])
    assert main(["check", str(plan), "-q"]) == 0
    assert capsys.readouterr().out == "The plan passes.\n"
    assert main(["check", str(plan), "-q", "--require", "requests=9999,tokens=8k"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("requests-do-not-fit" in line for line in lines)
    assert lines[-1].startswith("The plan fails")
    assert main(["check", str(plan), "-q", "--format", "junit"]) == 2
    assert "--quiet is about the screen" in capsys.readouterr().err


def test_environments_do_not_add_up(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="alternatives"):
        check_paths([a_trace(tmp_path, [1])], fleet=a_fleet({}), environment="all")
