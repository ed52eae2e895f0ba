"""The options that TensorRT-LLM alone has; read by the command line without loading the engine."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.options import RetainingOptions, option, options_of
from kvplan.record import record


@record()
class TrtllmOptions(RetainingOptions):
    """The options that TensorRT-LLM alone has."""

    free_gpu_memory_fraction: Fraction = option(
        "share", "Part of the memory that the start-up run leaves, for the cache.", Fraction(9, 10)
    )
    max_attention_window: tuple[int, ...] = option(
        "counts", "Window of each layer, repeated over the layers (default: none)."
    )
    window_size_shares: tuple[Fraction, ...] = option(
        "shares", "Part of the memory of each window size, smallest first (default: equal)."
    )
    max_tokens: int | None = option("count", "Upper bound of the pool's tokens; not for several windows.")
    use_kv_cache_manager_v2: bool = option(
        "flag", "The prototype that shares pools between windows whose blocks are alike.", False
    )
    max_util_for_resume: Fraction = option(
        "share", "Part of the pool up to which requests resume, for the prototype.", Fraction(95, 100)
    )
    mamba_state_cache_interval: int | None = option(
        "count", "Tokens between snapshots of a state (default: no reuse of states)."
    )
    capacity_scheduler_policy: str = option(
        "word",
        "Who is let in: with room for the whole answer, for the next step, or batch by batch.",
        "GUARANTEED_NO_EVICT",
        choices=("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"),
    )
    enable_chunked_prefill: bool | None = option(
        "flag", "A step may take a part of a prompt (default: the engine's own; vLLM on, TensorRT-LLM off)."
    )
    context_chunking_policy: str = option(
        "word",
        "How a step's tokens are dealt to prompts that are cut.",
        "FIRST_COME_FIRST_SERVED",
        choices=("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"),
    )
    enable_partial_reuse: bool = option("flag", "Blocks that are alike in part are reused.", True)
    disable_overlap_scheduler: bool = option("flag", "No overlap of scheduling and forward.", False)
    enable_attention_dp: bool = option("flag", "Attention data-parallel: every rank keeps all heads.", False)
    moe_expert_parallel_size: int | None = option(
        "count", "Ranks among which whole experts are divided (default: 1)."
    )


OPTIONS = options_of(TrtllmOptions)
