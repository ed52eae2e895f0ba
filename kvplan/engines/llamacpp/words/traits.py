"""llama.cpp's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, NO_STEPS, VLLM_ONLY, Axes, Traits, Tried

TRAITS = Traits(
    markets=("datacenter", "workstation", "desktop", "laptop", "embedded"),
    timed=False,
    foreign={
        **NO_STEPS,
        **CACHE_CLASS,
        "gpu_memory_utilization": "llama.cpp allocates what --ctx-size needs",
        "max_num_seqs": "llama.cpp's is --parallel",
        "max_num_batched_tokens": "llama.cpp's is --ubatch-size",
        "block_size": "llama.cpp has no blocks",
        "num_gpu_blocks_override": "llama.cpp's is --ctx-size",
        "dtype": "the GGUF file decides it; the cache's are --cache-type-k and --cache-type-v",
        "enforce_eager": VLLM_ONLY,
        "enable_expert_parallel": "llama.cpp deals whole layers over its GPUs",
        "attention_backend": "llama.cpp's is --flash-attn",
        "mamba_cache_dtype": "llama.cpp keeps states in f32",
        "mamba_ssm_cache_dtype": "llama.cpp keeps states in f32",
    },
    spread="pipeline_parallel_size",  # --split-mode layer, its default
    unequal=True,
    spills=4096,  # --fit, on by default: common/fit.cpp, fit_params_min_ctx of common/common.h
    auto_length=True,
    axes=Axes(tensor=False, experts=False, seqs=False),
    usual_block=256,  # what a context is padded to
    kv_formats=("auto", "q8_0", "q5_1", "q4_0"),
    at_desk=True,
    on_macs=True,
    builds={"f16": 16, "q8_0": 8, "q6_k": 6, "q5_k_m": 5, "q4_k_m": 4, "q3_k_m": 3},
    usual_builds={"": "q4_k_m", "mxfp4": "mxfp4"},  # of gpt-oss the experts stay as they are published
    retention=Tried("sinks:4,window:4096", without=("ctx_size", "parallel")),
    windows_off={"swa_full": True},
    never_preempts="every slot has its own room",
    at_once="a slot a request, as long as the longest (tools/server/server.cpp)",
    printed_pool="length",
)
