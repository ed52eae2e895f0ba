"""The weights of a separate draft model, as a line of their own.

A draft model (vLLM's ``draft_model``, SGLang's STANDALONE) is loaded whole, embedding and output head too, on
as many tensor-parallel ranks as its target (vllm-project/vllm 0.32 vllm/config/speculative.py
_verify_and_get_draft_tp, vllm/v1/spec_decode/draft_model.py). An EAGLE head borrows the target's embedding
unless its checkpoint has one of its own.
"""

from __future__ import annotations

from kvplan.budget.lines import exact
from kvplan.dtypes import Packing
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.readers.model_weights import sources_of
from kvplan.readers.weights_rules.heads import head_tensors
from kvplan.results import BudgetLine
from kvplan.settings import Settings
from kvplan.weights.facts import weights_per_rank
from kvplan.weights.ranks import Parallel, block_bytes, tensor_bytes

NAME = "draft model"
HEADS = ("eagle", "eagle3")


def draft_line(model: Model, settings: Settings, parallel: Parallel, dtype: Packing) -> BudgetLine | None:
    """The draft's weights on one rank; None without a draft.

    Raises KvplanError(no-weights | cannot-shard).
    """
    draft, method = settings.speculative_model, settings.speculative_method
    if draft is None or method is None:
        return None
    alone = Parallel(
        tensor_parallel_size=parallel.tensor_parallel_size,
        compute_capability=parallel.compute_capability,
        enable_expert_parallel=parallel.enable_expert_parallel,
    )
    if method not in HEADS:
        facts = weights_per_rank(sources_of(draft), alone, dtype)
        return exact(NAME, facts.bytes_per_gpu, f"{draft.id}: {facts.source}")
    own, table = head_tensors(draft, method, model)
    amount, shared = block_bytes(own, alone, dtype), tensor_bytes(table, alone, dtype)
    stored = _stores_embedding(draft)
    if stored is None:
        return BudgetLine(
            NAME, amount, amount, amount + shared, f"{draft.id}: the embedding is the target's, or its own"
        )
    return exact(NAME, amount + (shared if stored else 0), f"{draft.id}: {method} head")


def _stores_embedding(draft: Model) -> bool | None:
    """Whether the checkpoint has an embedding of its own; None where its tensors are not known."""
    try:
        checkpoint = sources_of(draft).checkpoint
    except KvplanError:
        return None
    if checkpoint is None:
        return None
    return any("embed_tokens" in tensor.name for tensor in checkpoint.tensors)
