"""Price files: YAML as a list or a mapping, CSV; every mistake with its place; kept for the next plans."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.plans.prices import read_prices, remember, remembered
from kvplan.plans.fleet import Offer, Prices
from kvplan.plans.workload import Shape, Workload

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "prices" / "clouds-2026-09.yaml"
LIST = """kvplan: prices/v1
currency: USD
date: "2026-09-01"
prices:
  - {gpu: h100, price_per_gpu_hour: 2.50, where: a}
  - {gpu: h200, price_per_gpu_hour: 3.90, where: a}
  - {gpu: h200, price_per_gpu_hour: 3.5, where: b, date: "2026-09-02"}
"""
MAPPING = 'kvplan: prices/v1\ncurrency: USD\ndate: "2026-09-01"\nprices: {h100: 2.50, h200: 3.5}\n'
CSV = "gpu,price_per_gpu_hour,where,currency,date\nh100,2.50,a,USD,2026-09-01\nh200,3.50,b,USD,\n"


def prices_in(tmp_path: Path, text: str, name: str = "prices.yaml") -> Prices:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_prices(path)


@pytest.mark.parametrize(("text", "name"), [(LIST, "p.yaml"), (MAPPING, "p.yaml"), (CSV, "p.csv")])
def test_a_price_is_what_was_written(tmp_path: Path, text: str, name: str) -> None:
    found = prices_in(tmp_path, text, name)
    assert [(one.gpu.slug, one.per_gpu_hour) for one in found.each] == [
        ("h100-sxm-80gb", Fraction(5, 2)),
        ("h200-sxm-141gb", Fraction(7, 2)),
    ]
    assert (found.currency, found.date) == ("USD", "2026-09-01")
    assert found.words().endswith(f"{name}, 2026-09-01")


def test_of_several_prices_the_lowest_counts_with_its_place(tmp_path: Path) -> None:
    found = prices_in(tmp_path, LIST)
    assert [one.where for one in found.each] == ["a", "b"]
    offers = found.of([Offer(kvplan.load_gpu(name)) for name in ("h200", "l40s")])
    assert [(one.price_per_gpu_hour, one.where) for one in offers] == [(Fraction(7, 2), "b"), (None, "")]
    own = Offer(kvplan.load_gpu("h100"), price_per_gpu_hour=Fraction(9), where="mine")
    assert found.of([own]) == (own,)  # a fleet's own price counts first


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("kvplan: fleet/v1\noffers: []\n", "p.yaml", "is no price file"),
        ("kvplan: prices/v1\nprices: {}\n", "p.yaml", "prices"),
        ("kvplan: prices/v1\nprices: {h100: -1}\n", "p.yaml", "above 0"),
        ("kvplan: prices/v1\nprices: {h1000: 1}\n", "p.yaml", "h1000"),
        ("kvplan: prices/v1\nprices:\n  - {gpu: h100}\n", "p.yaml", "price_per_gpu_hour"),
        ("gpu\nh100\n", "p.csv", "no column price_per_gpu_hour"),
        ("gpu,price_per_gpu_hour,were\nh100,1,a\n", "p.csv", "no column 'were'"),
        ("gpu,price_per_gpu_hour\nh100,0\n", "p.csv", ":2: price_per_gpu_hour is '0'"),
        ("gpu,price_per_gpu_hour\nh100,1,2\n", "p.csv", "another number of cells"),
        ("gpu,price_per_gpu_hour\n", "p.csv", "has no price"),
        ("", "p.csv", "no column gpu"),
        ("gpu,price_per_gpu_hour\nnope,1\n", "p.csv", ":2: "),
    ],
)
def test_every_mistake_is_an_error_with_a_way_out(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(KvplanError) as caught:
        prices_in(tmp_path, text, name)
    assert said in str(caught.value.format())
    assert caught.value.exit_code == 2


def test_the_example_is_dated_and_read() -> None:
    found = read_prices(EXAMPLE)
    assert {one.gpu.slug for one in found.each} >= {"h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"}
    assert all(one.date or found.date for one in found.each)


def test_kept_prices_count_for_the_next_plans_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only where it was asked, never for a plan file; ``none`` leaves them out."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KVPLAN_CONFIG", raising=False)
    file = tmp_path / "mine.csv"
    file.write_text(CSV, encoding="utf-8")
    words = ["plan", "llama-3.1-8b", "-t", "8k", "-g", "h100", "--json"]
    folder = tmp_path / "kvplan"

    def priced(*more: str) -> bool:
        assert main([*words, *more]) == 0
        return '"cost_per_hour": 2.5' in capsys.readouterr().out

    assert priced("--prices", str(file))
    assert remembered(folder) is None
    assert not priced()
    assert priced("--prices", str(file), "--remember")
    assert remembered(folder) == folder / "prices.csv"
    assert priced()
    assert not priced("--prices", "none")
    assert main(["plan", "llama-3.1-8b", "-t", "8k", "-g", "h100", "--write", str(tmp_path / "p.yaml")]) == 0
    capsys.readouterr()
    assert main(["plan", str(tmp_path / "p.yaml"), "--json"]) == 0
    assert '"cost_per_hour": 2.5' in capsys.readouterr().out  # the plan's own price
    (tmp_path / "q.yaml").write_text(
        "kvplan: plan/v1\nmodel: llama-3.1-8b\ngpu: h100\nrequire: {requests: 2, tokens: 8k}\n"
    )
    assert main(["plan", str(tmp_path / "q.yaml"), "--json"]) == 0
    assert '"cost_per_hour": null' in capsys.readouterr().out
    assert main([*words, "--remember"]) == 2
    assert "--remember belongs to --prices" in capsys.readouterr().err
    other = tmp_path / "p2.yaml"
    other.write_text(MAPPING, encoding="utf-8")
    assert remember(other, folder) == folder / "prices.yaml"
    assert not (folder / "prices.csv").exists()


def test_cost_an_hour_is_a_plain_number() -> None:
    prices = read_prices(EXAMPLE)
    found = kvplan.plan("llama-3.1-8b", tokens="8k", gpu=["h100", "h200"], prices=prices, depth=False)
    for one in found.model_dump()["options"]:
        assert isinstance(one["cost_per_hour"], float)
        low, likely, high = one["cost_per_million_tokens"]
        assert 0 < low <= likely <= high
    assert found.model_dump()["prices"].startswith("prices of ")


def test_prices_are_named_however_the_plan_is_made() -> None:
    """A rate is planned by simulations, requests at once by the estimate: money looks the same."""
    prices = read_prices(EXAMPLE)
    loads: tuple[dict[str, Any], ...] = ({"requests": 4}, {"arrival": 1, "ttft": 2, "tpot": 0.1})
    for load in loads:
        asked: dict[str, Any] = {
            "workload": Workload((Shape(500, 50),)),
            "gpu": "h100",
            "prices": prices,
            "depth": False,
        }
        found = kvplan.plan("llama-3.1-8b", **asked, **load)
        assert found.currency == prices.currency == "USD"
        assert found.prices == prices.words()


def test_requests_that_do_not_divide_are_not_sold_twice() -> None:
    """9 requests on 8 engines run at the pace of 2 each, and are 9."""
    prices = read_prices(EXAMPLE)
    found = kvplan.plan(
        "llama-3.1-8b",
        tokens="8k",
        requests=9,
        gpu="8xh100",
        prices=prices,
        max_num_seqs=2,
        tp=1,
        depth=False,
    ).options[0]
    assert found.speed is not None
    assert found.cost_per_hour is not None
    places = found.replicas * found.requests_per_engine
    rate = found.speed.tokens_per_second[1] * found.replicas * 9 / places
    assert found.million() == pytest.approx(float(found.cost_per_hour) / 3600 / rate * 10**6)
