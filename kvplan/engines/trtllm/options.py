"""The options that TensorRT-LLM alone has; read by the command line without loading the engine."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import RETENTION, EngineOption

OPTIONS = (
    EngineOption(
        "free_gpu_memory_fraction",
        "share",
        "Part of the memory that the start-up run leaves, for the cache.",
        default=Fraction(9, 10),
    ),
    EngineOption(
        "max_attention_window", "counts", "Window of each layer, repeated over the layers (default: none)."
    ),
    EngineOption(
        "window_size_shares",
        "shares",
        "Part of the memory of each window size, smallest first (default: equal).",
    ),
    EngineOption("max_tokens", "count", "Upper bound of the pool's tokens; not for several windows."),
    EngineOption(
        "use_kv_cache_manager_v2",
        "flag",
        "The prototype that shares pools between windows whose blocks are alike.",
        default=False,
    ),
    EngineOption(
        "max_util_for_resume",
        "share",
        "Part of the pool up to which requests resume, for the prototype.",
        default=Fraction(95, 100),
    ),
    EngineOption(
        "mamba_state_cache_interval",
        "count",
        "Tokens between snapshots of a state (default: no reuse of states).",
    ),
    EngineOption(
        "enable_attention_dp", "flag", "Attention data-parallel: every rank keeps all heads.", default=False
    ),
    EngineOption(
        "moe_expert_parallel_size", "count", "Ranks among which whole experts are divided (default: 1)."
    ),
    RETENTION,
)
