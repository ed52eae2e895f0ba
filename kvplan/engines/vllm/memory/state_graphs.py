"""Blocks of the pool that vLLM needs once its cache is planned: one of recurrent state for every sequence of
a full CUDA graph.

vllm-project/vllm vllm/config/compilation.py resolve_cudagraph_mode_and_sizes, since 0.20 (#38270; before it,
graphs of more sequences than blocks were left out): `max_num_seqs (1024) exceeds available Mamba cache blocks
(939)`. Both runners call it with max_num_seqs. Nothing is asked where no full graph is captured: without
graphs, and with drafts whose attention takes one token a request there (linear attention; FlashInfer's own
kernels).
"""

from __future__ import annotations

from kvplan.engines.base import parse_version
from kvplan.engines.vllm.cache_layout.plan import Plan
from kvplan.engines.vllm.memory.cuda_graphs import NONE, PIECEWISE
from kvplan.engines.vllm.options import VllmOptions
from kvplan.families import LightningAttention
from kvplan.model import Model
from kvplan.results import TOO_FEW_STATES, Refusal
from kvplan.settings import Settings

_SINCE = (0, 20)


def too_few_states(
    model: Model, settings: Settings, version: str, plan: Plan, num_blocks: int
) -> Refusal | None:
    """The refusal of a server whose pool has fewer blocks than max_num_seqs. num_blocks: of the pool."""
    if num_blocks >= plan.max_num_seqs or not any(group.state for group in plan.groups):
        return None
    if settings.enforce_eager or parse_version(version) < _SINCE or not _full(model, settings, version):
        return None
    return Refusal(
        TOO_FEW_STATES,
        f"max_num_seqs {plan.max_num_seqs:,} is more than the {num_blocks:,} blocks of the pool: a sequence"
        " of a CUDA graph needs a block of recurrent state",
        help=(f"--max-num-seqs {1 << (num_blocks.bit_length() - 1)}", "--enforce-eager")
        if num_blocks
        else (),
    )


def _full(model: Model, settings: Settings, version: str) -> bool:
    """Whether full graphs of decode batches are captured."""
    if VllmOptions.of(settings).cudagraph_mode in (NONE, PIECEWISE):
        return False
    if not settings.num_speculative_tokens:
        return True
    from kvplan.engines.vllm.memory.attention_buffers import flashinfer_of  # it asks the engine

    one_token = any(isinstance(part, LightningAttention) for run in model.runs for part in run.layer.parts)
    return not one_token and flashinfer_of(model, settings, version).uniform
