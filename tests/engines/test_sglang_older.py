"""SGLang 0.4.6 to 0.5.7: what their own code does otherwise (engines/sglang/start/models.py and its like)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.api.launching import started_readings
from kvplan.engines import choose_engine
from kvplan.engines.sglang.answer_settings import older_fraction
from kvplan.engines.sglang.engine import Sglang
from kvplan.engines.sglang.start.memory_defaults import Serving, capacity_for, graph_max_batch
from kvplan.engines.sglang.start.models import had_window_pool, has_fa3, is_in_transformers
from kvplan.engines.sglang.versions import VERSIONS

GIB = 2**30
OLDER = VERSIONS[: VERSIONS.index("0.5.8")]
DRAFT: dict[str, Any] = {"speculative_method": "mtp", "num_speculative_tokens": 3, "tensor_parallel_size": 8}


def size(model: str, version: str, gpu: str = "h100-sxm-80gb", **options: Any) -> Any:
    asked = make_settings(**{"kv_cache_memory": 5 * GIB, **options}, gpu=gpu)
    return Sglang().size(load_model(model), asked, version)


def shown(model: str, version: str, gpu: str = "h100-sxm-80gb", **options: Any) -> Any:
    result = size(model, version, gpu, **options)
    assert result.refusal is None, result.refusal
    return result.settings


@pytest.mark.parametrize("version", OLDER)
def test_a_plain_model_has_the_same_pool(version: str) -> None:
    """What has no windows, states or drafts is divided as today."""
    assert shown("llama-3.1-8b", version)["max_total_num_tokens"] == 5 * GIB // (32 * 2 * 8 * 128 * 2)
    assert shown("llama-3.1-8b", version)["attention_backend"] == "fa3"


def test_one_request_more_ran_in_0_4_6() -> None:
    counts = [shown("llama-3.1-8b", version)["max_running_requests"] for version in ("0.4.6", "0.4.7")]
    assert counts == [2049, 2048]
    told = [
        shown("llama-3.1-8b", version, max_num_seqs=64)["max_running_requests"]
        for version in ("0.4.6", "0.4.7")
    ]
    assert told == [64, 64]


@pytest.mark.parametrize(
    ("version", "most"), [("0.5.9", 3000), ("0.5.10", 2048), ("0.5.13", 2048), ("0.5.14", 1500)]
)
def test_what_bounds_the_requests_asked_for(version: str, most: int) -> None:
    """Nothing; the own estimate; half the tokens."""
    asked: dict[str, Any] = {"max_num_seqs": 3000, "max_total_tokens": 3000}
    assert shown("llama-3.1-8b", version, **asked)["max_running_requests"] == most


def test_drafts_had_places_of_their_own_until_0_5_6() -> None:
    """Three steps and four verified tokens for 48 requests, and 100."""
    old, new = (
        shown("deepseek-v3", version, kv_cache_memory=50 * GIB, **DRAFT)["max_total_num_tokens"]
        for version in ("0.5.6", "0.5.7")
    )
    assert old - new == 48 * (3 + 4) + 100


@pytest.mark.parametrize(
    ("model", "version", "gpu", "backend", "page"),
    [
        ("mistral-7b-v0.3", "0.5.7", "h100-sxm-80gb", "flashinfer", 1),
        ("mistral-7b-v0.3", "0.5.8", "h100-sxm-80gb", "fa3", 1),
        ("llama-3.1-8b", "0.5.5", "b200-sxm-180gb", "flashinfer", 1),
        ("llama-3.1-8b", "0.5.6", "b200-sxm-180gb", "trtllm_mha", 64),
        ("deepseek-v3", "0.4.6", "b200-sxm-180gb", "triton", 1),
        ("deepseek-v3", "0.5.2", "b200-sxm-180gb", "flashinfer", 1),
        ("deepseek-v3", "0.5.3", "b200-sxm-180gb", "trtllm_mla", 64),
        ("deepseek-v3.2", "0.5.12", "h100-sxm-80gb", "nsa", 64),
        ("deepseek-v3.2", "0.5.13", "h100-sxm-80gb", "dsa", 64),
    ],
)
def test_backends_and_pages(model: str, version: str, gpu: str, backend: str, page: int) -> None:
    found = shown(model, version, gpu, kv_cache_memory=60 * GIB)
    assert (found["attention_backend"], found["page_size"]) == (backend, page)


def test_windows_got_a_pool_of_their_own_with_0_5_8() -> None:
    with_pool = [version for version in VERSIONS if _window("gpt-oss-20b", version)]
    assert with_pool == [*VERSIONS[VERSIONS.index("0.5.8") :]]


def _window(model: str, version: str) -> bool:
    return "swa_max_total_num_tokens" in size(model, version).settings


def test_gemma_had_one_for_two_releases() -> None:
    """0.4.9 counted the window layers of any class that says a window; 0.4.10 left Gemma 2 out, 0.5.1 all."""
    assert [version for version in OLDER if had_window_pool("Gemma2ForCausalLM", version)] == ["0.4.9"]
    assert [version for version in OLDER if had_window_pool("Gemma3ForCausalLM", version)] == [
        "0.4.9",
        "0.4.10",
    ]
    assert [version for version in OLDER if _window("gemma-3-27b", version)] == ["0.4.9", "0.4.10"]


def test_llama_4_must_be_told_its_backend() -> None:
    """From 0.4.10 to 0.5.5 an assertion meets None."""
    refused = [version for version in OLDER if size("llama-4-scout", version, tensor_parallel_size=8).refusal]
    assert refused == [*OLDER[OLDER.index("0.4.10") : OLDER.index("0.5.6")]]
    told = size("llama-4-scout", "0.5.3", tensor_parallel_size=8, attention_backend="fa3")
    assert told.refusal is None


def test_states_were_as_many_as_requests_before_0_5_3() -> None:
    asked: dict[str, Any] = {"tensor_parallel_size": 4, "kv_cache_memory": 40 * GIB}
    slots = {
        version: shown("qwen3-next-80b-a3b", version, **asked)["max_mamba_cache_size"]
        for version in ("0.5.2", "0.5.3", "0.5.7")
    }
    assert slots["0.5.2"] == 512
    assert slots["0.5.3"] == slots["0.5.7"] != 512
    assert shown("qwen3-next-80b-a3b", "0.5.2", max_num_seqs=77, **asked)["max_mamba_cache_size"] == 77
    per = {
        version: shown("qwen3-next-80b-a3b", version, **asked)["state_slots_per_request"]
        for version in ("0.5.2", "0.5.3", "0.5.7", "0.5.8")
    }
    assert per == {"0.5.2": 1, "0.5.3": 3, "0.5.7": 5, "0.5.8": 3}


def test_classes_that_come_from_transformers() -> None:
    """Its own fallback came with 0.4.7; a class of transformers with the release's pin."""
    assert not is_in_transformers("GPTNeoXForCausalLM", "0.4.6")
    assert is_in_transformers("GPTNeoXForCausalLM", "0.4.7")
    for version in OLDER:
        refused = size("seed-oss-36b", version, kv_cache_memory=40 * GIB).refusal is not None
        assert refused == (version in OLDER[: OLDER.index("0.5.2")])


