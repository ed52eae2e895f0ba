"""What sparse attention reserves while vLLM measures its forward pass.

vllm-project/vllm 0.21 to 0.33: vllm/v1/attention/backends/mla/indexer.py get_max_prefill_buffer_size,
vllm/model_executor/layers/sparse_attn_indexer.py (the dummy run reserves the gathered keys, and takes room
for the largest logits), and of DeepSeek-V4 its own gather of latents (deepseek_v4_attention.py,
PREFILL_CHUNK_SIZE). All of it comes from one workspace, which grows to the largest that was asked for and
stays.
"""

from __future__ import annotations

from kvplan.engines.base import Version
from kvplan.engines.vllm.load import Reserved
from kvplan.families import CompressedAttention, SparseIndexer
from kvplan.model import Model
from kvplan.units import MIB, ceil_div

_PREFILLS, _PREFILLS_LONG = 40, 16
"""Entries of gathered keys for each token of max_model_len; above ``_LONG`` tokens since 0.32
(sparse_mla_prefill_workspace_factor 5 and 2, vllm/config/vllm.py; eight times as many, mla/indexer.py)."""
_LONG, _LONG_SINCE = 256 * 1024, (0, 32)
_SCALE = 4
"""Bytes beside the fp8 numbers of one entry."""
_CHUNK, _LATENT_BYTES = 4, 2
"""Prompts whose latents DeepSeek-V4 gathers at once, in bfloat16."""
LOGITS = 512 * MIB
"""VLLM_SPARSE_INDEXER_MAXLOGITS_MB."""


def reserved(model: Model, max_model_len: int, max_num_batched_tokens: int, release: Version) -> Reserved:
    """Nothing for a model without an indexer; the largest of its layers' otherwise."""
    kept = 0
    prefills = _PREFILLS_LONG if max_model_len > _LONG and release >= _LONG_SINCE else _PREFILLS
    for run in model.runs:
        for part in run.layer.parts:
            if isinstance(part, SparseIndexer):
                kept = max(kept, prefills * max_model_len * (part.index_head_dim + _SCALE))
            elif isinstance(part, CompressedAttention) and part.compress_rate and part.index_head_dim:
                entries = prefills * max_model_len // part.compress_rate
                latents = ceil_div(max_model_len, part.compress_rate)
                gathered = latents + part.sliding_window + max_num_batched_tokens
                kept = max(
                    kept,
                    entries * (part.index_head_dim + _SCALE),
                    _CHUNK * gathered * part.head_dim * _LATENT_BYTES,
                )
    return Reserved(kept, LOGITS) if kept else Reserved()
