"""GLM-5.3-Flash's index keys: one of every pool of tokens, and a ring of the pool that is still open.

vllm-project/vllm 0.33 vllm/models/glm5next/common/attention.py (Glm5NextIndexerCache, Glm5NextTailCache),
vllm/v1/attention/backends/mla/indexer.py (Glm5NextIndexerBackend, KpoolTailBackend) and sparse_utils.py
(align_blocks_to_rows).

Qwen4-Exp's index keys: one of every full group of tokens, and a ring of the group that is still open.

vllm-project/vllm 0.33 vllm/models/qwen4_exp/common/qsa_cache.py (QSAKeyStateCache, QSACompressedKeyCache) and
nvidia/{qsa,indexer_qsa}.py.
"""

from __future__ import annotations

from math import gcd

from kvplan.dtypes import BFLOAT16
from kvplan.engines.vllm.backends.selection import NoBackendError
from kvplan.engines.vllm.backends.table import POOLED, Backend
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind
from kvplan.engines.vllm.start.defaults import Device
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.families import SparseIndexer, Storage
from kvplan.units import ceil_div

ROWS = {"FLASHINFER_MLA_SPARSE": 32}
"""Backends whose kernels read the cache in pages of several rows."""
RECORD_ROWS = {"FLASHMLA_SPARSE": 64}
"""The same where they read DeepSeek's records, on GPUs before and after 10.x."""
RECORD = 656
"""Bytes of DeepSeek's record (512 numbers, scales, 64 of a rope key), its slots empty where there is none."""


def pages_of(device: Device) -> tuple[int, ...]:
    """Entries of one page of the kernel that scores keys (vllm/utils/deep_gemm.py)."""
    return (64,) if device.major == 12 else (32, 64)


def pooled_backend(part: SparseIndexer, device: Device) -> Backend:
    sizes = tuple(part.kpool * entries for entries in pages_of(device))
    return Backend(POOLED, multiples=(), exact=sizes)


def pooled_specs(
    part: SparseIndexer, store: Storage, block: int, device: Device, drafts: int
) -> tuple[Spec, ...]:
    """The pooled keys' pages and the ring. Raises NoBackendError."""
    width = part.pooled_width
    key = store.index_key.key_packing(width).bytes_for(width)
    span = ceil_div(part.kpool + drafts, part.kpool)
    ring = part.kpool * (1 << (span - 1).bit_length())
    if block % ring:
        raise NoBackendError(f"a block of {block} tokens is no multiple of the ring of {ring} open tokens")
    kernel = gcd(max(pooled_backend(part, device).exact), block)
    stride = 1 if kernel == block else kernel // part.kpool * key
    pooled = Spec(
        SpecKind.MLA, block, key, ("indexer", key, part.kpool), tokens_per_state=part.kpool, stride=stride
    )
    kept = BFLOAT16.bytes_for(2 * width)
    return pooled, Spec(SpecKind.RING, ring, kept, ("tail", kept), dcp_sharded=False)


def row_stride(backend: Backend, row_bytes: int, word: str) -> int:
    """Bytes between blocks are whole rows, or pages of rows, of the latent's kernel."""
    rows = RECORD_ROWS if word == "fp8_ds_mla" else ROWS
    return rows.get(backend.name, 1) * row_bytes


def reads_flat(backend: Backend, word: str, device: Device) -> bool:
    """Whether 0.31 lays blocks whole rows of this latent apart: vllm-project/vllm 0.31
    vllm/model_executor/layers/attention/mla_attention.py (_uses_flat_kv_cache, get_kv_cache_spec)."""
    if backend.name == "FLASHMLA_SPARSE":
        return device.major == 10 or word not in ("fp8_ds_mla", "nvfp4_ds_mla")
    return backend.name == "FLASHINFER_MLA_SPARSE"


KEY_BYTES = {"fp8": 1}
POSITION_NUMBERS = 4
"""16-bit numbers of one int64 position."""


def grouped_specs(part: SparseIndexer, block: int, resolved: Resolved) -> tuple[Spec, ...]:
    """The ring and the pages of the groups' keys. Raises NoBackendError."""
    width, group = part.index_head_dim, part.group
    ring = group * ceil_div(group + resolved.spec_tokens, group)
    if block % ring:
        raise NoBackendError(f"a block of {block} tokens is no multiple of the ring of {ring} open tokens")
    numbers = width
    if part.axes and resolved.three_axes:
        numbers = POSITION_NUMBERS * (ceil_div(width, POSITION_NUMBERS) + part.axes)
    kept = BFLOAT16.bytes_for(numbers)
    key = width * KEY_BYTES.get(resolved.index_kv, BFLOAT16.bytes)
    return (
        Spec(SpecKind.RING, ring, kept, ("group", kept), dcp_sharded=False),
        Spec(SpecKind.MLA, block, key, ("indexer", key, group), tokens_per_state=group),
    )