def test_lists_only_grow() -> None:
    names = (
        "LlamaForCausalLM",
        "Glm4MoeForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "MistralForCausalLM",
    )
    for name in names:
        has = [has_fa3(name, version) for version in OLDER]
        assert has == sorted(has)


TABLES = ("0.4.6", "0.4.7", "0.5.3", "0.5.4", "0.5.20")


@given(
    memory=st.integers(8_000, 300_000),
    tp=st.sampled_from((1, 2, 4, 8, 16)),
    table=st.sampled_from(TABLES[:4]),
    groups=st.sampled_from((0, 2, 8)),
    drafts=st.sampled_from((0, 2048, 6144)),
    vision=st.sampled_from((None, (24, 1024), (45, 3200))),
)
def test_more_beside_the_cache_is_a_smaller_fraction(
    memory: int, tp: int, table: str, groups: int, drafts: int, vision: tuple[int, int] | None
) -> None:
    def of(**more: Any) -> Fraction:
        chunk = capacity_for(memory, table=table).chunked_prefill_size
        batch = graph_max_batch(memory, tp, table=table)
        return older_fraction(
            memory, Serving(tp=tp, chunked_prefill_size=chunk, graph_batch=batch, **more), table
        )

    plain = of()
    assert plain < 1
    assert of(attn_dp=groups) <= plain
    assert of(drafts=drafts if table != "0.4.6" else 0) <= plain
    assert of(vision=vision) <= plain or plain < 0


