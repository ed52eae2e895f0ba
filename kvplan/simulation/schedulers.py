"""The simulated scheduler of any engine: its settings from what the engine says of it, its replica, views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kvplan.acceptance import Acceptance
from kvplan.engines.scheduling import (
    STATE_SLOTS,
    WINDOW_TOKENS,
    CapacityFirst,
    PromptsFirst,
    ScheduledDrafts,
    Scheduling,
)
from kvplan.engines.traits import traits_of
from kvplan.results import SizeResult
from kvplan.simulation.sglang import settings as sglang
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.results import Answer
from kvplan.simulation.time.timeline import AnyEngine, Timeline, Trace
from kvplan.simulation.trtllm import settings as trtllm
from kvplan.simulation.trtllm.settings import TrtllmEngine
from kvplan.simulation.vllm import releases
from kvplan.simulation.vllm.drafts import Drafts, scaled
from kvplan.simulation.vllm.replica import Replica
from kvplan.simulation.vllm.settings import Engine, Group

View = TypeVar("View", bound=Timeline)
Facts = Scheduling | PromptsFirst | CapacityFirst


def known_releases(facts: Facts) -> tuple[str, ...]:
    """Releases whose scheduler is known; the newest is last."""
    if isinstance(facts, CapacityFirst):
        return trtllm.KNOWN
    return sglang.KNOWN if isinstance(facts, PromptsFirst) else releases.KNOWN


def engine_of(
    facts: Facts, result: SizeResult, release: str, acceptance: Acceptance | None = None
) -> AnyEngine:
    """The simulated scheduler with the answer's pool."""
    assert result.pool is not None
    return engine_from(
        facts, release=release,
        blocks=result.pool.num_blocks - traits_of(result.engine.name).null_blocks,
        sequences=result.pool.max_num_seqs, windows=int(str(result.settings.get(WINDOW_TOKENS) or 0)),
        states=int(str(result.settings.get(STATE_SLOTS) or 0)), acceptance=acceptance,
    )  # fmt: skip


def engine_from(
    facts: Facts, *, blocks: int, sequences: int, release: str, windows: int = 0, states: int = 0,
    acceptance: Acceptance | None = None,
) -> AnyEngine:  # fmt: skip
    """blocks: of the pool, without the engine's own; sequences: SGLang's requests that may run; windows,
    states: tokens of its pool of windows, slots of that of states."""
    if isinstance(facts, PromptsFirst):
        kept = facts.states
        return SglangEngine(
            blocks=blocks, block=facts.page_size, chunk=facts.chunked_prefill_size,
            batch=facts.max_prefill_tokens, sequences=sequences, length=facts.context_length,
            caching=facts.radix_cache, policy=facts.schedule_policy, order=facts.radix_eviction_policy,
            overlap=facts.overlap, mixed=facts.enable_mixed_chunk,
            conservativeness=facts.schedule_conservativeness, release=release,
            window=facts.window, window_blocks=windows // facts.page_size if facts.window else 0,
            state_slots=0 if kept is None else states, extra_buffer=kept is None or kept.extra_buffer,
            state_chunk=64 if kept is None else kept.chunk,
            track_interval=256 if kept is None else kept.interval,
        )  # fmt: skip
    if isinstance(facts, CapacityFirst):
        return TrtllmEngine(
            blocks=blocks, block=facts.tokens_per_block, batch=facts.max_num_tokens, sequences=sequences,
            length=facts.max_seq_len, caching=facts.enable_block_reuse, partial=facts.enable_partial_reuse,
            policy=facts.capacity_scheduler_policy, chunking=facts.context_chunking_policy,
            overlap=facts.overlap, release=release,
        )  # fmt: skip
    return Engine(
        blocks=blocks,
        groups=tuple(Group(group.kind, group.block, group.span, group.checkpoint) for group in facts.groups),
        block=facts.block_size,
        batch=facts.max_num_batched_tokens,
        sequences=min(facts.max_num_seqs, facts.max_num_batched_tokens),
        length=facts.max_model_len,
        caching=facts.enable_prefix_caching,
        chunked=facts.chunked,
        overlap=facts.overlap,
        states=facts.states,
        retention=facts.retention,
        release=release,
        drafts=_drafts(facts.drafts, acceptance),
        stages=facts.stages,
    )


def _drafts(said: ScheduledDrafts | None, acceptance: Acceptance | None) -> Drafts | None:
    if said is None:
        return None
    assert acceptance is not None
    return Drafts(said.tokens, scaled(acceptance.shares), said.ahead, said.slots, said.drops)


def kind_of(engine: AnyEngine) -> type[Timeline]:
    """The replica with its scheduler."""
    if isinstance(engine, SglangEngine):
        from kvplan.simulation.sglang.replica import SglangReplica

        return SglangReplica
    if isinstance(engine, TrtllmEngine):
        from kvplan.simulation.trtllm.replica import TrtllmReplica

        return TrtllmReplica
    if isinstance(engine, Engine) and engine.offload is not None:
        from kvplan.simulation.vllm.offload.replica import Offloaded

        return Offloaded
    if isinstance(engine, Engine) and engine.stages > 1:
        from kvplan.simulation.vllm.pipeline import Pipelined

        return Pipelined
    return Replica


def viewed(view: Callable[..., View], engine: AnyEngine) -> Callable[..., View]:
    """A view (a `Timeline` with more to note, and no scheduler) on the replica that an engine asks for."""
    bases: Any = (view, kind_of(engine))
    found = _COMPOSED.get(bases)
    if found is None:
        found = _COMPOSED[bases] = type("".join(base.__name__ for base in bases), bases, {})
    return cast("Callable[..., View]", found)


_COMPOSED: dict[tuple[object, type[Timeline]], type] = {}


def simulate_any(
    trace: Trace, engine: AnyEngine, time: Clock, *, jump: bool = True, rows: bool = False
) -> Answer:
    """`kvplan.simulation.vllm.replica.simulate` for whichever engine."""
    engine.check()
    trace.check()
    return kind_of(engine)(trace, engine, time, jump=jump, rows=rows).run()
