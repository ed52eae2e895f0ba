"""MLX's traits: answers for rooms that know no engine."""

from __future__ import annotations

from kvplan.engines.traits import CACHE_CLASS, NO_STEPS, VLLM_ONLY, Axes, Traits

_NONE = "MLX has no such option"
TRAITS = Traits(
    markets=(),
    named_gpu="m4-max",
    timed=False,
    foreign={
        **NO_STEPS,
        **CACHE_CLASS,
        "gpu_memory_utilization": "MLX takes what macOS lets the GPU use: sysctl iogpu.wired_limit_mb",
        "num_gpu_blocks_override": "MLX has no blocks",
        "block_size": "MLX has no blocks: its caches grow by 256 tokens",
        "attention_backend": _NONE,
        "enforce_eager": VLLM_ONLY,
        "enable_expert_parallel": _NONE,
        "enable_prefix_caching": "MLX's is --prompt-cache-size",
        "speculative_method": "what MLX's --draft-model takes is not known here",
        "mamba_cache_dtype": "MLX's classes decide it",
        "mamba_ssm_cache_dtype": "MLX's classes decide it",
        "kv_retention": "MLX's is --max-kv-size, of mlx_lm.generate",
    },
    axes=Axes(tensor=False, experts=False),
    usual_block=256,
    builds={"bf16": 16, "8bit": 8, "4bit": 4},
    usual_builds={"mxfp4": "mxfp4"},  # of gpt-oss the experts stay as they are published
    pinned={"max_num_batched_tokens": "prefill_step_size"},
    never_preempts="a request's cache grows as long as there is memory (generate.py, BatchGenerator)",
    at_once="as many as --decode-concurrency says, whatever their caches take (generate.py, BatchGenerator)",
)
