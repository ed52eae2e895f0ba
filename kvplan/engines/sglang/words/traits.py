"""SGLang's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, NO_STEPS, Axes, MemoryShare, Traits

TRAITS = Traits(
    starts_for_length=True,
    beyond_prompt=7,  # max_req_len is one less than the context, and a prompt leaves six of that
    foreign={
        **NO_STEPS,
        **CACHE_CLASS,
        "gpu_memory_utilization": "SGLang's is --mem-fraction-static, and counts otherwise",
        "max_num_batched_tokens": "SGLang's is --chunked-prefill-size",
        "num_gpu_blocks_override": "SGLang's is --max-total-tokens",
        "disable_hybrid_kv_cache_manager": "SGLang's is --disable-hybrid-swa-memory",
        "async_scheduling": "SGLang's is --disable-overlap-schedule",
        "enable_prefix_caching": "SGLang's is --disable-radix-cache",
        "kv_retention": "SGLang drops tokens only where a layer of the model has a window"
        " (mem_cache/swa_memory_pool.py): no flag gives it one",
    },
    axes=Axes(context=True, groups="attn_dp_size", spread="ep_size"),
    usual_block=64,
    kv_formats=("auto", "fp8_e4m3", "nvfp4", "fp4_mx_block16"),
    memory_share=MemoryShare(
        "mem_fraction_static", "--mem-fraction-static", ("0.85", "0.9", "0.93"), of_free=True
    ),
    pinned={"chunked_prefill_size": "chunked_prefill_size"},
    windows_off={"disable_hybrid_swa_memory": True},
    at_once="as many as fit at full length, answers included: so none is retracted, which admission alone"
    " would not prevent: it charges running requests a part of their answers (new_token_ratio,"
    " managers/schedule_policy.py)",
    printed_pool="tokens",
)
