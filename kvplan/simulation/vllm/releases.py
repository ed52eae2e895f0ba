"""The releases of vLLM whose scheduler is described here, and the rules in which they differ, a row each;
others are refused, for its rules move every month."""

from __future__ import annotations

from kvplan.engines.release_rules import ReleaseRules, flag, steps
from kvplan.errors import RefusedError

_SCHEDULE = "v1/core/sched/scheduler.py"
_STATES = "v1/core/single_type_kv_cache_manager.py, MambaManager"
_DEALT = "v1/engine/core_client.py, DPLBAsyncMPClient.get_core_engine_for_request"
_OFFLOADED = "distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"


class Rules(ReleaseRules):
    """The rules of one release's scheduler."""

    threshold_alone = flag(
        "long_prefill_token_threshold holds back even a prompt that is the only request",
        f"{_SCHEDULE}, schedule",
        until="0.31",
    )
    cut = steps(
        "where a prompt is cut whose states are kept: a step has whole blocks up to the last boundary, or"
        " ends at a boundary up to there, or up to the prompt's end",
        f"{_SCHEDULE}, _mamba_block_aligned_split",
        "whole blocks",
        ("0.26", "last boundary"),
        ("0.27", "prompt's end"),
    )
    proof = flag(
        "the last boundary lies before a prompt's last token, which is computed again by who finds it",
        f"{_SCHEDULE}, _mamba_block_aligned_split",
        since="0.32",
    )
    saves = flag(
        "the step that ends a prompt saves the state at its last boundary as described here",
        f"{_STATES}._needs_internal_checkpoint",
        since="0.32",
    )
    leaks = flag(
        "states before a gap in a request's table are held until it ends, but for the one that its last block"
        " was computed from",
        "v1/core/single_type_kv_cache_manager.py, remove_skipped_blocks, which stops at a null block",
        until="0.30",
    )
    retention = flag("there is a prefix_cache_retention_interval", "config/cache.py", since="0.29")
    goes_on = flag(
        "by priority, a request that preempts itself leaves the turns to those after it, who may fit into"
        " what it gave back",
        f"{_SCHEDULE}, schedule",
        since="0.33",
    )
    renews = flag(
        "the state at a prompt's last boundary counts as stored anew in every step that holds it, so that"
        " others who hit it wait",
        f"{_STATES}._cache_partial_tail_block, which lacks the look at block_hash_num_tokens",
        since="0.32",
        until="0.33",
    )
    states_cached = flag(
        "the prefix cache may be on beside states that are not aligned",
        f"{_STATES}.__init__, which asserts otherwise later",
        until="0.33",
    )
    offers_anew = flag(
        "a request that is looked up again offers all its chunks to the offloading connector anew",
        f"{_OFFLOADED}, get_num_new_matched_tokens",
        since="0.33",
    )
    shared_rank = flag(
        "chunks that a running request met have one rank in the connector's LRU",
        "v1/kv_offload/cpu/policies/lru.py",
        since="0.33",
    )
    drafts = flag("drafts are scheduled as described here", f"{_SCHEDULE}, schedule", since="0.32")
    verified = flag(
        "without async scheduling, too, what a draft got right is stored as soon as its step has ended",
        f"{_SCHEDULE}, update_from_output",
        since="0.33",
    )
    lookahead = flag(
        "a block's hash covers the token after it, so that a hit beside EAGLE or MTP need not give up a"
        " block; here it does under every release",
        "config/vllm.py, num_hash_lookahead_tokens",
        since="0.33",
    )
    stages = flag(
        "pipelines are scheduled as described here: a preempted request waits until its tokens of other"
        " batches are known (so it does in 0.31, which was not asked)",
        f"{_SCHEDULE}, schedule, num_stale_output_tokens of a waiting request",
        since="0.32",
    )
    rotates = flag(
        "the front end's look at data-parallel ranks begins one rank further with each request",
        f"{_DEALT}, eng_start_index",
        since="0.25",
    )
    own_counts = flag(
        "a front end counts a rank's requests that it sent as its load at least, and those that wait more the"
        " fuller the rank's cache is; before, a waiting request counted as four running ones",
        f"{_DEALT}, engine_inflight",
        since="0.27",
    )
    dense_counts = flag(
        "ranks of a model without experts tell the front end their counts, too",
        "v1/engine/core.py, EngineCoreProc._maybe_publish_request_counts",
        since="0.27",
    )
    in_flight = flag(
        "windows and chunks give blocks back by what is scheduled, though its steps are under way; admission"
        " then counts one batch in flight",
        "v1/core/kv_cache_manager.py, allocate_slots",
        until="0.26",
    )


KNOWN = tuple(f"0.{minor}" for minor in range(24, 34))
"""Releases whose own scheduler was asked, with every scenario of these rules equal; the newest is last."""


def rules_of(release: str, saves: bool = False) -> Rules:
    """The rules of a release (``0.32`` or ``0.32.1``). saves: whether states are saved inside a step.

    Raises RefusedError where they are not known.
    """
    if ".".join(str(release).split(".")[:2]) not in KNOWN:
        raise RefusedError(
            "not-simulated",
            f"how vLLM {release} schedules is not known here: its own scheduler was not asked, and rules"
            " differ from release to release (who is held back, when windows give blocks back)",
            help=f"use a release whose scheduler was asked: {', '.join(KNOWN)}",
        )
    rules = Rules.of(release)
    if saves and not rules.saves:
        known = ", ".join(name for name in KNOWN if Rules.of(name).saves)
        raise RefusedError(
            "not-simulated",
            f"which states vLLM {release} saves inside a step that computes a prompt is not known here",
            help=f"use {known}, or --no-enable-prefix-caching",
        )
    return rules
