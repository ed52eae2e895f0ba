"""Classes without a public config: what vLLM's planner answered to made-up ones.

Recorded by scripts/record_vllm_classes.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError
from tests.engines.vllm_cases import Config
from tests.engines.vllm_class_cases import MADE, STEP5, class_cases, difference
from tests.laws.sampling import some
from tests.recorded import record

RECORD: dict[str, dict[str, Any]] = record("vllm_classes")
CASES = {case.name: case for case in class_cases()}


@pytest.mark.laws
@pytest.mark.parametrize("name", some(CASES, 3, by=lambda name: name.split()[0]))
def test_figures_are_the_planners(name: str) -> None:
    """Blocks, bytes, groups, tokens, concurrency, every stage's weights; what it refuses is refused."""
    entry, case = RECORD[name], CASES[name]
    assert entry["config"] == case.config, "the config changed: python -m scripts.record_vllm_classes --left"
    word, wrong = difference(case, entry["answer"])
    assert not wrong
    assert word in ("equal", "refused", "not asked")


def test_every_class_was_answered() -> None:
    """One config at least has figures from the planner, with the weights."""
    answered = Counter(
        name.split()[0] for name, entry in RECORD.items() if "groups" in entry["answer"] and name in CASES
    )
    assert set(answered) == set(MADE)
    assert set(RECORD) == set(CASES)


def test_what_is_not_described_is_refused_by_its_name() -> None:
    """Step 5's region summaries and their ring; vLLM serves no Step 5 without them."""
    without = {key: value for key, value in STEP5.items() if key != "sparse_config"}
    for config in (STEP5, without):
        for engine in ("generic", "vllm@0.33"):
            with pytest.raises(KvplanError, match="sparse_config") as caught:
                kvplan.size(config, engine=engine, tokens=100)
            assert "ring" in caught.value.message


RELABELLED = {
    "ling-2.6": ("bailing_hybrid", "bailing_moe_v2_5"),
    "iquest-loop": ("llama", "iquestloopcoder"),
    "rnj-1": ("gemma3_text", "rnj1"),
}


@pytest.mark.parametrize("name", RELABELLED)
def test_the_class_decides_whatever_the_type_says(name: str) -> None:
    """A model type that another model has too does not bring that one's layers."""
    word, own = RELABELLED[name]
    model = kvplan.load_model({**MADE[name].config, "model_type": word})
    assert model.model_type == own
    assert model.runs == kvplan.load_model(MADE[name].config).runs


def bytes_of(config: Config, **more: Any) -> tuple[int, int]:
    """Of one request: on one GPU, on all."""
    result = kvplan.size(config, **more)
    return result.per_gpu.kv_bytes_per_request, result.total.kv_bytes_per_request


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(MADE)),
    engine=st.sampled_from(["generic", "vllm@0.33"]),
    tokens=st.integers(1, 12000),
    more=st.integers(0, 3000),
    kv=st.sampled_from(["bfloat16", "fp8"]),
)
def test_a_longer_request_takes_no_less(name: str, engine: str, tokens: int, more: int, kv: str) -> None:
    """And one byte a number no more than two."""
    config = MADE[name].config
    short, _ = bytes_of(config, engine=engine, tokens=tokens, kv_cache_dtype=kv)
    longer, _ = bytes_of(config, engine=engine, tokens=tokens + more, kv_cache_dtype=kv)
    assert short <= longer
    if engine == "generic":
        assert short <= bytes_of(config, engine=engine, tokens=tokens, kv_cache_dtype="bfloat16")[0]


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(MADE)), tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2]))
def test_ranks_hold_the_whole(name: str, tp: int, pp: int) -> None:
    """All ranks together hold every byte of a request; one rank never more than the undivided model."""
    config = MADE[name].config
    parallel = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    own, all_of = bytes_of(config, engine="generic", tokens=4000, **parallel)
    whole, _ = bytes_of(config, engine="generic", tokens=4000)
    assert own <= whole <= all_of
