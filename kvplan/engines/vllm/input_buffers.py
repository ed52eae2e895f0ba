"""What vLLM's runners keep for the inputs of a batch, made once the model is loaded.

vllm-project/vllm v1/worker/gpu_model_runner.py: embeddings of the batch (inputs_embeds, for every model) and,
until the cache's own is made, a block table of blocks of 16 tokens for every request (InputBatch,
placeholder_block_size; v1/worker/block_table.py). The V2 runner has the embeddings where a model takes images
(v1/worker/gpu/mm/encoder_runner.py), hidden states for a draft that reads them
(v1/worker/gpu/spec_decode/speculator.py), and makes its table with the cache. The first runner's proposer has
buffers of its own for what a draft reads: hidden states and embeddings (v1/spec_decode/llm_base_proposer.py).
Until 0.26 none of it is taken off: see `kvplan.engines.vllm.sampler`. Seen so on an H100 with 0.33, to
the MiB.
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import exact
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.results import BudgetLine
from kvplan.units import ceil_div

_ENTRY = 4
"""Bytes of a block's number, int32."""
_OF_A_PROPOSER = 2
"""Buffers of the first runner's proposer."""


def input_buffers(shape: Shape, load: Load, known: Coefficients) -> int:
    """max_num_batched_tokens · hidden · element for each buffer + max_num_seqs · ceil(max_model_len / block)
    · 4, bytes."""
    states = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes
    kept = 0
    if known.embeds_always or (known.embeds_of_images and not load.takes_tokens):
        kept += states
    if load.reads_hidden:
        kept += states * (known.states_counted + _OF_A_PROPOSER * known.embeds_always)
    if known.first_table:
        kept += load.max_num_seqs * ceil_div(load.max_model_len, load.block_size) * _ENTRY
    return kept


def input_line(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """The line of the budget; None where the release does not take it off, or there is nothing."""
    kept = input_buffers(shape, load, known)
    source = f"embeddings and block table of a batch: {load.max_num_batched_tokens:,} tokens"
    return exact("input buffers", kept, source) if kept else None
