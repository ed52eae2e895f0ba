"""The layers of GGUF headers of many architectures; all files are written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
from kvplan.files.gguf.header import read_gguf
from tests.files.gguf_files import (
    BASE,
    FULL,
    GQA,
    HYBRID_KV,
    INDEXER,
    LISTED,
    MAMBA2,
    MLA,
    SSM,
    WINDOW,
    parts_of,
    sliding,
    write,
)

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")


S = sliding(512)
CHUNK = ChunkedAttention(2, 64, 8192)
MIMO_WINDOW, MIMO_FULL = SlidingWindow(2, 192, 512, 128), FullAttention(2, 192, 128)
LATENT = MultiHeadLatentAttention(512, 64, 8, 128, 128)
M2 = Mamba2(32, 64, 128, 8, 4)
DELTA = GatedDeltaNet(8, 32, 128, 64, 4)

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
