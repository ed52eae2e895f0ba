"""The plan in the engine's own memory and settings, and the requests that its parts are asked to serve."""

from __future__ import annotations

from typing import Any

from kvplan.deployment.counts import ask
from kvplan.proof.validate.installed.messages import Measured
from kvplan.proof.validate.target import Target
from kvplan.record import Json, replace

MOST_STEPS = 1_000_000
"""Tokens of answers that the engine's scheduler is taken through, one at a time."""
KEPT_REQUESTS = 2
TAKEN = ("block_size", "max_num_seqs", "max_num_batched_tokens", "async_scheduling", "mamba_ssm_cache_dtype")
"""Settings that another platform than the plan's resolves otherwise."""


def taken_of(target: Target, measured: Measured, *, on_gpu: bool) -> dict[str, Any]:
    """Settings that a rehearsal takes over from the engine's platform. On a GPU nothing is: there it is
    compared."""
    if on_gpu:
        return {}
    mine = target.result.settings
    return {
        name: measured.settings[name]
        for name in TAKEN
        if name in mine
        and measured.settings.get(name) not in (None, "auto")
        and measured.settings[name] != mine[name]
    }


def sized(target: Target, measured: Measured, taken: Json) -> Target:
    """The plan with the engine's own bytes for the cache, and what the platform takes otherwise."""
    memory = min(measured.available) if measured.available else target.pool_bytes
    settings = replace(target.settings, kv_cache_memory=memory, **taken)
    return replace(target, settings=settings, result=ask(target.model, target.choice, settings))


def shape_of(own: Target) -> dict[str, int | None] | None:
    """The requests that the engine's block manager and scheduler are asked to serve; None: they cannot be
    driven (what an encoder reads has blocks of its own).

    Without a pool: so many tokens of KEPT_REQUESTS requests in a batch. Else tokens, most: of requests at
    their full length, and how many to try; prompt, answer, running: of those that arrive at once, and how
    many are expected (None: not tried).
    """
    request, pool = own.result.request, own.result.pool
    if own.result.refusal is not None or request.encoder_tokens:
        return None
    if pool is None:
        return {"tokens": request.tokens, "requests": KEPT_REQUESTS}
    layout = own.layout(own.ranks[0])
    running: int | None = pool.max_running
    answer = max(1, request.answer_tokens)
    if own.settings.num_speculative_tokens or (running or 0) * answer > MOST_STEPS:
        running = None
    return {
        "tokens": layout.tokens,
        "most": 2 * layout.requests + 8,
        "prompt": max(1, request.tokens - answer),
        "answer": answer,
        "running": running,
        "arriving": pool.max_requests,
    }
