"""The releases of vLLM whose scheduler is described here, and the rules in which they differ; others are
refused, for its rules move every month."""

from __future__ import annotations

from kvplan.errors import RefusedError
from kvplan.record import record


@record()
class Rules:
    """threshold_alone: whether long_prefill_token_threshold holds a prompt back that is the only request
    (vllm-project/vllm vllm/v1/core/sched/scheduler.py, schedule: until 0.30); align: whether states kept at
    block boundaries are cut as described here (_mamba_block_aligned_split: since 0.32); retention: whether
    there is a prefix_cache_retention_interval (since 0.29); goes_on: whether, by priority, a request that
    preempts itself leaves the turns to those after it, who may fit into what it gave back, in place of ending
    them (schedule: since 0.33); renews: whether the state at a prompt's last boundary counts as stored anew
    in every step that holds it, so that others who hit it wait (vllm/v1/core/single_type_kv_cache_manager.py,
    MambaManager._cache_partial_tail_block: until 0.32, which lacks the look at block_hash_num_tokens);
    states_cached: whether the prefix cache may be on beside states that are not aligned
    (MambaManager.__init__ asserts otherwise since 0.33); offers_anew: whether a request that is looked up
    again offers all its chunks to the offloading connector anew
    (vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py, get_num_new_matched_tokens: since
    0.33); shared_rank: whether chunks that a running request met have one rank in the connector's LRU
    (vllm/v1/kv_offload/cpu/policies/lru.py: since 0.33);
    in_flight: whether windows and chunks give blocks back by what is scheduled, though its steps are under
    way (vllm/v1/core/kv_cache_manager.py, allocate_slots: until 0.25; admission then counts one batch in
    flight)."""

    threshold_alone: bool = False
    align: bool = False
    retention: bool = True
    goes_on: bool = False
    renews: bool = True
    states_cached: bool = True
    offers_anew: bool = False
    shared_rank: bool = False
    in_flight: bool = False


RULES = {
    "0.24": Rules(threshold_alone=True, retention=False, in_flight=True),
    "0.25": Rules(threshold_alone=True, retention=False, in_flight=True),
    "0.26": Rules(threshold_alone=True, retention=False),
    "0.27": Rules(threshold_alone=True, retention=False),
    "0.28": Rules(threshold_alone=True, retention=False),
    "0.29": Rules(threshold_alone=True),
    "0.30": Rules(threshold_alone=True),
    "0.31": Rules(),
    "0.32": Rules(align=True),
    "0.33": Rules(
        align=True, goes_on=True, renews=False, states_cached=False, offers_anew=True, shared_rank=True
    ),
}

KNOWN = tuple(RULES)
"""Releases whose own scheduler was asked, with every scenario of these rules equal; the newest is last."""


def rules_of(release: str, align: bool = False) -> Rules:
    """The rules of a release (``0.32`` or ``0.32.1``). align: whether states are kept at block boundaries.

    Raises RefusedError where they are not known.
    """
    rules = RULES.get(".".join(str(release).split(".")[:2]))
    if rules is None:
        raise RefusedError(
            "not-simulated",
            f"how vLLM {release} schedules is not known here: its own scheduler was not asked, and rules"
            " differ from release to release (who is held back, when windows give blocks back)",
            help=f"use a release whose scheduler was asked: {', '.join(KNOWN)}",
        )
    if align and not rules.align:
        known = ", ".join(name for name, other in RULES.items() if other.align)
        raise RefusedError(
            "not-simulated",
            f"where vLLM {release} cuts prompts whose states are kept at block boundaries is not known here",
            help=f"use {known}, or mamba_cache_mode none",
        )
    return rules
