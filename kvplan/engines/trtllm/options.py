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
        "capacity_scheduler_policy",
        "word",
        "Who is let in: with room for the whole answer, for the next step, or batch by batch.",
        default="GUARANTEED_NO_EVICT",
        choices=("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"),
    ),
    EngineOption("enable_chunked_prefill", "flag", "Prompts are cut into chunks.", default=False),
    EngineOption(
        "context_chunking_policy",
        "word",
        "How a step's tokens are dealt to prompts that are cut.",
        default="FIRST_COME_FIRST_SERVED",
        choices=("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"),
    ),
    EngineOption("enable_partial_reuse", "flag", "Blocks that are alike in part are reused.", default=True),
    EngineOption("disable_overlap_scheduler", "flag", "No overlap of scheduling and forward.", default=False),
    EngineOption(
        "enable_attention_dp", "flag", "Attention data-parallel: every rank keeps all heads.", default=False
    ),
    EngineOption(
        "moe_expert_parallel_size", "count", "Ranks among which whole experts are divided (default: 1)."
    ),
    RETENTION,
)
