"""TensorRT-LLM as the engine of ``kvplan simulate``: pool, settings, what is refused, what is said."""

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
from kvplan.simulation.shown import shown as shown_as
from kvplan.simulation.trtllm import TrtllmEngine
from tests.report.schemas import answer_errors
from tests.simulation.outcomes import simulated

LOAD = generated(Asked(requests=80, rate=3.0, input=900, output=120, prefix=400, turns=3))
DEPLOYED: dict[str, Any] = {"engine": "trtllm", "gpu": "h100-sxm-80gb"}


def _answer(**asked: Any) -> SimulationResult:
    quick = {"search": False, "helps": False, "trace": LOAD}
    found = simulated(asked.pop("model", "llama-3.1-8b"), **{**DEPLOYED, **quick, **asked})
    assert isinstance(found, SimulationResult)
    return found


def test_every_screen_says_that_nothing_was_asked() -> None:
    found = _answer(replicas="auto", ttft=1, search=True, helps=True)
    text = plain(simulation_screen(found, where="1 × h100", rules=rules_of(found)))
    assert "TensorRT-LLM 1.2's scheduler, experimental: read from" in text
    assert "warning[scheduler-unasked]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "experimental" in simulation_page(found, where="1 × h100")
    assert any("experimental" in note for note in shown_as(found).model_dump()["notes"])
    assert (
        answer_errors(answer_schema("simulate"), json.loads(json.dumps(shown_as(found).model_dump()))) == []
    )


def test_the_pool_and_the_settings_are_those_of_size() -> None:
    sized = kvplan.size("llama-3.1-8b", **DEPLOYED)
    found = _answer(pool="likely")
    assert sized.pool is not None
    assert dict(found.pool_blocks)["likely"] == sized.pool.num_blocks
    assert (found.engine, found.release) == ("trtllm", "1.2")
    assert 0 < found.hit_rate.value <= found.most_hits + 1e-9


def test_its_own_options_reach_the_scheduler() -> None:
    served, _ = kvplan.api.simulating.deployment(
        "llama-3.1-8b", capacity_scheduler_policy="max_utilization", enable_chunked_prefill=True,
        context_chunking_policy="EQUAL_PROGRESS", disable_overlap_scheduler=True, enable_partial_reuse=False,
        max_num_seqs=7, max_num_batched_tokens=512, max_model_len=4096, block_size=64, **DEPLOYED,
    )  # fmt: skip
    engine = served.engine("likely")
    assert isinstance(engine, TrtllmEngine)
    assert replace(engine, blocks=1) == TrtllmEngine(
        blocks=1, block=64, batch=512, sequences=7, length=4096, partial=False, policy="MAX_UTILIZATION",
        chunking="EQUAL_PROGRESS", overlap=False,
    )  # fmt: skip


def test_a_fleet_and_a_closed_load_are_served_too() -> None:
    for router in ("cache-aware", "llm-d", "session"):
        assert _answer(replicas=2, router=router, pool="likely").goodput.value == 1
    assert _answer(concurrency=8, pool="likely").concurrency == 8


def test_the_same_traffic_under_two_engines_hits_alike() -> None:
    mine, theirs = _answer(pool="likely"), _answer(engine="vllm", pool="likely")
    assert abs(theirs.hit_rate.value - mine.hit_rate.value) < 0.03


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"max_attention_window": (512, 8192)}, "windows"),
        ({"model": "nemotron-h-8b", "max_num_seqs": 64}, "states"),
        ({"pipeline_parallel_size": 2}, "pipeline"),
        ({"tensor_parallel_size": 2, "enable_attention_dp": True, "weights": "16GiB"}, "data-parallel"),
        ({"num_speculative_tokens": 1, "speculative_method": "mtp", "model": "glm-4.5-air"}, "speculative"),
        ({"use_kv_cache_manager_v2": True}, "KVCacheManagerV2"),
        ({"offload": "cpu:64GiB"}, "host cache"),
        ({"prefill_replicas": 1, "decode_replicas": 1}, "disaggregated"),
        ({"capacity_scheduler_policy": "max_utilization"}, "overlap scheduler"),
    ],
)
def test_what_is_not_simulated_says_why(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        _answer(**{"weights": "20GiB"} | asked if "model" in asked else asked)
    assert caught.value.code == "not-simulated"
    assert caught.value.exit_code == 2
    assert caught.value.help
