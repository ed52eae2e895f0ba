"""The arrays of one batch: [requests, heads, rows, width] for K and V, [requests, …] for states.

ml-explore/mlx-lm 0.32.2 mlx_lm/models/cache.py (BatchKVCache, BatchRotatingKVCache, ArraysCache): a row for
each token that the longest request has room for. An array of a quantised cache is one of bytes here.
"""

from __future__ import annotations

from kvplan.engines.mlx.caches import Cache, Grows, of_layer
from kvplan.engines.mlx.engine import Mlx, plan_of
from kvplan.engines.tensors.base import Layout, Rank
from kvplan.engines.tensors.building import Building
from kvplan.engines.tensors.parts import element_bytes, stored
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Settings


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """The caches of settings.requests requests, or of as many as kv_cache_memory holds at once. Raises
    KvplanError(engine-refuses)."""
    result = Mlx().size(model, settings, version)
    if result.refusal is not None:
        raise KvplanError("engine-refuses", result.refusal.message, help=result.refusal.help)
    requests = settings.requests if result.pool is None else result.pool.max_running
    plan = plan_of(model, settings)
    tokens = result.request.tokens
    course = plan.course(tokens, result.request.answer_tokens)
    kept = replace(plan.kept, bits=None) if tokens < plan.start else plan.kept
    build, groups = Building(), dict[int, int]()
    for index, layer in enumerate(model.layers()):
        for number, cache in enumerate(of_layer(model, layer, kept)):
            rows = cache.rows(course)
            if rows and rows not in groups:
                groups[rows] = build.place(f"{rows} rows", rows, requests)
            if rows:
                _array(
                    build, cache, f"{cache.term.name}.{index}.{number}", index, groups[rows], (requests, rows)
                )
    return build.layout(
        "mlx",
        version,
        rank,
        result.request,
        predicted_bytes=requests * plan.held(course),
        requests=requests,
        max_model_len=settings.max_model_len or model.max_model_len or tokens,
        num_attention_heads=model.num_attention_heads,
    )


def _array(build: Building, cache: Cache, name: str, layer: int, group: int, size: tuple[int, int]) -> None:
    """One array of a layer; size: requests and rows."""
    requests, rows = size
    one = stored(cache.term)
    if cache.grows is Grows.STATE:
        one = one.whole()
    shape = (requests, one.heads, rows, one.content // element_bytes(one.dtype))
    tensor = build.tensor(name, shape, one.dtype)
    build.window(one, layer, group, tensor, blocks=requests, states=rows, heads_outside=True)
