"""TGI's cache: K and V of each layer, [blocks, block, heads, head_dim]; paged attention's own order is not
described (huggingface/text-generation-inference 3.3 server layers/attention/kv_cache.py, KVCache)."""

from __future__ import annotations

from kvplan.engines.tensors.base import BlockPool, Group, GroupKind, Layout, Rank
from kvplan.engines.tensors.building import Building
from kvplan.engines.tensors.parts import element_bytes, pooled, stored
from kvplan.engines.tgi.engine import Plan, Tgi, kept_tokens, plan_of
from kvplan.engines.tgi.options import TgiOptions
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Settings


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """The tensors of one shard. Raises KvplanError(no-memory, engine-refuses, unknown-rule)."""
    result, pool = pooled(Tgi(), model, settings, version)
    options = TgiOptions.of(settings)
    plan = plan_of(model, settings, options)
    assert isinstance(plan, Plan)
    if plan.attention == "paged":
        raise KvplanError("unknown-rule", "the order of TGI's paged cache is not described")
    build, blocks = Building(), pool.num_blocks
    group = build.group(
        Group("full", GroupKind.FULL, 0, plan.num_layers, plan.block), BlockPool("blocks", blocks, first=1)
    )
    terms = {entry.layer: entry.terms for entry in result.layers}
    for index, layer in enumerate(model.layers()):
        for term in terms[layer]:
            one = stored(term.on_rank(settings.tensor_parallel_size))
            shape = (blocks, plan.block, one.heads, one.content // element_bytes(one.dtype))
            tensor = build.tensor(f"{term.name}.{index}", shape, one.dtype)
            build.window(one, index, group, tensor, blocks=blocks, states=plan.block)
    return build.layout(
        "tgi",
        version,
        rank,
        replace(result.request, tokens=kept_tokens(result.request.tokens, options.speculate)),
        predicted_bytes=pool.bytes,
        requests=pool.requests_that_fit,
        max_model_len=settings.max_model_len or model.max_model_len or result.request.tokens,
        num_attention_heads=max(1, model.num_attention_heads // settings.tensor_parallel_size),
    )
