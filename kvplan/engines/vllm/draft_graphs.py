"""CUDA graphs of a draft that reads hidden states: the V2 runner captures them too, and measures them whole.

vllm-project/vllm vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py, capture (0.33:
target_dependent_ar): of the draft's first token for every size of the model's own graphs, of the next ones
for every decode batch, which there are none of where one token is proposed. Full graphs have the head and the
sampler in them. Drafts that propose all tokens at once have full graphs of decode batches alone
(dflash/speculator.py, init_cudagraph_manager).
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.graphs import Captured
from kvplan.engines.vllm.load import Coefficients, Load

HEAD = 32_000
"""draft_vocab_size of the published EAGLE-3 heads."""
_LOGIT, _MAPPED = 6, 2
"""Bytes: as the head leaves it and in float32; as it is mapped to the model's vocabulary."""


def draft_graphs(
    shape: Shape, load: Load, known: Coefficients, count: Captured, of_one_token: Captured
) -> int:
    """graphs · a constant + logits of the widest batch + FlashAttention 3's sums of its tokens, bytes; 0
    where the release does not estimate them, and without a draft that reads hidden states.

    count: the model's own graphs; of_one_token: those of a model without a draft. Read: EAGLE-3 on an H100,
    0.68 GiB of 151 graphs; DFlash on an L4, 0.29, 0.32 to 0.35 GiB where its logits alone have 0.36: the few
    layers of a draft that proposes at once add nothing that shows.
    """
    if not known.draft_graph_bytes or not load.reads_hidden or not load.samples:
        return 0
    next_ones = of_one_token if load.drafts > 1 else Captured(0, 0)
    requests = count.largest_full // (1 + load.drafts)
    if load.drafts_at_once:
        graphs, rows, tokens = 0, requests * load.drafts, count.largest_full
    else:
        graphs = count.number + next_ones.full
        rows = max(next_ones.largest_full, requests)
        tokens = max(next_ones.largest_full, count.largest_full)
    own = min(HEAD, shape.vocab_size)
    logits = own * _LOGIT + shape.vocab_size * _MAPPED if load.own_head else shape.vocab_size * _LOGIT
    return graphs * known.draft_graph_bytes + rows * logits + tokens * load.split_bytes
