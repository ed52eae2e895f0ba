"""TensorRT-LLM's scheduler settings: one pool of blocks (`kvplan.simulation.trtllm`).

NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/llmapi/llm_args.py (SchedulerConfig, KvCacheConfig,
enable_chunked_prefill, disable_overlap_scheduler).
"""

from __future__ import annotations

from kvplan.engines.base import has_kind
from kvplan.engines.scheduling import CapacityFirst, not_simulated
from kvplan.engines.trtllm.engine import plan_of
from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.errors import RefusedError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.settings import Settings


def scheduling(model: Model, settings: Settings, version: str) -> CapacityFirst:
    """The scheduler's settings. Raises RefusedError(not-simulated)."""
    options = TrtllmOptions.of(settings)
    if options.use_kv_cache_manager_v2:
        raise not_simulated("KVCacheManagerV2, a prototype in 1.2,", "leave out --use-kv-cache-manager-v2")
    plan = plan_of(model, settings, version)
    if plan is None:
        raise RefusedError("not-simulated", "TensorRT-LLM would not start with these settings")
    if settings.pipeline_parallel_size > 1:
        raise not_simulated("a pipeline, whose stages work on batches of their own,", "--pp 1")
    if options.enable_attention_dp:
        raise not_simulated("attention that is data-parallel (--enable-attention-dp)", "--tp alone")
    if settings.num_speculative_tokens or settings.speculative_method is not None:
        raise not_simulated("speculative decoding", "leave out --speculative")
    if plan.fullest.state or has_kind(model, Kind.STATE):
        raise not_simulated("TensorRT-LLM's cache of states", "-e vllm, or another model")
    if has_kind(model, Kind.CROSS):
        raise not_simulated("cross attention", "a decoder-only model")
    if set(plan.pattern) != {plan.max_seq_len}:
        raise not_simulated("a pool of windows", "leave out --max-attention-window, or -e vllm")
    reuse = settings.enable_prefix_caching
    cut, chunking = options.enable_chunked_prefill, options.context_chunking_policy
    return CapacityFirst(
        release=version,
        tokens_per_block=plan.block,
        max_num_tokens=plan.max_num_tokens,
        max_batch_size=plan.max_batch_size,
        max_seq_len=plan.max_seq_len,
        enable_block_reuse=True if reuse is None else reuse,
        enable_partial_reuse=options.enable_partial_reuse,
        capacity_scheduler_policy=options.capacity_scheduler_policy,
        context_chunking_policy=chunking if cut else None,
        overlap=not options.disable_overlap_scheduler,
    )
