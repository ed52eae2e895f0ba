"""Qwen4-Exp's index keys: one of every full group of tokens, and a ring of the group that is still open.

vllm-project/vllm 0.33 vllm/models/qwen4_exp/common/qsa_cache.py (QSAKeyStateCache, QSACompressedKeyCache) and
nvidia/{qsa,indexer_qsa}.py.
"""

from __future__ import annotations

from kvplan.dtypes import BFLOAT16
from kvplan.engines.vllm.backends import NoBackendError
from kvplan.engines.vllm.resolve import Resolved
from kvplan.engines.vllm.specs import Spec, SpecKind
from kvplan.families import SparseIndexer
from kvplan.units import ceil_div

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
