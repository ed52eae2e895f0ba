"""SGLang's scheduler settings: one pool, prompts before answers (`kvplan.simulation.sglang`)."""

from __future__ import annotations

from kvplan.engines.base import has_kind, planned_values
from kvplan.engines.scheduling import KeptStates, PromptsFirst, ScheduledRanks, not_simulated
from kvplan.engines.sglang.cache_layout.stages import Pools
from kvplan.engines.sglang.engine import asked_context, compiled
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.backends import is_large_hopper_vl
from kvplan.engines.sglang.start.models import uses_state_radix
from kvplan.errors import RefusedError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.settings import Settings

MAX_PREFILL_TOKENS = 16_384
ATTENTION_SHARE = 0.3
"""Factor on schedule_conservativeness where attention is data-parallel (arg_groups/parallel_hook.py,
handle_data_parallelism)."""
_STRATEGIES = ("extra_buffer", "no_buffer")
STATE_CHUNK = 64
"""FLA_CHUNK_SIZE, where the config states no mamba_chunk_size (overrides.py, mamba_cache_chunk_size); short
convolutions, whose class says 1, have no buffers that it would matter to."""


def scheduling(model: Model, settings: Settings, version: str) -> PromptsFirst:
    """The scheduler's settings. Raises RefusedError(not-simulated)."""
    known = compiled(model, version, asked_context(model, settings, version), planned_values(settings))
    arguments, pools = known.arguments, known.pools
    if known.refusal is not None or pools is None:
        raise RefusedError("not-simulated", "SGLang would not start with these settings")
    if arguments.pp > 1:
        raise not_simulated("a pipeline, whose stages work on batches of their own,", "--pp 1")
    if arguments.dcp > 1:
        raise not_simulated("decode context parallelism", "--dcp 1")
    if arguments.draft_tokens:
        raise not_simulated(
            "SGLang's scheduler with drafts, which was not asked step by step,",
            "leave out --speculative, or -e vllm, whose drafts are simulated",
        )
    if pools.window is not None and not arguments.radix:
        raise not_simulated(
            "a pool of windows without the radix cache", "the radix cache, or --disable-hybrid-swa-memory"
        )
    if pools.compressed:
        raise not_simulated("SGLang's cache of compressed tokens", "-e vllm, or another model")
    if has_kind(model, Kind.CROSS):
        raise not_simulated("cross attention", "a decoder-only model")
    if is_large_hopper_vl(model, arguments.device):
        raise not_simulated("the interval between prefills that Qwen3-VL has on Hopper", "-e vllm")
    options = SglangOptions.of(settings)
    chunk = arguments.rank_prefill_size
    share = options.schedule_conservativeness
    conservative = 1.0 if share is None else float(share)
    ranks = None
    if arguments.attn_dp > 1:
        conservative *= ATTENTION_SHARE
        ranks = ScheduledRanks(lockstep=True)
    elif settings.data_parallel_size > 1:
        ranks = ScheduledRanks(lockstep=False)
    return PromptsFirst(
        release=version,
        page_size=arguments.page_size,
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=options.max_prefill_tokens or MAX_PREFILL_TOKENS,
        context_length=arguments.context_len,
        radix_cache=arguments.radix,
        overlap=arguments.overlap,
        enable_mixed_chunk=options.enable_mixed_chunk,
        schedule_policy=options.schedule_policy,
        radix_eviction_policy=options.radix_eviction_policy,
        schedule_conservativeness=conservative,
        window=pools.window or 0,
        states=_states(model, arguments, pools, options),
        ranks=ranks,
    )


def _states(model: Model, arguments: Arguments, pools: Pools, options: SglangOptions) -> KeptStates | None:
    """How states are kept for reuse; None where there are none. Raises RefusedError(not-simulated)."""
    if not pools.slot_bytes and not has_kind(model, Kind.STATE):
        return None
    if not arguments.radix or not uses_state_radix(model):
        raise not_simulated("states that the radix cache does not keep", "the radix cache, or -e vllm")
    if pools.window is not None or not any(stage.full for stage in pools.stages):
        raise not_simulated("states beside windows, or alone,", "-e vllm, or another model")
    if arguments.strategy not in _STRATEGIES:
        raise not_simulated(
            f"mamba_radix_cache_strategy {arguments.strategy}", "--mamba-radix-cache-strategy extra_buffer"
        )
    if options.enable_mixed_chunk:
        raise not_simulated("mixed chunks beside states", "leave out --enable-mixed-chunk")
    chunk = int(model.facts.get("mamba_chunk_size") or STATE_CHUNK)
    return KeptStates(arguments.strategy == "extra_buffer", chunk)
