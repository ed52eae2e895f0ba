"""The attention families: which terms a layer has. A new family is one file and one name here."""

from __future__ import annotations

from typing import Union

from kvplan.families.base import Kind, LayerPart, Storage
from kvplan.families.beside import (
    CompressedConvolution,
    HiddenMemory,
    KvConvolution,
    NgramEmbedding,
    PromptTokens,
    WindowedConvolution,
)
from kvplan.families.chunked import ChunkedAttention
from kvplan.families.compressed import CompressedAttention
from kvplan.families.cross import CrossAttention
from kvplan.families.delta_net import GatedDeltaNet, KimiDeltaAttention
from kvplan.families.full import FullAttention
from kvplan.families.linear import LightningAttention, ShortConvolution
from kvplan.families.mamba import Mamba1, Mamba2
from kvplan.families.mla import MultiHeadLatentAttention
from kvplan.families.recurrent import RgLru, Rwkv4, Rwkv5, XLstm
from kvplan.families.shared import NoCache, SharedKv
from kvplan.families.sliding import SlidingWindow
from kvplan.families.sparse_indexer import SparseIndexer

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
]
