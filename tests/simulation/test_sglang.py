"""SGLang as the engine of ``kvplan simulate``: its pool, its settings, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.report.layout import plain
from kvplan.report.schema import answer_schema
from kvplan.report.simulate import simulation_screen
from kvplan.report.simulate_html import rules_of, simulation_page
from kvplan.simulation.load.generate import Asked, generated
from kvplan.simulation.results import SimulationResult
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.shown import shown as shown_as
from tests.report.schemas import answer_errors
from tests.simulation.outcomes import simulated

LOAD = generated(Asked(requests=120, rate=3.0, input=900, output=120, prefix=400, turns=3))
DEPLOYED: dict[str, Any] = {"engine": "sglang", "gpu": "h100-sxm-80gb"}


def _answer(**asked: Any) -> SimulationResult:
    quick = {"search": False, "helps": False, "trace": LOAD}
    model = asked.pop("model", "llama-3.1-8b")
    found = simulated(model, **{**DEPLOYED, **quick, **asked})
    assert isinstance(found, SimulationResult)
    return found


def test_the_pool_and_the_settings_are_those_of_size() -> None:
    found = _answer()
    sized = kvplan.size("llama-3.1-8b", **DEPLOYED)
    assert sized.pool is not None
    assert dict(found.pool_blocks)["likely"] == sized.pool.num_blocks
    assert (found.engine, found.release) == ("sglang", "0.5.23")
    assert (
        answer_errors(answer_schema("simulate"), json.loads(json.dumps(shown_as(found).model_dump()))) == []
    )
    assert 0 < found.hit_rate.value <= found.most_hits + 1e-9


def test_the_screen_and_the_page_say_whose_rules() -> None:
    found = _answer(replicas="auto", ttft=1, search=True, helps=True)
    text = plain(simulation_screen(found, where="1 × h100", rules=rules_of(found)))
    assert "SGLang 0.5.23's scheduler, step by step (kvplan/simulation/" in text
    assert max(map(len, text.splitlines())) <= 80
    page = simulation_page(found, where="1 × h100")
    assert "vLLM" not in page
    assert "SGLang" in page


def test_its_own_options_reach_the_scheduler() -> None:
    served, _ = kvplan.api.simulating.deployment(
        "llama-3.1-8b", schedule_policy="lpm", radix_eviction_policy="lfu", enable_mixed_chunk=True,
        chunked_prefill_size=1024, max_prefill_tokens=2048, schedule_conservativeness="0.5",
        disable_overlap_schedule=True, max_num_seqs=7, max_model_len=4096, **DEPLOYED,
    )  # fmt: skip
    engine = served.engine("likely")
    assert isinstance(engine, SglangEngine)
    assert replace(engine, blocks=1) == SglangEngine(
        blocks=1, block=1, chunk=1024, batch=2048, sequences=7, length=4096, policy="lpm", order="lfu",
        overlap=False, mixed=True, conservativeness=0.5,
    )  # fmt: skip


def test_a_fleet_and_a_closed_load_are_served_too() -> None:
    for router in ("cache-aware", "llm-d", "session"):
        assert _answer(replicas=2, router=router, pool="likely").goodput.value == 1
    assert _answer(concurrency=8, pool="likely").concurrency == 8


def test_the_same_traffic_under_two_engines_hits_alike() -> None:
    """Whole tokens in place of blocks of 16: a little more is found."""
    mine, theirs = _answer(pool="likely"), _answer(engine="vllm", pool="likely")
    assert theirs.hit_rate.value <= mine.hit_rate.value <= theirs.hit_rate.value + 0.03


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "gpt-oss-20b", "disable_radix_cache": True}, "windows without the radix cache"),
        ({"model": "falcon-h1-7b", "enable_mixed_chunk": True}, "mixed chunks beside states"),
        ({"model": "deepseek-v4-flash", "tensor_parallel_size": 8}, "compressed tokens"),
        ({"pipeline_parallel_size": 2}, "pipeline"),
        ({"num_speculative_tokens": 2, "speculative_method": "eagle", "draft_layers": 1}, "with drafts"),
        ({"offload": "cpu:64GiB"}, "hierarchical cache"),
        ({"prefill_replicas": 1, "decode_replicas": 1}, "disaggregated"),
        ({"schedule_policy": "hrrn"}, "request ids"),
        ({"engine": "sglang@0.5.12"}, "not asked"),
    ],
)
def test_what_is_not_simulated_says_why(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        _answer(**asked)
    assert caught.value.code == "not-simulated"
    assert caught.value.exit_code == 2
    assert caught.value.help
