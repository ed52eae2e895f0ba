"""TGI's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, NO_STEPS, VLLM_ONLY, Axes, MemoryShare, Traits

_NONE = "TGI has no such option"
TRAITS = Traits(
    starts_for_length=True,
    foreign={
        **NO_STEPS,
        **CACHE_CLASS,
        "gpu_memory_utilization": "TGI's is --cuda-memory-fraction, and counts otherwise",
        "num_gpu_blocks_override": _NONE,
        "block_size": "TGI's follows its attention: --tgi-attention",
        "attention_backend": "TGI's is --tgi-attention",
        "enforce_eager": VLLM_ONLY,
        "enable_expert_parallel": _NONE,
        "enable_prefix_caching": "TGI's is the variable PREFIX_CACHING, and changes no byte",
        "speculative_method": "TGI's is --speculate; how it loads a draft is not known here",
        "mamba_cache_dtype": "TGI serves no states in blocks",
        "mamba_ssm_cache_dtype": "TGI serves no states in blocks",
        "kv_retention": _NONE,
    },
    axes=Axes(experts=False),
    usual_block=256,
    null_blocks=1,
    kv_formats=("auto", "fp8"),
    memory_share=MemoryShare("cuda_memory_fraction", "--cuda-memory-fraction", ()),
    pinned={"max_num_batched_tokens": "max_batch_prefill_tokens"},
    never_preempts="a request's blocks are allocated for its whole answer when it is admitted",
    at_once="the whole answer is charged when a request is admitted (backends/v3/src/queue.rs)",
)
