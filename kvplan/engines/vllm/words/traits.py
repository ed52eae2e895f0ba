"""vLLM's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, Axes, MemoryShare, Traits

TRAITS = Traits(
    starts_for_length=True,
    documented_from=(7, 5),  # docs/getting_started/installation/gpu.cuda.inc.md, since v0.21.0
    foreign={
        **CACHE_CLASS,
        "kv_retention": "vLLM drops tokens only where a layer of the model has a window"
        " (v1/kv_cache_interface.py): no flag gives it one",
    },
    auto_length=True,
    auto_word=True,
    in_flight=True,
    null_blocks=1,  # vllm-project/vllm v1/core/block_pool.py
    one_pool=True,
    drafts_drop_block=True,  # vllm/config/speculative.py, use_eagle_block_drop
    axes=Axes(data=True, context=True),
    usual_block=16,
    host_block=128,  # vllm/platforms/cpu.py, check_and_update_config
    kv_formats=(
        *("auto", "fp8", "nvfp4", "turboquant_k8v4", "turboquant_4bit_nc", "int4_per_token_head"),
        *("turboquant_k3v4_nc", "turboquant_3bit_nc"),
    ),
    memory_share=MemoryShare("gpu_memory_utilization", "--gpu-memory-utilization", ("0.93", "0.95", "0.97")),
    pinned={
        "max_num_batched_tokens": "max_num_batched_tokens",
        "gpu_memory_utilization": "gpu_memory_utilization",
    },
    # vllm-project/vllm 0.32. Older GPUs than the native ones run fp8, nvfp4 and mxfp4 by Marlin's weight-only
    # kernels.
    weight_capabilities={
        "fp8": ((7, 5), None, "layers/quantization/fp8.py, get_min_capability"),
        "int4": ((7, 5), None, "layers/quantization/auto_awq.py, get_min_capability"),
        "nvfp4": ((7, 5), None, "layers/quantization/modelopt.py, get_min_capability"),
        "mxfp4": ((8, 0), None, "layers/quantization/mxfp4.py, get_min_capability"),
        "int8": ((7, 5), (10, 0), "csrc/libtorch_stable/quantization/w8a8/cutlass/c3x/scaled_mm_helper.hpp"),
    },
    emulated_weights={
        "nvfp4": ((), "model_executor/kernels/linear/__init__.py, _POSSIBLE_NVFP4_KERNELS"),
        "mxfp4": (("gfx95", "gfx1250"), "platforms/rocm.py, supports_mx"),
    },
    windows_off={"disable_hybrid_kv_cache_manager": True},
    at_once="as many as arrive together without one being preempted: a window or a chunk is given back as a"
    " request goes on, so only prompts under way hold their tokens in flight (v1/core/sched/scheduler.py)",
    printed_pool="blocks",
    log_lines=(  # v1/core/kv_cache_utils.py
        "Available KV cache memory: {memory}",
        "GPU KV cache size: {tokens:,} tokens",
        "Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x",
    ),
)
