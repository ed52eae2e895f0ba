"""Requests on vLLM's own block manager and scheduler, with tokens that nobody computes.

vllm-project/vllm 0.32: v1/core/kv_cache_manager.py (allocate_slots), v1/core/sched/scheduler.py (schedule,
update_from_output), v1/engine/core.py (step_with_batch_queue: as many steps are under way as batches).
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

_TRIES = 12


def admitted(core: Any, config: Any, shape: dict[str, Any]) -> dict[str, object]:
    """Requests of that many tokens, each of its own, that the block manager gives blocks to at a time.

    As the scheduler does it: a prompt in pieces of max_num_batched_tokens, then one more token, with which
    what the prompt no longer needs is given back.
    """
    manager = core.scheduler.kv_cache_manager
    tokens, count = shape["tokens"], 0
    most = min(shape["most"], config.scheduler_config.max_num_seqs)
    free = manager.block_pool.get_num_free_blocks
    before, refused = free(), False
    requests = []
    while count < most:
        request = _request(core, count, max(1, tokens - 1))
        requests.append(request)
        if not _admit(manager, request, tokens, config.scheduler_config.max_num_batched_tokens):
            refused = True
            break
        count += 1
    for request in requests:
        manager.free(request)
    return {
        "admitted": count,
        "tokens": tokens,
        "refused": refused,
        "free_before": before,
        "free_after": free(),
    }


def _request(core: Any, number: int, prompt: int, answer: int = 2) -> Any:
    """A request whose prompt begins as no other does."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    known = inspect.signature(Request.__init__).parameters
    more = {"eos_token_id": None} if "eos_token_id" in known else {}
    return Request(
        request_id=str(number),
        prompt_token_ids=[number + 1, *[0] * (prompt - 1)],
        sampling_params=SamplingParams(max_tokens=answer, ignore_eos=True),
        pooling_params=None,
        block_hasher=getattr(core, "request_block_hasher", None),
        **more,
    )


def _admit(manager: Any, request: Any, tokens: int, batch: int) -> bool:
    """All of one request's tokens, piece by piece; False where one gets no blocks."""
    known = inspect.signature(manager.allocate_slots).parameters
    first = {"full_sequence_must_fit": True} if "full_sequence_must_fit" in known else {}
    prompt = request.num_prompt_tokens
    pieces = [min(batch, prompt - at) for at in range(0, prompt, batch)]
    if tokens > prompt:
        pieces.append(tokens - prompt)
        request.append_output_token_ids(0)
    for number, piece in enumerate(pieces):
        if manager.allocate_slots(request, piece, **({} if number else first)) is None:
            return False
        request.num_computed_tokens += piece
    return True


def at_once(core: Any, config: Any, shape: dict[str, Any]) -> dict[str, object]:
    """Requests that the engine's own scheduler runs together, all arriving at once, none of them preempted.

    Tried with as many as are expected and with one more; where that is another number, with its neighbours.
    """
    limit = config.scheduler_config.max_num_seqs
    burst = _Burst(core, shape["prompt"], shape["answer"])
    count = min(shape["running"], limit)
    if burst.holds(count):
        while count < limit and burst.tries < _TRIES and burst.holds(count + 1):
            count += 1
    else:
        count -= 1
        while count > 0 and burst.tries < _TRIES and not burst.holds(count):
            count -= 1
    return {"running": count, "tries": burst.tries}


class _Burst:
    """Equal requests on the engine's scheduler, whose tokens are made up. tries: how many were run."""

    def __init__(self, core: Any, prompt: int, answer: int) -> None:
        self.core, self.scheduler = core, core.scheduler
        self.prompt, self.answer = prompt, answer
        self.depth = max(1, getattr(core, "batch_queue_size", 1) or 1)
        self.tries = self.made = 0

    def holds(self, count: int) -> bool:
        """Whether all of them start before one ends, and none is preempted."""
        from vllm.v1.request import RequestStatus

        self.tries += 1
        requests = [_request(self.core, self.made + at, self.prompt, self.answer) for at in range(count)]
        self.made += count
        for request in requests:
            self.scheduler.add_request(request)
        try:
            return self._run(requests)
        finally:
            left = [one.request_id for one in requests if one.request_id in self.scheduler.requests]
            if left:
                self.scheduler.finish_requests(left, RequestStatus.FINISHED_ABORTED)
            self.scheduler.schedule()  # what has ended is forgotten
            self.core.scheduler.kv_cache_manager.reset_prefix_cache()

    def _run(self, requests: list[Any]) -> bool:
        scheduler, started, idle = self.scheduler, set(), 0
        running: list[tuple[Any, list[str]]] = []
        while scheduler.get_num_unfinished_requests() or running:
            if scheduler.get_num_unfinished_requests():
                plan = scheduler.schedule()
                if getattr(plan, "preempted_req_ids", None) or any(_preempted(one) for one in requests):
                    return False
                started |= set(plan.num_scheduled_tokens)
                idle = 0 if plan.num_scheduled_tokens or running else idle + 1
                if idle > 3:
                    return False
                running.append((plan, [one for one in plan.num_scheduled_tokens if self._makes_one(one)]))
                if len(running) < self.depth and plan.num_scheduled_tokens:
                    continue
            scheduler.update_from_output(*_made_up(*running.pop(0)))
            if len(started) < len(requests) and any(one.is_finished() for one in requests):
                return False
        return True

    def _makes_one(self, name: str) -> bool:
        request = self.scheduler.requests[name]
        return bool(request.num_computed_tokens >= request.num_prompt_tokens)


def _preempted(request: Any) -> bool:
    return bool(getattr(request, "num_preemptions", 0))


def _made_up(plan: Any, ready: list[str]) -> tuple[Any, Any]:
    """The plan, and what a model would say of it: one token of each request whose prompt is computed."""
    from vllm.v1.outputs import ModelRunnerOutput

    names, done = list(plan.num_scheduled_tokens), set(ready)
    values: dict[str, object] = {
        "req_ids": names,
        "req_id_to_index": {name: place for place, name in enumerate(names)},
        "sampled_token_ids": [[5] if name in done else [] for name in names],
        "prompt_logprobs_dict": {},
    }
    missing = dataclasses.MISSING
    needed = [
        one.name
        for one in dataclasses.fields(ModelRunnerOutput)
        if one.default is missing and one.default_factory is missing
    ]
    for name in needed:
        values.setdefault(name, [] if name == "pooler_output" else None)
    known = {one.name for one in dataclasses.fields(ModelRunnerOutput)}
    return plan, ModelRunnerOutput(**{name: value for name, value in values.items() if name in known})
