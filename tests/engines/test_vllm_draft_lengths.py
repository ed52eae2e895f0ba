"""What a draft's own length does to its target's: asked of vLLM 0.22, 0.27, 0.32 and 0.33."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.results import SizeResult
from tests.engines.vllm_cases import CONFIGS, GIB
from tests.engines.vllm_random_cases import draft_beside

LENGTHS = st.sampled_from([777, 2048, 8192, 8193, 16384, 40960, 131072])
STATES = ("qwen3-next", "falcon-h1", "lfm2")


def target(name: str, length: int) -> dict[str, Any]:
    config = dict(CONFIGS[name])
    inner = config.get("text_config")
    if inner is not None:
        return {**config, "text_config": {**inner, "max_position_embeddings": length}}
    return {**config, "max_position_embeddings": length}


def beside(method: str, config: dict[str, Any], length: int, **keys: Any) -> dict[str, Any]:
    draft = draft_beside(method, config)
    assert draft is not None
    return {**draft, "max_position_embeddings": length, **keys}


def sized(
    name: str, release: str, own: int, drafts: int, method: str = "draft_model", **more: Any
) -> SizeResult:
    keys = more.pop("keys", {})
    config = target(name, own)
    options = {
        "kv_cache_memory": 40 * GIB,
        "speculative_method": method,
        "num_speculative_tokens": 2,
        "speculative_model": beside(method, config, drafts, **keys),
    }
    return kvplan.size(config, engine=f"vllm@{release}", gpu="h100", **{**options, **more})


@given(own=LENGTHS, drafts=LENGTHS, asked=st.none() | LENGTHS)
def test_since_0_33_no_request_is_longer_than_the_draft_model_bears(
    own: int, drafts: int, asked: int | None
) -> None:
    for release in ("0.32", "0.33"):
        found = sized("llama", release, own, drafts, max_model_len=asked)
        wanted = asked or own
        if wanted > own:
            assert found.refusal is not None
            assert found.refusal.code == "max-model-len"
            continue
        bound = min(wanted, drafts) if release == "0.33" else wanted
        assert found.settings["max_model_len"] == bound
        said = any("the draft's, not" in text for text in found.warnings)
        assert said == (bound < wanted)


def test_the_first_runner_leaves_drafts_out_of_longer_requests() -> None:
    assert sized("llama", "0.33", 40960, 8192).settings["max_model_len"] == 8192
    assert sized("llama", "0.33", 40960, 8192, model_runner="v1").settings["max_model_len"] == 40960


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        (None, 40960),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 40960),
        ({"rope_type": "linear", "factor": 1.0}, 40960),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8192}, 16384),
    ],
)
def test_a_head_takes_its_targets_positions_where_its_table_can_grow(rope: Any, length: int) -> None:
    keys = {} if rope is None else {"rope_scaling": rope}
    found = sized("llama", "0.33", 40960, 16384, "eagle3", keys=keys)
    assert found.settings["max_model_len"] == length


@pytest.mark.parametrize("release", ["0.22", "0.27", "0.32", "0.33"])
@pytest.mark.parametrize("name", STATES)
def test_states_without_prefix_caching_take_no_shorter_draft_model(name: str, release: str) -> None:
    refused = sized(name, release, 40960, 8192, enable_prefix_caching=False).refusal
    assert refused is not None
    assert refused.code == "speculative"
    assert "prefix caching" in refused.message
    for more in ({"enable_prefix_caching": True}, {"enable_prefix_caching": False, "max_model_len": 8192}):
        served = sized(name, release, 40960, 8192, **more).refusal
        assert served is None or "page sizes" in served.message  # before 0.26 states are not padded


def test_until_0_28_that_is_the_default_of_hybrids() -> None:
    refused = sized("qwen3-next", "0.27", 40960, 8192).refusal
    assert refused is not None
    assert refused.code == "speculative"
    assert sized("qwen3-next", "0.28", 40960, 8192).refusal is None
