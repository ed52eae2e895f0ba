"""The library's contract: names, texts for sizes, documented JSON, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.errors import KvplanError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def test_a_dict_a_file_a_directory_and_a_model_answer_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    answers = {
        kvplan.size(model, engine="generic").total.kv_bytes
        for model in (LLAMA, path, str(path), tmp_path, kvplan.load_model(LLAMA))
    }
    assert answers == {17_179_869_184}


def test_texts_and_short_names_are_taken() -> None:
    long = kvplan.size(
        LLAMA, engine="generic", tokens=32768, tensor_parallel_size=4, requests=3, kv_cache_dtype="fp8"
    )
    short = kvplan.size(
        LLAMA, engine="generic", tokens="32k", tp=4, settings={"batch_size": 3, "kv_dtype": "fp8_e4m3"}
    )
    assert long.model_dump() == short.model_dump()


def test_the_documented_json() -> None:
    """Every key of the contract, plain JSON values, integers for bytes."""
    answer = kvplan.size(LLAMA, engine="generic", tokens=100, requests=2).model_dump()
    assert json.loads(json.dumps(answer)) == answer
    assert {
        "schema_version", "model", "engine", "settings", "request", "per_gpu", "total", "layers", "pool",
        "warnings",
    } <= set(answer)  # fmt: skip
    assert set(answer["model"]) == {"id", "source"}
    assert set(answer["engine"]) == {"name", "version"}
    assert answer["request"] == {"tokens": 100, "encoder_tokens": 0, "count": 2, "answer_tokens": 12}
    assert answer["per_gpu"] == {
        "kv_bytes_per_request": 13_107_200,
        "kv_bytes": 26_214_400,
        "peak_bytes": 26_214_400,
        "bytes_per_token": 131_072,
        "fixed_bytes_per_request": 0,
        "prompt_bytes_per_request": 13_107_200,
        "reserved_bytes_per_request": 13_107_200,
    }
    assert answer["deployment"] == {
        "gpus": 1, "gpus_per_replica": 1, "replicas": 1, "pools": 1, "idle_gpus": 0, "requests": 2,
        "chosen": {}, "typed": ["tokens", "requests"],
    }  # fmt: skip
    assert (answer["capacity"], answer["verdict"]) == (None, None)
    assert answer["total"] == {"kv_bytes_per_request": 13_107_200, "kv_bytes": 26_214_400}
    (layer,) = answer["layers"]
    assert layer["family"] == "full_attention"
    assert layer["count"] == 32
    assert {"name", "factors", "packing", "entry_bytes", "grows", "keep_last", "stride", "shards"} <= set(
        layer["terms"][0]
    )
    assert layer["terms"][0]["factors"] == [["num_kv_heads", 8], ["head_dim", 128]]
    assert answer["pool"] is None


def test_the_terms_are_what_the_number_was_multiplied_from() -> None:
    answer = kvplan.size(LLAMA, engine="generic", tokens=777).model_dump()
    total = 0
    for layer in answer["layers"]:
        for term in layer["terms"]:
            elements = 1
            for _, value in term["factors"]:
                elements *= value
            assert (
                term["entry_bytes"] == -(-elements // term["packing"]["elements"]) * term["packing"]["bytes"]
            )
            total += layer["count"] * term["entry_bytes"] * 777
    assert total == answer["total"]["kv_bytes"]


def test_a_pool_of_a_given_size() -> None:
    pool = kvplan.size(
        LLAMA, engine="vllm@0.32", tokens=4096, kv_cache_memory="16GiB", max_model_len=4096
    ).pool
    assert pool is not None
    assert pool.num_blocks == 8192
    assert pool.bytes_per_block == 2_097_152
    assert pool.max_concurrency == 32.0
    assert pool.requests_that_fit == 31  # block 0 is never usable


def test_an_engine_that_would_not_start_is_an_answer() -> None:
    answer = kvplan.size(LLAMA, engine="vllm@0.32", kv_cache_memory="16GiB")
    assert not answer.ok
    assert answer.refusal is not None
    assert answer.refusal.largest_max_model_len == 131_056


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"tokens": -1}, "bad-count"),
        ({"tokens": "lots"}, "bad-count"),
        ({"requests": 0}, "bad-setting"),
        ({"requests": 1.5}, "bad-setting"),
        ({"tensor_parallel_size": 10**30}, "bad-setting"),
        ({"kv_cache_memory": "16"}, "bad-size"),
        ({"kv_cache_dtype": "fp9"}, "unknown-dtype"),
        ({"dtype": "bfloat61"}, "unknown-dtype"),
        ({"engine": "vlm"}, "unknown-engine"),
        ({"engine": "vllm@latest"}, "bad-version"),
        ({"engine": "vllm@0.1"}, "bad-version"),
        ({"tensor_parallel": 2}, "unknown-option"),
        ({"gpu": "h1000"}, "unknown-gpu"),
        ({"usage": "chat"}, "bad-setting"),
    ],
)
def test_bad_options_are_errors_with_a_code(options: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(LLAMA, **options)
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_near_misses_are_suggested() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(LLAMA, tensor_parallel_sise=2)  # type: ignore[call-overload]
    assert "tensor_parallel_size" in str(caught.value.help)


def test_an_unknown_newer_version_warns_and_uses_the_newest_rules() -> None:
    answer = kvplan.size(LLAMA, engine="vllm@9.9", tokens=4096)
    assert any("9.9" in warning for warning in answer.warnings)


def test_the_textbook_takes_state_dtypes_too() -> None:
    """2 · 2,097,152 B of Mamba-2 state an element size, and the conv state beside it."""
    mamba = {
        "model_type": "mamba2",
        "num_hidden_layers": 1,
        "num_heads": 128,
        "head_dim": 64,
        "state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "hidden_size": 4096,
    }
    conv, state = 3 * (8192 + 2 * 8 * 128), 128 * 64 * 128
    asked: tuple[tuple[dict[str, Any], int], ...] = (
        ({}, 2 * conv + 4 * state),
        ({"mamba_ssm_cache_dtype": "bfloat16"}, 2 * conv + 2 * state),
        ({"mamba_cache_dtype": "float32"}, 4 * conv + 4 * state),
    )
    for dtypes, expected in asked:
        assert kvplan.size(mamba, engine="generic", tokens=10, **dtypes).total.kv_bytes == expected


def test_attention_groups_lie_inside_tensor_parallelism() -> None:
    settings = make_settings(gpu="h200x8", dp=8, enable_dp_attention=True)
    assert (settings.tensor_parallel_size, settings.data_parallel_size) == (8, 8)
    with pytest.raises(KvplanError, match="take 64 GPUs"):
        make_settings(gpu="h200x8", dp=8, tp=8)


def test_speculation_that_is_changed_is_taken_apart() -> None:
    """As `make_settings` takes it: a help that names --speculative is asked again with it."""
    from kvplan.api import changed_settings
    from kvplan.settings import Settings

    found = changed_settings(Settings(), {"speculative_config": "mtp:2"})
    assert (found.speculative_method, found.num_speculative_tokens) == ("mtp", 2)
