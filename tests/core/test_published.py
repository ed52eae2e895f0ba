"""One published figure for every attention family: a factor that is wrong by one is wrong here.

Each row is a layer of a released model (or of a class's defaults), worked out with plain numbers from the
paper, the model card or the library's class that is named beside it; where the source prints the total, that
is the number. 16-bit elements and fp32 states unless the row says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kvplan.dtypes import kv_dtype
from kvplan.engines.transformers.library import library_terms
from kvplan.engines.transformers.versions import rules_of
from kvplan.families import (
    FAMILIES,
    ChunkedAttention,
    CompressedAttention,
    CompressedConvolution,
    CrossAttention,
    FullAttention,
    GatedDeltaNet,
    HiddenMemory,
    KimiDeltaAttention,
    KvConvolution,
    LightningAttention,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    NgramEmbedding,
    NoCache,
    Part,
    PromptTokens,
    RgLru,
    Rwkv4,
    Rwkv5,
    SharedKv,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
    Storage,
    WindowedConvolution,
    XLstm,
)
from kvplan.families.latent import RECORD_NOPE

PLAIN = Storage()


class Row(NamedTuple):
    """``layers`` layers hold ``bytes`` for a request; one of ``ranks`` ranks holds ``on_rank`` of them."""

    part: Part
    layers: int
    tokens: int
    bytes: int
    ranks: int
    on_rank: int
    source: str
    store: Storage = PLAIN
    encoder_tokens: int = 0
    in_library: bool = False


ROWS = {
    "llama-3.1-405b": Row(
        FullAttention(8, 128), 126, 1, 516_096, 4, 516_096 // 4,
        "Insights into DeepSeek-V3 (arXiv 2505.09343) table 1: 516.096 KB a token",
    ),
    "qwen2.5-72b": Row(
        FullAttention(8, 128), 80, 1, 327_680, 8, 327_680 // 8, "arXiv 2505.09343 table 1: 327.680 KB a token"
    ),
    "deepseek-v3": Row(
        MultiHeadLatentAttention(512, 64), 61, 1, 70_272, 8, 70_272,
        "arXiv 2505.09343 table 1: 70.272 KB a token",
    ),
    "mistral-7b-v0.1": Row(
        SlidingWindow(8, 128, 4096), 32, 32_768, 32 * 32_768 * 4096 // 8, 2, 32 * 32_768 * 4096 // 16,
        "Mistral 7B (arXiv 2310.06825) §2: at 32k tokens an eighth of the cache without a window",
    ),
    "llama-4-scout": Row(
        ChunkedAttention(8, 128, 8192), 36, 10_000_000, 36 * 8192 * 4096, 8, 36 * 8192 * 512,
        "model card of Llama 4 Scout: 36 of 48 layers in chunks of 8,192, 10M tokens of context",
    ),
    "deepseek-v3.2": Row(
        SparseIndexer(128), 61, 100, 61 * 100 * 132, 4, 61 * 100 * 132,
        "vllm-project/vllm 0.32 DeepseekV32IndexerCache: 128 fp8 values and a scale, 132 bytes",
    ),
    # Ten tokens by four: two entries, two tokens wait in both streams, one group is kept for the overlap.
    "deepseek-v4-csa": Row(
        CompressedAttention(512, 128, 4, overlapping=True, index_head_dim=128), 1, 10,
        10 * 512 * 2 + 2 * 512 * 2 + 2 * (2 * 2 * 512) * 2 + (2 * 4 * 512) * 2
        + 2 * 132 + 2 * (2 * 2 * 128) * 2 + (2 * 4 * 128) * 2, 4,
        10 * 512 * 2 + 2 * 512 * 2 + 2 * (2 * 2 * 512) * 2 + (2 * 4 * 512) * 2
        + 2 * 132 + 2 * (2 * 2 * 128) * 2 + (2 * 4 * 128) * 2,
        "config of DeepSeek-V4: width 512, window 128, one entry per 4, indexer 128;"
        " huggingface/transformers 5.23 models/deepseek_v4",
    ),
    # 300 tokens by 128: a full window, two entries, 44 tokens wait in one stream.
    "deepseek-v4-hca": Row(
        CompressedAttention(512, 128, 128), 1, 300, (128 + 2 + 44 * 2) * 1024, 8, (128 + 2 + 44 * 2) * 1024,
        "config of DeepSeek-V4: one entry per 128; huggingface/transformers 5.23 models/deepseek_v4",
    ),
    "deepseek-v4-window": Row(
        CompressedAttention(512, 128), 1, 300, 128 * 1024, 8, 128 * 1024,
        "config of DeepSeek-V4: layers of windows",
    ),
    "deepseek-v4-window-in-the-library": Row(
        CompressedAttention(512, 128), 1, 300, 2 * 128 * 1024, 8, 2 * 128 * 1024,
        "huggingface/transformers 5.23: a plain cache holds the latent as K and as V", in_library=True,
    ),
    "falcon-mamba-7b": Row(
        Mamba1(8192, 16, 4), 64, 0, 64 * 8192 * (3 * 2 + 16 * 4), 2, 64 * 4096 * (3 * 2 + 16 * 4),
        "Falcon Mamba (arXiv 2410.05355) table 1: 64 layers, width 4,096 expanded twice, 16 states",
    ),
    "nemotron-h-8b": Row(
        Mamba2(128, 64, 128, 8, 4), 1, 0, 4_255_744, 8, 4_255_744 // 8,
        "page that vLLM prints; Nemotron-H (arXiv 2504.03624): 128 heads of 64, 8 groups, 128 states",
    ),
    "qwen3-next": Row(
        GatedDeltaNet(16, 32, 128, 128, 4), 1, 0, 4 * 274_432, 4, 274_432,
        "page of a state that vLLM prints at TP 4; config of Qwen3-Next",
        Storage(recurrent_state=PLAIN.dtype),
    ),
    "kimi-linear": Row(
        KimiDeltaAttention(32, 128, 4), 1, 0, 2 * 1_085_440, 2, 1_085_440,
        "page of a state that vLLM prints at TP 2; Kimi Linear (arXiv 2510.26692)",
    ),
    "minimax-text-01": Row(
        LightningAttention(64, 128), 70, 0, 70 * 64 * 128 * 128 * 4, 8, 70 * 8 * 128 * 128 * 4,
        "MiniMax-01 (arXiv 2501.08313) §2: 64 heads of 128, seven of eight layers of 80",
    ),
    "lfm2-1.2b": Row(
        ShortConvolution(2048, 3), 10, 0, 10 * 2048 * 2 * 2, 2, 10 * 1024 * 2 * 2,
        "model card of LFM2: 10 convolutions of 3 columns, width 2,048",
    ),
    "recurrentgemma-2b": Row(
        RgLru(2560, 4), 1, 0, 2560 * 3 * 2 + 2560 * 4, 2, 1280 * 3 * 2 + 1280 * 4,
        "RecurrentGemma (arXiv 2404.07839) table 1: width 2,560; Griffin (arXiv 2402.19427): 4 columns",
    ),
    "rwkv-4-7b": Row(
        Rwkv4(4096, 4096), 32, 0, 32 * 4096 * (2 * 2 + 3 * 4), 4, 32 * (4096 * 2 * 2 + 1024 * 3 * 4),
        "RWKV (arXiv 2305.13048) table 2: 32 layers of 4,096; five numbers a channel, three of them fp32",
    ),
    "rwkv-5-3b": Row(
        Rwkv5(2560, 40, 64), 32, 0, 32 * 2560 * (2 * 2 + 64 * 4), 8, 32 * (2560 * 2 * 2 + 320 * 64 * 4),
        "Eagle and Finch (arXiv 2404.05892): a state of 66 D numbers a layer",
    ),
    "xlstm-7b": Row(
        XLstm(8, 256, 512), 32, 0, 32 * 8 * (256 * 512 + 256 + 1) * 4, 2, 32 * 4 * (256 * 512 + 256 + 1) * 4,
        "xLSTM 7B (arXiv 2503.13427): 32 blocks, 8 heads, keys of 256 and values of 512",
    ),
    "whisper-large-v3": Row(
        CrossAttention(20, 64), 32, 448, 245_760_000, 4, 245_760_000 // 4,
        "Whisper (arXiv 2212.04356): 1,500 frames for 30 s, 32 layers of 20 heads of 64", encoder_tokens=1500,
    ),
    "gemma-3n-e4b": Row(
        SharedKv(), 15, 32_768, 0, 1, 0,
        "model card of Gemma 3n: the last 15 of 35 layers keep no K and V of their own",
    ),
    "nemotron-super-49b": Row(
        NoCache(), 31, 131_072, 0, 1, 0,
        "config of Llama-3.3-Nemotron-Super-49B-v1: 31 of 80 blocks without attention",
    ),
    "inkling": Row(
        KvConvolution(8, 128, 6144, 4), 11, 0, 11 * (2 * 8 * 128 + 2 * 6144) * 4 * 4, 4,
        11 * (2 * 2 * 128 + 2 * 6144) * 4 * 4,
        "defaults of huggingface/transformers 5.23 models/inkling: 8 heads of 128, width 6,144, 4 columns",
    ),
    "inkling in pages": Row(
        WindowedConvolution(8, 128, 6144, 4), 11, 1000, 11 * 8 * 4096 * 4, 4, 11 * 2 * 4096 * 4,
        "vllm-project/vllm 0.33 models/inkling/nvidia/sconv_swa_attn.py: 4,096 B a head for a token of four",
    ),
    "zaya": Row(
        CompressedConvolution(8, 2, 128, 2), 40, 16_384, 40 * (10 * 128 * 2 + 128) * 2, 2,
        40 * (5 * 128 * 2 + 128) * 2,
        "defaults of huggingface/transformers 5.23 models/zaya; measured: 640.21 MiB at 16,384 tokens",
    ),
    "cpm-ant-10b": Row(
        PromptTokens(32, 32, 128), 48, 16_384, 24 * 2**20, 4, 6 * 2**20,
        "model card of CPM-Ant: 48 layers, 32 heads of 128, 32 prompt tokens; measured: 24 MiB more",
    ),
    "xlnet-large": Row(
        HiddenMemory(1024, 384), 24, 10_000, 24 * 384 * 1024 * 4, 2, 24 * 384 * 1024 * 4,
        "XLNet (arXiv 1906.08237) appendix: 24 layers of 1,024, memory of 384",
    ),
    "qwen4-exp": Row(
        NgramEmbedding(4 * 2048, 9, 2), 1, 0, 8192 * 9 * 2 + 2 * 8, 2, 8192 * 9 * 2 + 2 * 8,
        "defaults of huggingface/transformers 5.23 models/qwen4_exp: 4 streams of 2,048, 3-grams",
    ),
}  # fmt: skip


def test_every_family_has_a_published_figure() -> None:
    assert {row.part.family for row in ROWS.values()} == set(FAMILIES)
    assert all(row.source for row in ROWS.values())


@pytest.mark.parametrize("name", ROWS)
def test_published(name: str) -> None:
    row = ROWS[name]
    terms = (
        library_terms(row.part, row.store, rules_of("5.24")) if row.in_library else row.part.terms(row.store)
    )
    for ranks, expected in ((1, row.bytes), (row.ranks, row.on_rank)):
        held = sum(term.on_rank(ranks).bytes_at(row.tokens, row.encoder_tokens) for term in terms)
        assert row.layers * held == expected, row.source


def test_the_window_of_mistral_saves_seven_eighths() -> None:
    """Mistral 7B §2, said as the paper says it."""
    full, window = FullAttention(8, 128), SlidingWindow(8, 128, 4096)
    held = [sum(term.bytes_at(32_768) for term in part.terms(PLAIN)) for part in (full, window)]
    assert held[0] == 8 * held[1]


def test_mla_is_four_and_a_half_heads() -> None:
    """DeepSeek-V2 (arXiv 2405.04434) table 1: (d_c + d_h^R) l = 9/2 d_h l elements, d_h 128."""
    (*terms,) = MultiHeadLatentAttention(512, 64).terms(PLAIN)
    assert sum(term.bytes_at(1) for term in terms) * 2 == 9 * 128 * 2


def test_an_entry_of_deepseek_v4() -> None:
    """deepseek-ai/FlashMLA: 448 fp8 values, 7 scales, a byte of padding, 64 values in bf16: 584 bytes."""
    part = CompressedAttention(512, 128, 4)
    nope = part.head_dim - part.qk_rope_head_dim
    assert not part.overlapping
    assert RECORD_NOPE.packing("record", nope).bytes_for(nope) + 2 * part.qk_rope_head_dim == 584
    assert RECORD_NOPE.packing("record", 512).bytes_for(512) == 512 + 8


def test_formats_of_published_entries() -> None:
    """vLLM's 656 bytes of fp8_ds_mla (512 values, 4 scales, 64 rope values): csrc/cache_kernels.cu."""
    store = Storage(kv=kv_dtype("fp8_ds_mla"))
    assert sum(term.bytes_at(1) for term in MultiHeadLatentAttention(512, 64).terms(store)) == 656
