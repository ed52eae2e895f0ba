"""Metrics pages and server information, from text of our own."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.engines.observed import Observation
from kvplan.engines.observed.page import LiveSample, live_sample, number, observation_of_metrics, samples
from kvplan.engines.sglang.words.info import observation_of_server_info
from kvplan.errors import KvplanError

VLLM = b"""\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="fp8_e4m3",effective_attention_block_size="544",\
enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",kv_cache_max_concurrency="12.345678",\
kv_cache_size_tokens="50567",num_gpu_blocks="1000",num_gpu_blocks_override="None",sliding_window="None",\
mamba_cache_mode="align"} 1.0
vllm:cache_config_info{block_size="16",cache_dtype="fp8_e4m3",engine="1",kv_cache_max_concurrency="11.5",\
kv_cache_size_tokens="47104",num_gpu_blocks="990"} 1.0
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 4.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1500.0
vllm:prefix_cache_queries_total{engine="1",model_name="tiny"} 5e+02
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 900.0
vllm:prefix_cache_hits_total{engine="1",model_name="tiny"} 100.0
vllm:num_preemptions_total{engine="0",model_name="tiny"} 7.0 1700000000000
python_gc_objects_collected_total{generation="0"} 1.0
"""

SGLANG = b"""\
sglang:max_total_num_tokens{dp_rank="0",model_name="t",tp_rank="0"} 500000.0
sglang:max_total_num_tokens_swa{dp_rank="0",tp_rank="0"} 400000.0
sglang:weight_memory_usage_gb{dp_rank="0",tp_rank="0"} 8.25
sglang:kv_cache_memory_usage_gb{dp_rank="0",tp_rank="0"} 57.220458984375
sglang:graph_memory_usage_gb{dp_rank="0",phase="decode",tp_rank="0"} 0.5
sglang:graph_memory_usage_gb{dp_rank="0",phase="prefill",tp_rank="0"} 0.25
sglang:page_size{dp_rank="0",tp_rank="0"} 64.0
sglang:context_len{dp_rank="0",tp_rank="0"} 131072.0
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.95
sglang:swa_token_usage{dp_rank="0",tp_rank="0"} 0.5
sglang:mamba_usage{dp_rank="0",tp_rank="0"} NaN
sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 12.0
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 12.0
sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 5.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 2.0
sglang:num_used_tokens{dp_rank="0",tp_rank="0"} 475000.0
sglang:cache_hit_rate{dp_rank="0",tp_rank="0"} 0.4
sglang:num_retracted_requests_total{dp_rank="0",tp_rank="0"} 3.0
"""


def observed(body: bytes) -> Observation:
    found = observation_of_metrics(body)
    assert found is not None
    return found


def printed(observation: Observation, name: str) -> str | None:
    figure = observation.get(name)
    return None if figure is None else figure.printed


def test_vllm_s_pool() -> None:
    observation = observed(VLLM)
    assert (observation.engine, observation.source) == ("vllm", "metrics")
    assert [(row.rank.label, row.rank.dp) for row in observation.rows] == [("engine 0", 0), ("engine 1", 1)]
    # The smallest engine decides.
    assert printed(observation, "num_blocks") == "990"
    assert printed(observation, "kv_tokens") == "47,104"
    first = observation.rows[0]
    assert first.block_size is not None
    assert first.block_size.value == 544
    assert first.max_concurrency is not None
    assert first.max_concurrency.value == Fraction("12.345678")
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values == {
        "block_size": 16,
        "kv_cache_dtype": "fp8_e4m3",
        "enable_prefix_caching": True,
        "gpu_memory_utilization": Fraction(23, 25),
        "num_gpu_blocks_override": None,
        "sliding_window": None,
        "mamba_cache_mode": "align",
        "served_model_name": "tiny",
    }


def test_vllm_s_load() -> None:
    sample = live_sample(VLLM)
    assert sample == LiveSample(
        "vllm",
        usage=Fraction(1, 2),
        running=7,
        waiting=1,
        preemptions=7,
        queries=2000,
        hits=1000,
        hit_rate=Fraction(1, 2),
    )


def test_older_and_sanitised_names() -> None:
    text = VLLM.replace(b"vllm:kv_cache_usage_perc", b"vllm_gpu_cache_usage_perc").replace(b"vllm:", b"vllm_")
    assert live_sample(text) == live_sample(VLLM)
    assert printed(observed(text), "kv_tokens") == "47,104"


def test_sglang() -> None:
    observation = observed(SGLANG)
    assert observation.engine == "sglang"
    assert observation.setting("max_model_len") == 131072
    names = ("kv_tokens", "swa_tokens", "weights_bytes", "kv_bytes", "cuda_graph_bytes", "block_size")
    assert {name: printed(observation, name) for name in names} == {
        "kv_tokens": "500,000",
        "swa_tokens": "400,000",
        "weights_bytes": "8.25 GiB",
        "kv_bytes": "57.220458984375 GiB",
        "cuda_graph_bytes": "0.5 GiB + 0.25 GiB",
        "block_size": "64",
    }
    kv = observation.count("kv_bytes")
    assert kv is not None
    assert kv.contains(500_000 * 122_880)
    assert live_sample(SGLANG) == LiveSample(
        "sglang",
        usage=Fraction(19, 20),
        running=17,  # ranks of one engine repeat each other
        waiting=2,
        preemptions=3,
        hit_rate=Fraction(2, 5),
        used_tokens=475_000,
        swa_usage=Fraction(1, 2),
    )


def test_other_pages_are_none() -> None:
    assert observation_of_metrics(b"go_threads 7\n") is None
    assert live_sample(b"<html>") is None
    nothing = observed(b"vllm:num_requests_running 1\n")
    assert not nothing.rows
    assert nothing.notes


def test_rates_between_two_samples() -> None:
    before = LiveSample("vllm", queries=100, hits=90, hit_rate=Fraction(9, 10), preemptions=4)
    after = LiveSample("vllm", queries=200, hits=110, hit_rate=Fraction(11, 20), preemptions=9)
    assert after.hit_rate_since(before) == Fraction(1, 5)
    assert after.preemptions_since(before) == 5
    assert before.hit_rate_since(after) is None  # restarted
    assert before.preemptions_since(after) is None
    assert after.hit_rate_since(after) is None
    gauge = LiveSample("sglang", hit_rate=Fraction(1, 3))
    assert gauge.hit_rate_since(gauge) == Fraction(1, 3)
    assert gauge.preemptions_since(gauge) is None


def test_labels_with_escapes() -> None:
    line = rb'vllm:x{a="quote \" brace } comma , slash \\ line \n",b="",} 2.5 17'
    [sample] = samples(line, ("vllm:",))
    assert sample.labels == {"a": 'quote " brace } comma , slash \\ line \n', "b": ""}
    assert sample.value == Fraction(5, 2)
    assert [each.value for each in samples(b"vllm:x{} 1\nvllm:y 2\nvllm:z{a=b} 3\nvllm:w\n", ("vllm:",))] == [
        1,
        2,
    ]


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "1e999999999", "x", "", "1" * 100])
def test_what_is_no_number(text: str) -> None:
    assert number(text) is None


def test_numbers() -> None:
    assert number("1.5e+03") == 1500
    assert number("5e-324") is not None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b"vllm:cache_config_info{", b"sglang:token_usage", b'a="', b'"', b"}", b",", b"\n", b" 1"]
            ),
            st.sampled_from(VLLM.splitlines() + SGLANG.splitlines()),
        ),
        max_size=30,
    )
)
def test_any_page(parts: list[bytes]) -> None:
    body = b"".join(parts)
    observation_of_metrics(body)
    live_sample(body)


INFO = {
    "model_path": "org/tiny",
    "tp_size": 8,
    "mem_fraction_static": 0.875,
    "context_length": None,
    "max_total_num_tokens": 500000,
    "version": "0.5.9",
    "internal_states": [
        {
            "memory_usage": {
                "weight": 8.25,
                "kvcache": 57.22,
                "startup_available": 9,
                "token_capacity": 500000,
                "token_capacity_swa": None,
                "graph": {"decode": 0.5, "prefill": 0.125},
            }
        },
        {"memory_usage": {"weight": 8.25, "kvcache": 50.125, "token_capacity": 438000, "graph": 0.75}},
    ],
}


def test_server_information() -> None:
    observation = observation_of_server_info(json.dumps(INFO).encode())
    assert (observation.engine, observation.engine_version, observation.source) == (
        "sglang",
        "0.5.9",
        "server info",
    )
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values == {
        "model": "org/tiny",
        "tensor_parallel_size": 8,
        "mem_fraction_static": Fraction(7, 8),
        "max_model_len": None,
    }
    assert [row.rank.label for row in observation.rows] == ["DP0", "DP1"]
    assert printed(observation, "kv_tokens") == "438,000"
    assert printed(observation, "cuda_graph_bytes") == "0.75 GiB"
    assert observation.rows[0].cuda_graph_bytes is not None
    assert observation.rows[0].cuda_graph_bytes.printed == "0.5 GiB + 0.125 GiB"


def test_older_server_information() -> None:
    observation = observation_of_server_info(
        b'{"server_args": {"model_path": "m"}, "max_total_num_tokens": 7}'
    )
    assert observation.setting("model") == "m"
    assert printed(observation, "kv_tokens") == "7"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"[" * 100_000, b'{"internal_states": 3}', b"\xff", b"1e5"]
)
def test_what_is_no_server_information(body: bytes) -> None:
    with pytest.raises(KvplanError) as caught:
        observation_of_server_info(body)
    assert caught.value.code == "bad-answer"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(INFO)), JSON), JSON)
def test_any_server_information(told: dict[str, object], used: object) -> None:
    body = json.dumps(
        {**told, "internal_states": [{"memory_usage": used}, {"memory_usage": {"weight": used}}]}
    )
    observation_of_server_info(body.encode())
