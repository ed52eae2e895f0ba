"""GGUF headers of many architectures, incomplete files and hostile ones; all are written here."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    NoCache,
    Part,
    Rwkv5,
    SharedKv,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
)
from kvplan.model import EncoderInput
from kvplan.readers.gguf_architectures import NO_CACHE, PLAIN, REFUSED, SPECIAL, known_architectures
from kvplan.readers.gguf_header import read_gguf
from kvplan.readers.sources import open_model

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

BASE = {"context_length": 8192, "embedding_length": 1024, "block_count": 6, "attention.head_count": 8}
GQA = {**BASE, "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64}
FULL = FullAttention(2, 64)
Q4_K_M = 15


def write(
    folder: Path,
    architecture: str,
    keys: dict[str, Any],
    *,
    general: dict[str, Any] | None = None,
    tokens: int = 0,
    name: str = "model.gguf",
    big: bool = False,
) -> Path:
    """A header-only file; keys are written without the architecture, in the types a converter uses."""
    path = folder / name
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(str(path), architecture, endianess=order)
    for key, value in (general or {}).items():
        _add(writer, key, value)
    for key, value in keys.items():
        _add(writer, f"{architecture}.{key}", value)
    if tokens:
        writer.add_token_list([f"token{index}" for index in range(tokens)])
        writer.add_token_scores([0.0] * tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def parts_of(path: Path) -> list[tuple[Part, ...]]:
    return [layer.parts for layer in read_gguf(path).layers()]


def sliding(window: int, heads: int = 2, width: int = 64) -> SlidingWindow:
    return SlidingWindow(heads, width, window)


S = sliding(512)
CHUNK = ChunkedAttention(2, 64, 8192)
MIMO_WINDOW, MIMO_FULL = SlidingWindow(2, 192, 512, 128), FullAttention(2, 192, 128)
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 2048, "ssm.state_size": 128, "ssm.time_step_rank": 32}
MAMBA2 = {**SSM, "ssm.group_count": 8}
WINDOW = {"attention.sliding_window": 512}
LISTED = {**WINDOW, "attention.sliding_window_pattern": [True, True, False, True, True, False]}
MLA = {
    **BASE,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
LATENT = MultiHeadLatentAttention(512, 64, 8, 128, 128)
INDEXER = {
    "attention.indexer.head_count": 64,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 9,
}
M2 = Mamba2(32, 64, 128, 8, 4)
DELTA = GatedDeltaNet(8, 32, 128, 64, 4)
HYBRID_KV = {"attention.head_count_kv": [0, 0, 2, 0, 0, 2]}

CASES: dict[str, tuple[str, dict[str, Any], list[tuple[Part, ...]]]] = {
    "llama": ("llama", GQA, [(FULL,)] * 6),
    "no KV heads stated is MHA": ("gpt2", BASE, [(FullAttention(8, 128),)] * 6),
    "K and V of different width": (
        "plm",
        {**BASE, "attention.key_length": 192, "attention.value_length": 128},
        [(FullAttention(8, 192, 128),)] * 6,
    ),
    "heads per layer": (
        "openelm",
        {**GQA, "attention.head_count": [8] * 6, "attention.head_count_kv": [1, 2, 3, 4, 5, 6]},
        [(FullAttention(heads, 64),) for heads in range(1, 7)],
    ),
    "layers without attention": (
        "deci",
        {**GQA, "attention.head_count_kv": [2, 0, 2, 2, 0, 2]},
        [(NoCache(),) if index in (1, 4) else (FULL,) for index in range(6)],
    ),
    "gemma2": ("gemma2", GQA, [(sliding(4096),), (FULL,)] * 3),
    "gemma3": ("gemma3", {**GQA, **WINDOW}, [(S,)] * 5 + [(FULL,)]),
    "gemma3 without a window": ("gemma3", GQA, [(FULL,)] * 6),
    "gemma4 lists layers and shares": (
        "gemma4",
        {
            **GQA,
            **LISTED,
            "attention.key_length": 512,
            "attention.value_length": 512,
            "attention.key_length_swa": 256,
            "attention.value_length_swa": 256,
            "attention.head_count_kv": [4, 4, 1, 4, 4, 1],
            "attention.shared_kv_layers": 2,
        },
        [
            (sliding(512, 4, 256),),
            (sliding(512, 4, 256),),
            (FullAttention(1, 512),),
            (sliding(512, 4, 256),),
            (SharedKv(),),
            (SharedKv(),),
        ],
    ),
    "gpt-oss": ("gpt-oss", {**GQA, **WINDOW}, [(S,), (FULL,)] * 3),
    "cohere2": ("cohere2", {**GQA, **WINDOW}, [(S,), (S,), (S,), (FULL,), (S,), (S,)]),
    "dense first": ("laguna", {**GQA, **WINDOW}, [(FULL,), (S,), (S,), (S,), (FULL,), (S,)]),
    "a pattern in the file": (
        "olmo2",
        {**GQA, **WINDOW, "attention.sliding_window_pattern": 3},
        [(S,), (S,), (FULL,)] * 2,
    ),
    "a list in the file": ("olmo2", {**GQA, **LISTED}, [(S,), (S,), (FULL,)] * 2),
    "smallthinker's window is fixed": (
        "smallthinker",
        {**GQA, **WINDOW},
        [(FULL,), *[(sliding(4096),)] * 3, (FULL,), (sliding(4096),)],
    ),
    "llama4": (
        "llama4",
        {**GQA, "interleave_moe_layer_step": 1},
        [*[(CHUNK,)] * 3, (FULL,), (CHUNK,), (CHUNK,)],
    ),
    "llama4 without chunks": ("llama4", {**GQA, "attention.sliding_window": 0}, [(FULL,)] * 6),
    "mimo2": (
        "mimo2",
        {**GQA, **LISTED, "attention.key_length": 192, "attention.value_length": 128},
        [(MIMO_WINDOW,), (MIMO_WINDOW,), (MIMO_FULL,)],
    ),
    "exaone4, 32B only": ("exaone4", {**GQA, **WINDOW}, [(FULL,)] * 6),
    "phi3's window is off": ("phi3", {**GQA, **WINDOW}, [(FULL,)] * 6),
    "deepseek2": ("deepseek2", MLA, [(LATENT,)] * 6),
    "deepseek2 before latents": (
        "deepseek2",
        {
            **BASE,
            "attention.kv_lora_rank": 512,
            "attention.key_length": 192,
            "attention.value_length": 128,
        },
        [(FullAttention(8, 192, 128),)] * 6,
    ),
    "deepseek32": ("deepseek32", {**MLA, **INDEXER}, [(LATENT, SparseIndexer(128))] * 6),
    "glm-dsa, long context": (
        "glm-dsa",
        {**MLA, **INDEXER, "context_length": 1 << 20, "block_count": 8},
        [(LATENT, SparseIndexer(128)) if index in (0, 1, 2, 6) else (LATENT,) for index in range(8)],
    ),
    "glm-dsa, indexer types": (
        "glm-dsa",
        {**MLA, **INDEXER, "attention.indexer.types": [1, 0, 1, 0, 1, 0]},
        [(LATENT, SparseIndexer(128)), (LATENT,)] * 3,
    ),
    "minimax-m3": (
        "minimax-m3",
        {**GQA, **INDEXER, "leading_dense_block_count": 2},
        [(FULL,)] * 2 + [(FULL, SparseIndexer(128))] * 4,
    ),
    "deepseek4": (
        "deepseek4",
        {
            **BASE,
            **WINDOW,
            **INDEXER,
            "attention.head_count_kv": 1,
            "attention.key_length": 512,
            "rope.dimension_count": 64,
            "attention.compress_ratios": [0, 4, 128, 4, 128, 0],
        },
        [
            (CompressedAttention(512, 512),),
            (CompressedAttention(512, 512, 4, True, 128),),
            (CompressedAttention(512, 512, 128),),
            (CompressedAttention(512, 512, 4, True, 128),),
            (CompressedAttention(512, 512, 128),),
            (CompressedAttention(512, 512),),
        ],
    ),
    "mamba": (
        "mamba",
        {**BASE, **SSM, "attention.head_count": 0, "feed_forward_length": 0},
        [(Mamba1(2048, 128, 4),)] * 6,
    ),
    "mamba2": ("mamba2", {**BASE, **MAMBA2, "attention.head_count": 0}, [(M2,)] * 6),
    "jamba": ("jamba", {**GQA, **HYBRID_KV, **SSM}, [(Mamba1(2048, 128, 4),)] * 2 + [(FULL,)]),
    "granitehybrid": ("granitehybrid", {**GQA, **HYBRID_KV, **MAMBA2}, [(M2,), (M2,), (FULL,)]),
    "plamo2": (
        "plamo2",
        {**GQA, **HYBRID_KV, **SSM, "ssm.group_count": 0},
        [(Mamba1(2048, 128, 4),)] * 2 + [(FULL,)],
    ),
    "nemotron_h": (
        "nemotron_h",
        {**GQA, **HYBRID_KV, **MAMBA2, "feed_forward_length": [0, 4096, 0, 0, 4096, 0]},
        [(M2,), (NoCache(),), (FULL,)],
    ),
    "falcon-h1": ("falcon-h1", {**GQA, **MAMBA2}, [(FULL, M2)] * 6),
    "lfm2": (
        "lfm2",
        {**GQA, **HYBRID_KV, "shortconv.l_cache": 3},
        [(ShortConvolution(1024, 3),)] * 2 + [(FULL,)],
    ),
    "lfm2 with a window": (
        "lfm2",
        {**GQA, **HYBRID_KV, **WINDOW, "shortconv.l_cache": 3},
        [(ShortConvolution(1024, 3),)] * 2 + [(S,)],
    ),
    "qwen3next": (
        "qwen3next",
        {**GQA, **MAMBA2, "block_count": 8},
        [(DELTA,), (DELTA,), (DELTA,), (FULL,)] * 2,
    ),
    "qwen35, interval in the file": (
        "qwen35",
        {**GQA, **MAMBA2, "full_attention_interval": 2},
        [(DELTA,), (FULL,)] * 3,
    ),
    "qwen35moe, layers in the file": (
        "qwen35moe",
        {**GQA, **MAMBA2, "attention.recurrent_layers": [0, 1, 1, 0, 1, 1]},
        [(FULL,), (DELTA,), (DELTA,)] * 2,
    ),
    "kimi-linear": (
        "kimi-linear",
        {**MLA, "attention.head_count_kv": [0, 0, 0, 1, 0, 1], "ssm.conv_kernel": 4, "kda.head_dim": 128},
        [(KimiDeltaAttention(8, 128, 4),)] * 3 + [(LATENT,), (KimiDeltaAttention(8, 128, 4),), (LATENT,)],
    ),
    "minimax-01": (
        "minimax-01",
        {**GQA, "block_count": 8},
        [(LightningAttention(8, 64),)] * 7 + [(FULL,)],
    ),
    "rwkv6": (
        "rwkv6",
        {**BASE, "attention.head_count": 0, "wkv.head_size": 64},
        [(Rwkv5(1024, 16, 64),)] * 6,
    ),
    "arwkv7": (
        "arwkv7",
        {**BASE, "attention.head_count": 0, "wkv.head_size": 64, "token_shift_count": 1},
        [(Rwkv5(1024, 16, 64, 1),)] * 6,
    ),
    "t5": (
        "t5",
        {**BASE, "attention.key_length": 64, "attention.value_length": 64, "decoder_block_count": 4},
        [(FullAttention(8, 64), CrossAttention(8, 64))] * 4,
    ),
    "loops": ("nanbeige", {**GQA, "num_loops": 2}, [(FULL,)] * 12),
    "router layer": ("graniteswitch", GQA, [*[(FULL,)] * 6, (FullAttention(1, 64),)]),
    "an encoder": ("bert", GQA, [(NoCache(),)] * 6),
    "a diffusion model": ("dream", GQA, [(NoCache(),)] * 6),
}


@pytest.mark.parametrize("case", CASES)
def test_layers(case: str, tmp_path: Path) -> None:
    architecture, keys, expected = CASES[case]
    if len(expected) == 3:
        expected = expected * 2
    assert parts_of(write(tmp_path, architecture, keys)) == expected


def test_gemma3n_shares_from_layer_20(tmp_path: Path) -> None:
    path = write(tmp_path, "gemma3n", {**GQA, **WINDOW, "block_count": 30})
    expected = [(FULL,) if index % 5 == 4 else (S,) for index in range(20)] + [(SharedKv(),)] * 10
    assert parts_of(path) == expected


def test_exaone4_of_64_layers_has_a_window(tmp_path: Path) -> None:
    path = write(tmp_path, "exaone4", {**GQA, "block_count": 64})
    assert parts_of(path)[:4] == [(sliding(4096),)] * 3 + [(FULL,)]


def test_prediction_layers_stand_apart(tmp_path: Path) -> None:
    path = write(tmp_path, "glm4moe", {**GQA, "block_count": 7, "nextn_predict_layers": 1})
    model = read_gguf(path)
    assert (model.num_layers, [layer.parts for layer in model.draft_layers]) == (6, [(FULL,)])


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


def test_big_endian(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, big=True, tokens=5000)
    assert parts_of(path) == [(FULL,)] * 6
    assert read_gguf(path).vocab_size == 5000


def test_tensors_that_are_announced_but_absent_do_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA)
    data = bytearray(path.read_bytes())
    data[8:16] = struct.pack("<Q", 291)
    path.write_bytes(data)
    assert parts_of(path) == [(FULL,)] * 6


def test_a_download_that_stops_in_the_token_list_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, tokens=50_000)
    path.write_bytes(path.read_bytes()[:100_000])
    model = read_gguf(path)
    assert [layer.parts for layer in model.layers()] == [(FULL,)] * 6
    assert model.warnings == ("the file ends inside tokenizer.ggml.tokens: keys behind it were not seen",)


def test_a_download_that_stops_earlier_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(KvplanError) as caught:
            read_gguf(path)
        assert (caught.value.code, caught.value.exit_code) == ("bad-gguf", 2)


def test_the_first_part_is_read_and_others_point_to_it(tmp_path: Path) -> None:
    split = {"split.no": 0, "split.count": 3}
    path = write(tmp_path, "llama", GQA, general=split, name="big-00001-of-00003.gguf")
    assert read_gguf(path).id == "big"
    with pytest.raises(KvplanError) as caught:
        read_gguf(tmp_path / "big-00002-of-00003.gguf")
    assert caught.value.code == "not-first-part"
    assert caught.value.help == (f"give {path}",)
    renamed = write(tmp_path, "llama", GQA, general={**split, "split.no": 1}, name="second.gguf")
    with pytest.raises(KvplanError, match="not the first part"):
        read_gguf(renamed)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a GGUF file"),
        (b"GGUF", "ends after 4 bytes"),
        (b"GGML" + b"\0" * 40, "not a GGUF file"),
        (b"tjgg" + b"\0" * 40, "older GGML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no general.architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000), "claims"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + b"x", "ends inside"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"x" + struct.pack("<I", 77), "77"),
    ],
)
def test_what_is_not_gguf(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(KvplanError) as caught:
        read_gguf(path)
    assert (caught.value.code, caught.value.exit_code) == ("bad-gguf", 2)
    assert words in caught.value.format()


def _key(name: str, kind: int, value: bytes) -> bytes:
    encoded = name.encode()
    return struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", kind) + value


ARCHITECTURE = _key("general.architecture", 8, struct.pack("<Q", 5) + b"llama")


def _file(path: Path, *keys: bytes, count: int | None = None) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, count or len(keys))
    path.write_bytes(head + b"".join(keys))
    return path


@pytest.mark.parametrize(
    "keys",
    [
        [ARCHITECTURE, ARCHITECTURE],
        [_key("general.architecture", 4, struct.pack("<I", 1))],
        [_key("general.architecture", 8, struct.pack("<Q", 2) + b"\xff\xfe")],
        [_key("general.architecture", 9, struct.pack("<IQ", 8, 0))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 9, 4))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 4, 2**62))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 8, 2**62))],
        [ARCHITECTURE, _key("x", 9, struct.pack("<IQ", 55, 5000)), b"\0" * 20_000],
        [ARCHITECTURE, _key("llama.attention.head_count", 9, struct.pack("<IQ", 0, 5000) + b"\1" * 5000)],
    ],
)
def test_hostile_keys(tmp_path: Path, keys: list[bytes]) -> None:
    with pytest.raises(KvplanError) as caught:
        read_gguf(_file(tmp_path / "hostile.gguf", *keys))
    assert caught.value.exit_code == 2


def _grow(path: Path, size: int) -> None:
    """Make a file long without writing it."""
    try:
        with path.open("r+b") as stream:
            stream.truncate(size)
    except OSError as error:
        pytest.skip(f"no sparse files here: {error}")


def test_a_huge_sparse_file_is_refused_in_bounded_time(tmp_path: Path) -> None:
    """Ten thousand million empty texts, all of them really there."""
    path = _file(
        tmp_path / "sparse.gguf", ARCHITECTURE, _key("tokenizer.x", 9, struct.pack("<IQ", 8, 10**10))
    )
    _grow(path, 90 * 10**9)
    started = time.monotonic()
    with pytest.raises(KvplanError, match="texts"):
        read_gguf(path)
    assert time.monotonic() - started < 5


def test_a_large_file_costs_what_its_header_costs(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, tokens=150_000)
    _grow(path, 150 * 10**9)
    started = time.monotonic()
    assert read_gguf(path).vocab_size == 150_000
    assert time.monotonic() - started < 5


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_a_model_or_a_kvplan_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "damaged.gguf"
    if not path.exists():
        write(tmp_path, "gemma3", {**GQA, **LISTED}, tokens=20, name=path.name)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "now.gguf"
    damaged.write_bytes(content)
    with contextlib.suppress(KvplanError):
        read_gguf(damaged)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(KvplanError) as caught:
            read_gguf(path)
        assert caught.value.code in ("no-such-file", "not-a-file")


def test_a_file_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, name="blob")
    assert open_model(str(path)).num_layers == 6


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA)
    script = (
        "import sys; sys.modules['gguf'] = None\n"
        "from kvplan.errors import KvplanError\n"
        "from kvplan.readers.sources import open_model\n"
        "try: open_model(sys.argv[1])\n"
        "except KvplanError as error: print(error.exit_code, error.format())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "3 error[missing-extra]: reading a GGUF file needs the gguf package",
        "help: pip install 'kvplan[gguf]'",
    ]
    assert issubclass(CannotRunHere, KvplanError)
