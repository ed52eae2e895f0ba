"""TensorRT-LLM's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, NO_STEPS, VLLM_ONLY, Axes, MemoryShare, Traits, Tried

TRAITS = Traits(
    starts_for_length=True,
    foreign={
        **NO_STEPS,
        **CACHE_CLASS,
        "gpu_memory_utilization": "TensorRT-LLM's is --free-gpu-memory-fraction, and counts otherwise",
        "num_gpu_blocks_override": "TensorRT-LLM's is --max-tokens",
        "attention_backend": VLLM_ONLY,
    },
    axes=Axes(groups="enable_attention_dp"),
    usual_block=32,
    kv_formats=("auto", "fp8", "nvfp4"),
    memory_share=MemoryShare(
        "free_gpu_memory_fraction", "--free-gpu-memory-fraction", ("0.93", "0.95"), of_free=True
    ),
    retention=Tried("window:4096"),
    pinned={"max_num_batched_tokens": "max_num_tokens"},
    never_preempts="GUARANTEED_NO_EVICT keeps room for the whole output",
    scheduler_unasked="read from the source, not asked of the engine, of which no package runs without a GPU",
    at_once="the whole answer is charged when a request is admitted (GUARANTEED_NO_EVICT, the default of"
    " capacity_scheduler_policy, llmapi/llm_args.py; MAX_UTILIZATION would admit more and pause some)",
)
