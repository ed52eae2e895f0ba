"""Which attention part stands for a model, how wide its heads are, and whether vLLM keeps its latent."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.errors import KvplanError
from kvplan.families import (
    FullAttention,
    Kind,
    MultiHeadLatentAttention,
    Part,
    SparseIndexer,
    WindowedConvolution,
)
from kvplan.model import Layer, Model

LATENT_TYPES = frozenset(
    """axk1 bailing_hybrid bailing_moe_v2_5 deepseek_ref deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
    dots3_note dots3_note_text glm4_moe_lite glm5_next glm5_next_text glm_moe_dsa hy_v4 kimi_k2 kimi_linear
    longcat_flash longcat_flash_ngram pangu_ultra_moe sarvam_mla""".split()
)
"""Model types whose attention vLLM keeps as a latent (model_arch_config_convertor.py, is_deepseek_mla)."""


def lead_attention(model: Model) -> Part | None:
    """The first attention part: its widths stand for the model's (ModelConfig.get_head_size)."""
    kinds = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED, Kind.MLA)
    parts = (part for run in model.runs for part in run.layer.parts if part.kind in kinds)
    return next((part for part in parts if not isinstance(part, WindowedConvolution)), None)


def keeps_latent(model: Model) -> bool:
    """False where vLLM has no latent kernel for the type and caches every head's K and V."""
    return model.model_type in LATENT_TYPES


def grouped_keys(layer: Layer) -> bool:
    """K and V per head with index keys of groups of tokens."""
    indexed = any(isinstance(part, SparseIndexer) and part.group > 1 for part in layer.parts)
    return indexed and any(isinstance(part, FullAttention) for part in layer.parts)


def registered(parts: Iterable[Part]) -> Iterable[Part]:
    """In the order in which a layer makes its caches: groups' keys before K and V."""
    return sorted(parts, key=lambda part: not (isinstance(part, SparseIndexer) and part.group > 1))


def head_width(part: Part) -> int:
    """Numbers in one head's K, or in the latent with its rope key."""
    if isinstance(part, MultiHeadLatentAttention):
        return part.kv_lora_rank + part.qk_rope_head_dim
    if isinstance(part, FullAttention):
        return part.head_dim
    width = getattr(part, "head_dim", None)
    if not isinstance(width, int):
        raise KvplanError("unknown-layer-type", f"vLLM: no attention width for {part.family}")
    return width
