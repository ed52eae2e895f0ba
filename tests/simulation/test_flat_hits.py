"""Hit rates of flat caches under other orders of eviction, and the refusal to serve with one."""

from __future__ import annotations

import pytest

from kvplan.cli.simulate import run
from kvplan.errors import KvplanError
from kvplan.report.hits import flat_screen
from kvplan.report.layout import plain
from kvplan.simulation.cache_only.evict import KNOWN
from kvplan.simulation.cache_only.hits import flat_rates, hit_rates
from kvplan.simulation.load.generate import Asked, generated
from kvplan.simulation.load.load import Load

LOAD = generated(Asked(requests=120, rate=2.0, input=600, output=40, prefix=320, turns=3, think=9.0))


def test_lru_is_the_list_of_published_rates_and_none_has_more_than_there_is() -> None:
    sizes = (300, 1000, 4000)
    flat, known = flat_rates(LOAD, sizes, KNOWN), hit_rates(LOAD, (*sizes, None))
    for one, other in zip(flat, known):
        shares = dict(one.shares)
        assert shares["lru"] == pytest.approx(other.ids)
        assert all(0 <= share <= known[-1].ids + 1e-12 for share in shares.values())
        assert shares["belady"] >= shares["lru"]


def test_the_screen_is_narrow_with_all_of_them() -> None:
    rows = plain(
        flat_screen(flat_rates(LOAD, (300, 1000), KNOWN), trace="t.jsonl", wide=16, requests=120)
    ).splitlines()
    assert max(map(len, rows)) <= 80
    assert len(rows) <= 25


@pytest.mark.parametrize(("policies", "code"), [("lfu", "bad-usage"), ("s3fifo", "bad-eviction")])
def test_vllm_serves_with_its_own_order_only(policies: str, code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        run(["llama-3.1-8b"], {"evict": policies, "gpu": "h100"})
    assert caught.value.code == code
    assert caught.value.help


def test_a_load_without_identities_has_no_rates() -> None:
    plain_rows = tuple(type(one)(one.at_ns, one.prompt, one.answer) for one in LOAD.arrivals)
    with pytest.raises(KvplanError, match="share a prefix"):
        flat_rates(Load(plain_rows), (10,), ("lru",))
