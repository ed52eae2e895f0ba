"""From what an engine says of its scheduler to the simulated one, with a pool."""

from __future__ import annotations

from kvplan.engines.scheduling import CapacityFirst, PromptsFirst, Scheduling
from kvplan.simulate import releases
from kvplan.simulate.settings import Engine, Group
from kvplan.simulate.sglang import settings as sglang
from kvplan.simulate.timeline import AnyEngine
from kvplan.simulate.trtllm import settings as trtllm

Facts = Scheduling | PromptsFirst | CapacityFirst


def known_releases(facts: Facts) -> tuple[str, ...]:
    """Releases whose scheduler is known; the newest is last."""
    if isinstance(facts, CapacityFirst):
        return trtllm.KNOWN
    return sglang.KNOWN if isinstance(facts, PromptsFirst) else releases.KNOWN


def engine_from(facts: Facts, *, blocks: int, sequences: int, release: str) -> AnyEngine:
    """blocks: of the pool, without the engine's own; sequences: SGLang's requests that may run."""
    if isinstance(facts, PromptsFirst):
        return sglang.SglangEngine(
            blocks=blocks, block=facts.page_size, chunk=facts.chunked_prefill_size,
            batch=facts.max_prefill_tokens, sequences=sequences, length=facts.context_length,
            caching=facts.radix_cache, policy=facts.schedule_policy, order=facts.radix_eviction_policy,
            overlap=facts.overlap, mixed=facts.enable_mixed_chunk,
            conservativeness=facts.schedule_conservativeness, release=release,
        )  # fmt: skip
    if isinstance(facts, CapacityFirst):
        return trtllm.TrtllmEngine(
            blocks=blocks, block=facts.tokens_per_block, batch=facts.max_num_tokens, sequences=sequences,
            length=facts.max_seq_len, caching=facts.enable_block_reuse, partial=facts.enable_partial_reuse,
            policy=facts.capacity_scheduler_policy, chunking=facts.context_chunking_policy,
            overlap=facts.overlap, release=release,
        )  # fmt: skip
    return Engine(
        blocks=blocks,
        groups=tuple(Group(group.kind, group.block, group.span) for group in facts.groups),
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
    )