def test_fractions_as_the_releases_say_them() -> None:
    """An H100 of 81,559 MiB, an H200 of 143,771."""
    assert [older_fraction(81_559, Serving(tp=tp), "0.4.6") for tp in (1, 2, 4, 8, 16)] == [
        Fraction(share) for share in ("0.88", "0.87", "0.85", "0.81", "0.79")
    ]
    assert older_fraction(81_559, Serving(tp=1), "0.4.7") == Fraction("0.874")
    assert older_fraction(143_771, Serving(tp=8), "0.4.7") == Fraction("0.886")
    assert older_fraction(None, Serving(), "0.4.7") == Fraction("0.88")


def test_an_image_model_left_a_tenth_until_0_4_8() -> None:
    """Given or not; since 0.4.9 it is the automatic one alone, by the encoder's size."""
    for version, kept in (("0.4.8", 0.45), ("0.4.9", 0.5)):
        found = shown("qwen2.5-vl-7b", version, mem_fraction_static="0.5")
        assert found["mem_fraction_static"] == pytest.approx(kept)


def test_a_part_of_a_version_is_the_newest_of_its_releases() -> None:
    assert choose_engine("sglang@0.5").version == "0.5.23"
    assert "several releases" in (choose_engine("sglang@0.4").warning or "")
    assert choose_engine("sglang@0.4").version == "0.4.10"
    assert choose_engine("sglang@0.5.7").warning is None


@pytest.mark.parametrize("version", ["0.5.10", "0.5.12", "0.5.13"])
@pytest.mark.parametrize(("name", "requests"), [("qwen3-next-80b-a3b", 157), ("qwen3.5-122b-a10b", 79)])
def test_states_in_extra_buffers_are_heard_since_0510(name: str, requests: int, version: str) -> None:
    """As the releases' own planners say of 30 GiB over four ranks (made without a buffer: 263 and 132); with
    it the model's own layers speculate beside reused states, without it the server does not start."""
    asked: dict[str, Any] = {
        "engine": f"sglang@{version}",
        "gpu": "h200",
        "tensor_parallel_size": 4,
        "kv_cache_memory": "30GiB",
        "tokens": 16,
    }
    drafts: dict[str, Any] = {"speculative_method": "mtp", "num_speculative_tokens": 3}
    buffered: dict[str, Any] = {"mamba_radix_cache_strategy": "extra_buffer"}
    assert kvplan.size(name, **asked, **buffered).settings["max_running_requests"] == requests
    assert kvplan.size(name, **asked, **buffered, **drafts).refusal is None
    refusal = kvplan.size(name, **asked, **drafts).refusal
    assert refusal is not None
    assert refusal.help[0] == "--mamba-radix-cache-strategy extra_buffer"


def test_flags_by_their_older_names_are_read() -> None:
    """SGLang's cookbook starts Qwen3.6 with the first, GLM-5.1 on AMD with the others."""
    line = (
        "sglang serve --model-path Qwen/Qwen3.6-35B-A3B-FP8 --mamba-scheduler-strategy extra_buffer"
        " --nsa-prefill-backend tilelang --nsa-decode-backend tilelang"
    )
    (reading,) = started_readings(line, "h200")
    assert reading.plan is not None
    assert reading.plan.unread == ()
    assert dict(reading.plan.serve) == {
        "mamba_radix_cache_strategy": "extra_buffer",
        "dsa_prefill_backend": "tilelang",
        "dsa_decode_backend": "tilelang",
    }
