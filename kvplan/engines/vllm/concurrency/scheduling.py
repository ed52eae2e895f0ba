"""Settings of vLLM's scheduler and block managers: the compiled plan as a simulation takes it.

vllm-project/vllm 0.32 vllm/config/cache.py: prefix_cache_retention_interval is 0 by default since 0.30, so of
windows and states only what a later request can resume at is kept (`kvplan.simulation.vllm.tables`).
"""

from __future__ import annotations

from kvplan.architectures.config import activation_shape
from kvplan.engines.scheduling import (
    BY_COUNTS,
    ScheduledDrafts,
    ScheduledGroup,
    ScheduledRanks,
    Scheduling,
    not_simulated,
)
from kvplan.engines.vllm.cache_layout.plan import Plan, PlanGroup
from kvplan.engines.vllm.cache_layout.specs import FULL_KINDS, SLIDING_KINDS, SpecKind, Steps
from kvplan.engines.vllm.compiled import compiled
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules
from kvplan.errors import RefusedError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Settings

DEFAULT_RETENTION = 0
_MODES = ("none", "align", "all")


def scheduling(model: Model, settings: Settings, version: str) -> Scheduling:
    """The scheduler's settings. Raises RefusedError(not-simulated)."""
    known = compiled(model, version, settings)
    if known.plan is None:
        raise RefusedError("not-simulated", "vLLM would not start with these settings")
    shown, stages = dict(known.settings), settings.pipeline_parallel_size
    if stages > 1 and shown["async_scheduling"] is True and runner_of(model, settings, version) != V2:
        raise not_simulated(
            "a pipeline under vLLM's first model runner with async scheduling", "--no-async-scheduling"
        )
    found = scheduling_of(known.plan, shown, version, stages)
    if settings.data_parallel_size == 1:
        return found
    lockstep = activation_shape.num_experts(model) > 0
    if lockstep and stages > 1:
        raise not_simulated("a pipeline of data-parallel ranks that share experts", "--pp 1")
    return replace(found, ranks=ScheduledRanks(lockstep, BY_COUNTS))


def scheduling_of(plan: Plan, shown: dict[str, object], version: str, stages: int) -> Scheduling:
    """shown: the resolved settings of the answer; stages: pipeline stages. Raises RefusedError."""
    if stages > 1 and plan.steps.drafts:
        raise not_simulated("a pipeline with drafts", "--pp 1, or leave out --speculative")
    if plan.steps.runway > 1:
        raise not_simulated(
            "a draft of several prediction layers (multi-module MTP)", "--speculative mtp:1: one of them"
        )
    mode = str(shown.get("mamba_cache_mode", "none"))
    caching = shown["enable_prefix_caching"] is True
    if mode not in _MODES:
        raise not_simulated(f"mamba_cache_mode {mode}", "--mamba-cache-mode align")
    groups = tuple(_group(group) for group in plan.groups)
    if not groups:
        raise not_simulated("a model without a cache", "kvplan simulate llama-3.1-8b --trace FILE")
    return Scheduling(
        release=version,
        groups=groups,
        block_size=groups[0].block
        if len(groups) == 1
        else int(str(shown.get("block_size", groups[0].block))),
        max_num_batched_tokens=int(str(shown["max_num_batched_tokens"])),
        max_num_seqs=plan.max_num_seqs,
        max_model_len=plan.max_model_len,
        enable_prefix_caching=caching,
        chunked=plan.steps.chunked,
        overlap=shown["async_scheduling"] is True,
        states=mode if caching else "none",
        retention=_retention(plan.rules, groups),
        drafts=_drafts(plan.steps),
        stages=stages,
    )


def _drafts(steps: Steps) -> ScheduledDrafts | None:
    if not steps.drafts:
        return None
    return ScheduledDrafts(steps.drafts, steps.ahead, steps.slots, steps.drops)


def _retention(rules: Rules, groups: tuple[ScheduledGroup, ...]) -> int | None:
    """prefix_cache_retention_interval; None: every block is kept."""
    sparse = rules.sparse_retention and any(group.kind in ("window", "state") for group in groups)
    return DEFAULT_RETENTION if sparse else None


def _group(group: PlanGroup) -> ScheduledGroup:
    kind, block = SpecKind(group.kind), group.block_size * group.charge.shards
    if kind is SpecKind.CROSS:
        raise not_simulated("cross attention", "a decoder-only model")
    if kind is SpecKind.MIXED:
        raise not_simulated("a group whose layers differ in kind", "--disable-hybrid-kv-cache-manager")
    if kind is SpecKind.MAMBA:
        saved = group.aligned and (group.charge.fixed or 0) - group.drafts > 2
        # the kernels' alignments (1, 16, the block) divide every block: only whether they save matters
        return ScheduledGroup("state", block, checkpoint=int(saved))
    if kind is SpecKind.RING:
        return ScheduledGroup("ring", block)
    if kind in FULL_KINDS:
        return ScheduledGroup("full", block)
    span = group.window or 0
    return (
        ScheduledGroup("window", block, span + 1)
        if kind in SLIDING_KINDS
        else ScheduledGroup("chunk", block, span)
    )
