"""transformers' continuous batching: the cache that its own configuration makes, filled until it refuses.

huggingface/transformers 5.23 generation/continuous_batching: continuous_api.py
(_create_batch_processor), cache.py (PagedAttentionCache), scheduler.py (FIFOScheduler). 5.20 has the same.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

_STEPS = 1_000_000
_GIVEN = ("page_size", "max_batch_tokens", "max_requests_per_batch", "max_blocks_per_request",
          "use_async_batching", "max_memory_percent", "num_blocks", "return_logprobs")  # fmt: skip


class _OneRank:
    tp_size = 1

    def are_kv_heads_tp_ed(self) -> bool:
        return False


def made(model: Any, settings: dict[str, Any], device: str) -> Any:
    """The cache of the plan's settings. attn_implementation: the class's, by which batches are sized.

    Of a memory that is given the number of sectors is kvplan's: the library takes whole-model blocks, which
    come to some numbers only. What it makes of the sectors, and admits, is its own.
    """
    import torch
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.cache import (
        PagedAttentionCache,
        PagedAttentionMemoryHandler,
    )
    from transformers.generation.continuous_batching.initialization import resolve_continuous_batching_config

    config = model.config.get_text_config()
    config._attn_implementation = settings.get("attn_implementation") or config._attn_implementation
    given = {name: settings[name] for name in _GIVEN if settings.get(name) is not None}
    asked = ContinuousBatchingConfig(**given)
    if device != "cpu":  # graphs and tables of a GPU are for it to resolve
        asked = resolve_continuous_batching_config(config, asked, None, False, torch.device(device))
    elif asked.max_memory_percent is None:
        asked.max_memory_percent = 0.9
    if settings.get("num_sectors") is not None:
        PagedAttentionMemoryHandler.num_sectors_from_config = lambda _: settings["num_sectors"]
    sliced = getattr(model, "_supports_logits_to_keep", None)
    return PagedAttentionCache(
        config, asked, torch.device(device), _OneRank(), model.dtype, callable(sliced) and sliced()
    )


def cache_of(cache: Any) -> dict[str, object]:
    """Sectors and kinds of layers."""
    groups = [
        {
            "kind": name,
            "layers": len(one.layer_indices),
            "block_size": one.tokens_per_page,
            "page_bytes": one.bytes_per_page,
        }
        for name, one in cache.cache_allocators.items()
    ]
    return {"num_blocks": cache.num_sectors, "groups": groups}


def admitted(cache: Any, shape: dict[str, Any]) -> dict[str, object]:
    """Requests at their full length, until one gets no sector; then all of them end."""
    before, count, refused = cache.pool.num_free_sectors, 0, False
    for number in range(shape["most"]):
        state = SimpleNamespace(request_id=str(number), current_len=lambda: 0)
        if not cache.can_store_request_tokens(state, shape["tokens"]):
            refused = True
            break
        count += 1
    cache.free_all_requests(clear_ledgers=True)
    cache.pool.try_to_free_sectors()
    return {
        "admitted": count,
        "tokens": shape["tokens"],
        "refused": refused,
        "free_before": before,
        "free_after": cache.pool.num_free_sectors,
    }


def at_once(cache: Any, settings: dict[str, Any], shape: dict[str, Any]) -> dict[str, object]:
    """Equal requests that arrive together on its scheduler, with made-up tokens: those whose prompts are
    computed before the first one ends."""
    from transformers.generation.continuous_batching.requests import RequestState
    from transformers.generation.continuous_batching.scheduler import FIFOScheduler

    most = min(settings.get("max_requests_per_batch") or 1024, cache.max_batch_tokens)
    scheduler = FIFOScheduler(cache, None, most)
    prompt, answer, arriving = shape["prompt"], shape["answer"], shape["arriving"]
    for number in range(arriving):
        tokens = [number + 1] + [0] * (prompt - 1)
        scheduler.add_waiting_request(RequestState(str(number), tokens, max_new_tokens=answer))
    done: dict[str, int] = {}
    for _ in range(_STEPS):
        if len(done) == arriving or max(done.values(), default=0) >= answer:
            break
        plan, *_ = scheduler.schedule_batch(cache.max_batch_tokens, cache.max_tokens_read)
        if not plan:
            break
        for one in plan:
            one.state.position_offset += one.query_length
            if one.has_new_token:
                done[one.state.request_id] = done.get(one.state.request_id, 0) + 1
                one.state.tokens_to_process = [0]
    cache.reset()
    return {"running": len(done), "tries": 1}
