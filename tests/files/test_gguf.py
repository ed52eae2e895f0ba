"""GGUF headers: facts of the model, what is refused, and the tables of architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.gguf.table import NO_CACHE, PLAIN, REFUSED, SPECIAL, known_architectures
from kvplan.errors import KvplanError
from kvplan.files.gguf.header import read_gguf
from kvplan.model import EncoderInput
from tests.files.gguf_files import (
    BASE,
    FULL,
    GQA,
    HYBRID_KV,
    INDEXER,
    MAMBA2,
    MLA,
    Q4_K_M,
    SSM,
    WINDOW,
    write,
)

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")


def test_facts_of_the_model(tmp_path: Path) -> None:
    path = write(
        tmp_path, "llama", GQA, general={"general.file_type": Q4_K_M}, tokens=5000, name="Llama-3-8B.gguf"
    )
    model = read_gguf(path)
    assert (model.id, model.source, model.model_type) == ("Llama-3-8B", str(path), "llama")
    assert (model.max_model_len, model.hidden_size, model.num_attention_heads) == (8192, 1024, 8)
    assert (model.vocab_size, model.quantization, model.dtype) == (5000, "q4_k_m", None)
    assert model.provenance.keys["full_attention"] == {
        "num_kv_heads": "llama.attention.head_count_kv",
        "head_dim": "llama.attention.key_length",
    }
    assert model.warnings == ()
    result = kvplan.size(model, engine="generic", tokens=4096)
    assert result.total.kv_bytes_per_request == 6 * 2 * 2 * 64 * 2 * 4096


@pytest.mark.parametrize(("file_type", "dtype"), [(0, "float32"), (1, "float16"), (32, "bfloat16")])
def test_a_file_that_is_not_quantised_has_a_dtype(tmp_path: Path, file_type: int, dtype: str) -> None:
    model = read_gguf(write(tmp_path, "llama", GQA, general={"general.file_type": file_type}))
    assert (model.dtype, model.quantization) == (dtype, None)


def test_an_unknown_file_type_is_not_an_error(tmp_path: Path) -> None:
    model = read_gguf(write(tmp_path, "llama", GQA, general={"general.file_type": 1000}))
    assert model.quantization == "file type 1000"


def test_t5_has_an_encoder(tmp_path: Path) -> None:
    model = read_gguf(write(tmp_path, "t5", BASE))
    assert model.encoder is not None
    assert model.encoder.input is EncoderInput.TEXT


def test_no_cache_is_explained(tmp_path: Path) -> None:
    assert "encoder" in str(read_gguf(write(tmp_path, "bert", GQA)).no_cache_reason)


def test_a_window_that_has_no_effect_is_said(tmp_path: Path) -> None:
    (warning,) = read_gguf(write(tmp_path, "phi3", {**GQA, **WINDOW})).warnings
    assert warning.startswith("phi3.attention.sliding_window has no effect")
    (warning,) = read_gguf(write(tmp_path, "llama", {**GQA, **WINDOW})).warnings
    assert warning.startswith("llama.attention.sliding_window has no effect")


def test_an_unknown_plain_decoder_is_read_with_a_warning(tmp_path: Path) -> None:
    model = read_gguf(write(tmp_path, "qwen9", GQA))
    assert [layer.parts for layer in model.layers()] == [(FULL,)] * 6
    assert "'qwen9' is not known" in model.warnings[0]


@pytest.mark.parametrize(
    "keys",
    [
        {**GQA, **WINDOW},
        {**GQA, **SSM},
        {**MLA},
        {**GQA, **INDEXER},
        {**GQA, **HYBRID_KV},
        {**GQA, "full_attention_interval": 4},
        {**GQA, "wkv.head_size": 64},
        {key: value for key, value in GQA.items() if key != "attention.head_count"},
    ],
)
def test_an_unknown_architecture_is_refused_when_a_key_speaks_against_it(
    tmp_path: Path, keys: dict[str, Any]
) -> None:
    with pytest.raises(KvplanError) as caught:
        read_gguf(write(tmp_path, "newarch", keys))
    assert (caught.value.code, caught.value.exit_code) == ("unknown-model-type", 2)
    assert "general.architecture is 'newarch'" in caught.value.message


@pytest.mark.parametrize("architecture", sorted(REFUSED))
def test_what_no_family_describes_is_refused(tmp_path: Path, architecture: str) -> None:
    with pytest.raises(KvplanError) as caught:
        read_gguf(write(tmp_path, architecture, GQA))
    assert caught.value.code == "not-a-model"
    assert repr(architecture) in caught.value.message


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_other_kinds_of_file_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(KvplanError, match=r"general\.type"):
        read_gguf(write(tmp_path, "llama", GQA, general={"general.type": kind}))


@pytest.mark.parametrize(
    ("architecture", "keys", "key"),
    [
        ("llama", {}, "llama.block_count"),
        ("llama", {"block_count": 0}, "llama.block_count"),
        ("llama", {"block_count": 10**9}, "llama.block_count"),
        ("llama", {"block_count": "six"}, "llama.block_count"),
        ("llama", {"block_count": 2.5}, "llama.block_count"),
        ("llama", {"block_count": 6}, "llama.attention.head_count"),
        ("llama", {"block_count": 6, "attention.head_count": 8}, "llama.embedding_length"),
        ("llama", {**GQA, "attention.head_count": 0}, "llama.attention.head_count"),
        ("llama", {**GQA, "attention.head_count_kv": [2, 2]}, "llama.attention.head_count_kv"),
        ("llama", {**GQA, "attention.key_length": True}, "llama.attention.key_length"),
        ("llama", {**GQA, "nextn_predict_layers": 9}, "llama.nextn_predict_layers"),
        ("cohere2", GQA, "cohere2.attention.sliding_window"),
        ("gpt-oss", {**GQA, "attention.sliding_window": 0}, "gpt-oss.attention.sliding_window"),
        ("mimo2", {**GQA, **WINDOW}, "mimo2.attention.sliding_window_pattern"),
        (
            "mimo2",
            {**GQA, **WINDOW, "attention.sliding_window_pattern": [True]},
            "mimo2.attention.sliding_window_pattern",
        ),
        ("mamba", {**BASE, "attention.head_count": 0}, "mamba.ssm."),
        ("mamba2", {**BASE, **MAMBA2, "ssm.time_step_rank": 31}, "mamba2.ssm.time_step_rank"),
        ("jamba", {**BASE, **SSM}, "jamba.attention.head_count_kv"),
        ("rwkv6", BASE, "rwkv6.wkv.head_size"),
        ("deepseek2", {**MLA, "attention.head_count_kv": 8}, "deepseek2.attention.head_count_kv"),
        ("deepseek2", {**MLA, "attention.key_length": 100}, "deepseek2.attention.key_length"),
        ("deepseek2", {**MLA, "attention.kv_lora_rank": 0}, "deepseek2.attention.kv_lora_rank"),
        ("nanbeige", {**GQA, "num_loops": 10**6}, "nanbeige.num_loops"),
    ],
)
def test_values_that_cannot_be_name_their_key(
    tmp_path: Path, architecture: str, keys: dict[str, Any], key: str
) -> None:
    with pytest.raises(KvplanError) as caught:
        read_gguf(write(tmp_path, architecture, keys))
    assert caught.value.exit_code == 2
    assert key in caught.value.message


def test_the_tables_do_not_overlap() -> None:
    groups = [set(SPECIAL), set(PLAIN), set(NO_CACHE), set(REFUSED)]
    assert sum(len(group) for group in groups) == len(set().union(*groups))
    assert len(known_architectures()) > 120


@pytest.mark.parametrize("architecture", sorted(PLAIN))
def test_every_plain_architecture_is_read(tmp_path: Path, architecture: str) -> None:
    model = read_gguf(write(tmp_path, architecture, GQA))
    assert ([layer.parts for layer in model.layers()], model.warnings) == ([(FULL,)] * 6, ())


# Files that are incomplete, in parts, of the other byte order, or not GGUF at all.
