"""What vLLM's V2 runner keeps for the sampler: tables of the vocabulary for every place of the batch.

vllm-project/vllm vllm/v1/worker/gpu/sample/penalties.py, PenaltiesState: a count of every token that a
request has produced, int32, and a bit for every token of its prompt;
vllm/v1/worker/gpu/structured_outputs.py, StructuredOutputsWorker: a bit for every token that a grammar
allows, of every sampled position. They are made once the model is loaded, so "Model loading took" has them
not, on the stage that samples, and not for models that pool (0.22 to 0.33, alike). Until 0.26 the engine
takes off weights, growth of torch's peak and what is outside torch, and they are none of these; since 0.27
what stays is mem_get_info's difference, and they are in it (vllm/utils/mem_utils.py, total_consumed). Seen so
on a GPU with 0.33 (docs/accuracy.md).
"""

from __future__ import annotations

from kvplan.engines.budget.lines import exact
from kvplan.results import BudgetLine
from kvplan.units import ceil_div

_COUNT = 4
"""Bytes of one token's count, and of a word of 32 bits."""
_WORD = 32


def sampler_states(seqs: int, vocabulary: int, drafts: int) -> int:
    """seqs · vocabulary · 4 + seqs · (2 + drafts) · ceil(vocabulary / 32) · 4, bytes.

    seqs: max_num_seqs; drafts: tokens proposed for each request, which are sampled too.
    """
    mask = ceil_div(vocabulary, _WORD) * _COUNT
    return seqs * (vocabulary * _COUNT + mask * (2 + drafts))


def states_line(seqs: int, vocabulary: int, drafts: int) -> BudgetLine:
    """The line of the budget."""
    source = f"counts and masks of {vocabulary:,} tokens for {seqs:,} requests"
    return exact("sampler states", sampler_states(seqs, vocabulary, drafts), source)
