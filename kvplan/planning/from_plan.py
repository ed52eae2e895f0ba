"""A plan as the planner's question: what of it stands, what is searched, and the answer as its successor.

What stands: the model (this very checkpoint), the engine's release, the load, what is required, the KV
format and max_model_len where the plan states them, and every flag that is no part of the layout. What is
searched: how many GPUs, how they are divided, and max_num_seqs, which follows from it. Pure.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.named import NamedTuple
from kvplan.planning.ask import Demand
from kvplan.planning.context import request_of
from kvplan.plans.plan import LIKELY, QUALITIES, SAFE, SIMULATED, USUAL_GOODPUT, Plan
from kvplan.plans.serve import flag_for, flags_of, host_tiers, unsaid
from kvplan.plans.workload import Workload
from kvplan.record import replace
from kvplan.settings import Settings, stated_length

_LAYOUT = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size",
    "spread", "enable_expert_parallel", "max_num_seqs", "max_model_len", "kv_cache_dtype", "gpu", "tokens",
    "requests",
)  # fmt: skip
"""Settings that a candidate has of its own."""
_POOL = ("kv_cache_memory", "num_gpu_blocks_override")
"""Settings that state the pool, which here follows from the GPU."""
_OWN_LAYOUT = (
    "enable_dp_attention", "attn_dp_size", "enable_attention_dp", "ep_size", "moe_expert_parallel_size",
    "ctx_size", "parallel",
)  # fmt: skip
_ANY_ENGINE = (
    "dtype", "quantization", "weights", "speculative_method", "num_speculative_tokens", "speculative_model"
)  # fmt: skip
"""Settings that mean the same to every engine."""
_DEFAULTS = Settings()


class Load(NamedTuple):
    """The load to serve. mix: None where the plan names no length; workload: it is the plan's own. also: what
    must be held by itself too, in the same pools."""

    mix: Workload | None
    requests: int
    also: tuple[Demand, ...] = ()
    workload: bool = False

    @property
    def longest(self) -> int:
        """Tokens of the longest request; 0 where no length is named."""
        lengths = [] if self.mix is None else [self.mix.longest]
        return max([*lengths, *(one.shape.tokens for one in self.also)], default=0)


def _beyond(mix: Workload, requests: int, also: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Demands that the workload does not say already."""
    own = (mix.shapes[0].tokens, requests) if len(mix.shapes) == 1 else None
    return tuple(one for one in also if (one.shape.tokens, one.requests) != own)


def load_of(plan: Plan, requests: int | None = None) -> Load:
    """The workload with its requests in flight, and the requests that are required: each must be held.

    requests: how many at once instead of both. A workload that says no number is of no account beside
    requests of a required length, but for its longest.
    """
    mix, require = plan.workload, plan.require
    if mix is not None and requests is not None:
        mix = replace(mix, requests_in_flight=requests)
    number = requests or require.requests or 1
    also: tuple[Demand, ...] = ()
    if require.tokens is not None:
        shapes = mix.shapes if mix is not None else ()
        generated = next((one.output_tokens for one in shapes if one.tokens == require.tokens), None)
        also = (Demand(number, request_of(require.tokens, generated)),)
    counted = mix is not None and (mix.requests_in_flight or mix.requests_per_second)
    if mix is not None and (counted or not also):
        flying = mix.requests_in_flight
        if flying is None and mix.requests_per_second is None:
            mix = replace(mix, requests_in_flight=number)
        return Load(mix, flying or number, _beyond(mix, flying or number, also), workload=True)
    if not also:
        return Load(None, number)
    return Load(Workload((also[0].shape,), requests_in_flight=number), number)


def base_of(plan: Plan) -> Settings:
    """The plan's settings that every candidate has."""
    changes = {name: getattr(_DEFAULTS, name) for name in (*_LAYOUT, *_POOL)}
    return replace(plan.settings, own=plan.settings.own.without(*_OWN_LAYOUT), **changes)


def settings_for(plan: Plan, choice: Choice, base: Settings) -> tuple[Settings, tuple[str, ...]]:
    """(those settings in the words of an engine, what of the plan is left out, in words)."""
    stated = [
        flag_for(plan.engine, name) or name for name in _POOL if getattr(plan.settings, name) is not None
    ]
    notes = [f"{name} is left out: the pool follows from the GPU" for name in stated]
    if choice.engine.name == plan.engine.partition("@")[0]:
        return base, tuple(notes)
    kept: dict[str, Any] = {name: getattr(base, name) for name in _ANY_ENGINE}
    moved = own_settings(choice.engine, Settings(**kept))
    if lost := [name for name in unsaid(moved, choice.engine.name) if hasattr(_DEFAULTS, name)]:
        moved = replace(moved, **{name: getattr(_DEFAULTS, name) for name in lost})
    notes.append(f"of the flags of {plan.engine} none is taken to {choice.engine.name}")
    return moved, tuple(notes)


