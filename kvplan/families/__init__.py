"""The attention families: which terms a layer has. A new family is one class in a file and one name here."""

from __future__ import annotations

from typing import Union

from kvplan.families.attention import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    NoCache,
    SharedKv,
    SlidingWindow,
    in_window,
    unwindowed,
)
from kvplan.families.base import Kind, LayerPart, Storage
from kvplan.families.beside import (
    CompressedConvolution,
    HiddenMemory,
    KvConvolution,
    NgramEmbedding,
    PromptTokens,
    WindowedConvolution,
)
from kvplan.families.latent import CompressedAttention, MultiHeadLatentAttention, SparseIndexer
from kvplan.families.states import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    RgLru,
    Rwkv4,
    Rwkv5,
    ShortConvolution,
    XLstm,
)

Part = Union[
    FullAttention,
    SlidingWindow,
    ChunkedAttention,
    MultiHeadLatentAttention,
    SparseIndexer,
    CompressedAttention,
    Mamba1,
    Mamba2,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
    RgLru,
    Rwkv4,
    Rwkv5,
    XLstm,
    CrossAttention,
    SharedKv,
    NoCache,
    KvConvolution,
    WindowedConvolution,
    CompressedConvolution,
    PromptTokens,
    HiddenMemory,
    NgramEmbedding,
]
FAMILIES: dict[str, type[Part]] = {part.family: part for part in Part.__args__}  # type: ignore[attr-defined]

__all__ = [
    "FAMILIES",
    "ChunkedAttention",
    "CompressedAttention",
    "CompressedConvolution",
    "CrossAttention",
    "FullAttention",
    "GatedDeltaNet",
    "HiddenMemory",
    "KimiDeltaAttention",
    "Kind",
    "KvConvolution",
    "LayerPart",
    "LightningAttention",
    "Mamba1",
    "Mamba2",
    "MultiHeadLatentAttention",
    "NgramEmbedding",
    "NoCache",
    "Part",
    "PromptTokens",
    "RgLru",
    "Rwkv4",
    "Rwkv5",
    "SharedKv",
    "ShortConvolution",
    "SlidingWindow",
    "SparseIndexer",
    "Storage",
    "WindowedConvolution",
    "XLstm",
    "in_window",
    "unwindowed",
]
