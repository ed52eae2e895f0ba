"""Small models of every family, and the smallest pool in which an engine serves some requests of them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.engines import ENGINES
from kvplan.engines.tensors import Layout, Rank, layout_of
from kvplan.errors import KvplanError
from kvplan.families import (
    CompressedConvolution,
    FullAttention,
    HiddenMemory,
    KvConvolution,
    NgramEmbedding,
    Part,
    PromptTokens,
    WindowedConvolution,
)
from kvplan.model import Layer, LayerRun, Model

MIB = 2**20
# Families without a card: a layer beside full attention.
SYNTHETIC: dict[str, Part] = {
    "kv_convolution": KvConvolution(2, 32, 256, 4),
    "windowed_convolution": WindowedConvolution(2, 32, 256, 4),
    "compressed_convolution": CompressedConvolution(8, 2, 32, 4),
    "prompt_tokens": PromptTokens(32, 4, 32),
    "hidden_memory": HiddenMemory(256, 64),
    "ngram_embedding": NgramEmbedding(256, 3, 4),
}
CARDS = {
    "full_attention": "qwen3-0.6b",
    "sliding_window": "gpt-oss-20b",
    "chunked_attention": "llama-4-scout",
    "mla": "deepseek-v3",
    "sparse_indexer": "deepseek-v3.2",
    "compressed_attention": "deepseek-v4-flash",
    "mamba1": "mamba-130m",
    "mamba2": "bamba-9b",
    "gated_delta_net": "qwen3-next-80b-a3b",
    "kda": "kimi-linear-48b-a3b",
    "lightning_attention": "minimax-text-01",
    "short_convolution": "lfm2-350m",
    "rg_lru": "recurrentgemma-2b",
    "rwkv4": "rwkv-4-169m",
    "rwkv5": "rwkv-5-world-3b",
    "xlstm": "xlstm-7b",
    "cross_attention": "whisper-tiny",
    "shared_kv": "gemma-3n-e2b",
    "no_cache": "nemotron-h-8b",
}
MORE_CARDS = {
    "mha": "pythia-6.9b",
    "mqa": "starcoder",
    "mamba1+attention": "jamba-1.5-mini",
    "two heads": "gemma-4-26b-a4b",
    "index beside heads": "minimax-m3",
    "wide keys": "mimo-v2-flash",
    "whisper": "whisper-large-v3-turbo",
}


@lru_cache(maxsize=64)
def small(name: str, layers: int = 8) -> Model:
    """A card's model cut to its first layers, long enough to have all its kinds; or a synthetic one."""
    if name in SYNTHETIC:
        layer = Layer((FullAttention(2, 32), SYNTHETIC[name]))
        return Model(name, "test", name, None, (LayerRun(layer, 3),), "bfloat16", 4096, 8, 256)
    model = load_model(CARDS.get(name) or MORE_CARDS.get(name) or name)
    kinds = set(model.distinct())
    kept: list[LayerRun] = []
    for run in model.runs:
        kept.append(replace(run, count=min(run.count, 5)))
        if {one.layer for one in kept} == kinds and sum(one.count for one in kept) >= layers:
            break
    return replace(model, runs=tuple(kept))


def newest(engine: str) -> str:
    """vLLM's tensors are those of 0.32; else the newest release."""
    return "0.32" if engine == "vllm" else ENGINES[engine].versions[-1]


def smallest(
    model: Model,
    engine: str,
    *,
    rank: Rank | None = None,
    requests: int = 3,
    most: int = 512 * MIB,
    **options: Any,
) -> Layout:
    """The layout of the smallest power of two of a MiB that holds so many requests.

    Raises the engine's refusal where none up to ``most`` does.
    """
    memory, refusal = MIB // 2, None
    while memory < most:
        memory *= 2
        settings = make_settings(kv_cache_memory=memory, **options)
        try:
            layout = layout_of(model, engine, newest(engine), settings, rank)
        except KvplanError as error:
            if error.code not in ("engine-refuses", "not-enough-memory"):
                raise
            refusal = error
            continue
        if layout.requests >= requests:
            return layout
    raise refusal or KvplanError("not-enough-memory", f"{most} bytes are too few")


OPTIONS: dict[str, dict[str, Any]] = {
    "vllm": {"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 512},
    "sglang": {"max_model_len": 512},
    "trtllm": {"max_num_seqs": 8, "max_model_len": 512},
    "llamacpp": {},
    "transformers": {},
    "generic": {},
}
__all__ = ["CARDS", "MORE_CARDS", "OPTIONS", "SYNTHETIC", "kvplan", "newest", "small", "smallest"]
