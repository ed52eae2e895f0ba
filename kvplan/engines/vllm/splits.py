"""What attention's kernels keep once graphs are captured: FlashInfer's buffers, FlashAttention 3's sums.

vllm-project/vllm vllm/v1/attention/backends/flash_attn.py, FlashAttentionMetadataBuilder: where full graphs
are captured the kernel may divide a request's tokens in up to 32 pieces
(flash_attn_max_num_splits_for_cuda_graph, vllm/config/attention.py), and makes float32 sums of each for every
token of the graph: [pieces, heads, tokens, head_dim] and [pieces, heads, tokens]. The largest graph's lie in
the graphs' pool. FlashAttention 3 alone is scheduled so (get_flash_attn_version): compute capability 9.0. Of
latent attention (backends/mla/flashattn_mla.py, _build_decode: the same bound) a head's sums are as wide as
the latent. Allocations of vLLM 0.33 on an H200 are these to the byte (tests/budget/test_splits.py).
"""

from __future__ import annotations

from kvplan.engines.vllm.engine import compiled
from kvplan.engines.vllm.flashinfer import NONE, FlashInfer, flashinfer_of, query_width
from kvplan.errors import KvplanError
from kvplan.families import MultiHeadLatentAttention
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Serving
from kvplan.units import ceil_div

PIECES = 32
FLOAT32 = 4
_HOPPER = (9, 0)
_LATENT_BLOCK = 64


@record()
class AttentionBuffers:
    """flashinfer: what it keeps. split_bytes: of FlashAttention 3, for a token of the largest full graph.
    latent_block: tokens of a block where attention keeps latents."""

    flashinfer: FlashInfer = NONE
    split_bytes: int = 0
    latent_block: int = _LATENT_BLOCK


def buffers_of(model: Model, settings: Serving, version: str) -> AttentionBuffers:
    """Of one model with its settings in a release."""
    return AttentionBuffers(
        flashinfer_of(model, settings, version),
        split_bytes(model, settings, version),
        latent_block(model, settings, version),
    )


def split_bytes(model: Model, settings: Serving, version: str) -> int:
    """32 · heads · (head_dim + 1) · 4, of a rank; latent attention with kv_lora_rank; 0 where the kernel
    does not serve all layers."""
    gpu, tp = settings.gpu, settings.tensor_parallel_size
    if gpu is None or settings.enforce_eager or gpu.compute_capability != _HOPPER:
        return 0
    try:
        found = compiled(model, version, settings)
    except KvplanError:
        return 0
    heads = ceil_div(model.num_attention_heads, tp)
    served = "" if found.plan is None else str(found.settings["attention_backend"])
    if served == "FLASH_ATTN_MLA":
        return PIECES * FLOAT32 * heads * (_latent_rank(model) + 1)
    return PIECES * FLOAT32 * (query_width(model, tp) + heads) if served == "FLASH_ATTN" else 0


def latent_block(model: Model, settings: Serving, version: str) -> int:
    """The block size in force, of latent attention; of a hybrid as large as its states."""
    if not _latent_rank(model):
        return _LATENT_BLOCK
    try:
        return int(compiled(model, version, settings).settings.get("block_size") or _LATENT_BLOCK)
    except KvplanError:
        return _LATENT_BLOCK


def _latent_rank(model: Model) -> int:
    parts = (part for layer in model.distinct() for part in layer.parts)
    return max((part.kv_lora_rank for part in parts if isinstance(part, MultiHeadLatentAttention)), default=0)