def kv_word(plan: Plan) -> str | None:
    """The KV format that the plan states; None where it leaves it open."""
    word, flag = plan.settings.kv_cache_dtype, flag_for(plan.engine, "kv_cache_dtype")
    return word if word != _DEFAULTS.kv_cache_dtype or flag in dict(plan.serve) else None


def length_of(plan: Plan, longest: int) -> int:
    """max_model_len as the plan states it, else what its requests and its requirement need; 0: not said."""
    return stated_length(plan.settings) or least_length(plan, longest)


def least_length(plan: Plan, longest: int) -> int:
    """The least length that the engine must serve."""
    mix = plan.workload.longest if plan.workload is not None and not longest else 0
    return max(longest, mix, plan.require.max_model_len or 0)


def pool_of(plan: Plan) -> str:
    """The figure of the pool that must do: as the plan states it, else the safe one; where requests come at a
    rate and must keep times the likely one."""
    workload = plan.workload
    if "require.pool" in plan.marks:
        return plan.require.pool
    return LIKELY if workload is not None and workload.requests_per_second and workload.has_targets else SAFE


def successor(plan: Plan, best: Plan, *, replaced: bool, requests: int | None, context: bool) -> Plan:
    """The best as a plan with what the first one requires.

    replaced: the load is another one; requests: how many at once instead. Receipts belong to the old plan.
    """
    require = replace(best.require, prefix_cache_bytes=plan.require.prefix_cache_bytes,
                      max_cost_per_hour=plan.require.max_cost_per_hour)  # fmt: skip
    workload = best.workload
    if not replaced:
        number = requests if plan.require.requests is not None and requests else plan.require.requests
        require = replace(
            require,
            requests=number,
            tokens=plan.require.tokens,
            max_model_len=require.max_model_len if context else plan.require.max_model_len,
            **_simulated(plan, best),
        )
        workload = _workload(plan, best, requests)
    places = [QUALITIES.index(one.quality) for one in (plan, best)]
    return replace(
        best,
        workload=workload,
        require=require,
        serve=(*best.serve, *_kept(plan, best)),
        quality=QUALITIES[max(places)],
        tolerance=plan.tolerance,
    )


def goodput_of(plan: Plan) -> Fraction:
    """The share of requests that must keep their times: so large a one keeps every percentile that is
    required."""
    require = plan.require
    percentiles = [
        getattr(require, f"{name}_percentile")
        for name in ("ttft", "tpot")
        if getattr(require, f"{name}_seconds") is not None
    ]
    return max([percentile / 100 for percentile in percentiles], default=require.goodput or USUAL_GOODPUT)


def _simulated(plan: Plan, best: Plan) -> dict[str, Any]:
    """Requirements of a simulation: the first plan's, but for times that the best was simulated with."""
    times = ("goodput", "ttft_seconds", "tpot_seconds", "ttft_percentile", "tpot_percentile")
    anew = times if best.require.goodput is not None else ()
    names = (*SIMULATED, "ttft_percentile", "tpot_percentile")
    return {name: getattr(best.require if name in anew else plan.require, name) for name in names}


def _workload(plan: Plan, best: Plan, requests: int | None) -> Workload | None:
    """The first plan's workload, or the best's with the targets that the first one has."""
    if not load_of(plan, requests).workload:
        return plan.workload
    if best.workload is None or plan.workload is None:
        return best.workload
    targets = {name: getattr(plan.workload, name) for name in ("ttft_seconds", "tpot_seconds")}
    missing = {name: one for name, one in targets.items() if getattr(best.workload, name) is None}
    return replace(best.workload, **missing)


def _kept(plan: Plan, best: Plan) -> list[tuple[str, object]]:
    """Flags that no setting says, where the engine is the same and no tier in host memory says them anew."""
    if best.engine.partition("@")[0] != plan.engine.partition("@")[0]:
        return []
    tier = host_tiers().get(plan.engine.partition("@")[0]) if best.require.host_memory_bytes else None
    anew = set() if tier is None else {tier.flag, *(name for name, _ in tier.needs)}
    flags = flags_of(plan.engine).flags
    return [
        pair for pair in plan.serve
        if pair[0] not in anew and pair[0] in flags and flags[pair[0]].setting is None
    ]  # fmt: skip
