"""transformers' traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import NO_ALLOCATOR, SERVING, Axes, MemoryShare, Traits

TRAITS = Traits(
    foreign={
        **dict.fromkeys(SERVING, NO_ALLOCATOR),
        "gpu_memory_utilization": "transformers' is --max-memory-percent, and counts otherwise",
        "kv_retention": "transformers 5 has no cache with sinks; windows are the model's own"
        " (cache_utils.py)",
        "attention_backend": "transformers' is --attn-implementation",
    },
    axes=Axes(tensor=False, experts=False),
    usual_block=256,
    divides_with="continuous_batching",
    memory_share=MemoryShare("max_memory_percent", "--max-memory-percent", ("0.95",)),
    pinned={
        "max_num_batched_tokens": "max_batch_tokens",
        "max_num_seqs": "max_requests_per_batch",
        "block_size": "page_size",
    },
    at_once="continuous batching takes up prompts while 15 % of its cache is free (FIFOScheduler's"
    " safety_margin); else as many rows as the memory holds at full length",
)
