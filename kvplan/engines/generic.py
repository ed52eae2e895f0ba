"""The textbook: each term as the architecture defines it, no allocator, no rounding to blocks.

Conventions: a window keeps min(tokens, window); K and V are both stored; a conv state keeps kernel - 1
columns in the model's dtype; a recurrent state has the dtype that the config names, else fp32; an index
key of sparse attention is fp8 with one fp32 scale. Layers are dealt evenly over pipeline stages (the
first stages take the remainder); heads are divided over tensor parallelism, at least one a rank.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from kvplan.dtypes import kv_dtype
from kvplan.engines.base import (
    NOTHING,
    Held,
    StoreFor,
    encoder_length,
    held_by_layer,
    layer_answers,
    named_or_float32,
    request_tokens,
    served_dtype,
)
from kvplan.engines.options import EngineOption
from kvplan.families import Part, Store
from kvplan.model import Layer, Model
from kvplan.results import EngineRef, ModelRef, PerGpu, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.units import ceil_div


class Generic:
    """Engine ``generic``."""

    name: str = "generic"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Sum of the terms of all layers; per GPU the fullest pipeline stage's share."""
        base = _base_store(model, settings.dtype, settings.kv_cache_dtype)

        def store_for(part: Part) -> Store:
            return _part_store(part, base)

        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        own_tokens = ceil_div(tokens, settings.decode_context_parallel_size)
        tp = settings.tensor_parallel_size
        stages = [
            _stage(layers, store_for, tp, own_tokens, encoder_tokens)
            for layers in split_evenly(model.layers(), settings.pipeline_parallel_size)
        ]
        fullest = max(stages, key=lambda held: held.bytes)
        replica = sum(held.bytes for held in stages) * tp
        count = settings.requests
        warnings = [*model.warnings, *([warning] if warning else [])]
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings={
                "dtype": base.dtype.name,
                "kv_cache_dtype": base.kv.name,
                "tensor_parallel_size": tp,
                "pipeline_parallel_size": settings.pipeline_parallel_size,
                "decode_context_parallel_size": settings.decode_context_parallel_size,
            },
            request=Request(tokens, encoder_tokens, count),
            per_gpu=PerGpu(
                fullest.bytes,
                fullest.bytes * count,
                fullest.bytes * count,
                fullest.bytes_per_token,
                fullest.fixed_bytes,
            ),
            total=Total(replica, replica * count),
            layers=layer_answers(model, store_for),
            warnings=tuple(warnings),
        )


def _base_store(model: Model, dtype: str, kv_cache_dtype: str) -> Store:
    element = served_dtype(model, Settings(dtype=dtype))
    return Store(
        kv=kv_dtype(element.name if kv_cache_dtype == "auto" else kv_cache_dtype),
        dtype=element,
        conv_state=element,
    )


@lru_cache(maxsize=4096)
def _part_store(part: Part, base: Store) -> Store:
    return replace(base, recurrent_state=named_or_float32(part))


def split_evenly(layers: list[Layer], stages: int) -> list[list[Layer]]:
    """Consecutive slices that differ by at most one layer, the longer ones first."""
    size, longer = divmod(len(layers), stages)
    bounds = [stage * size + min(stage, longer) for stage in range(stages + 1)]
    return [layers[start:end] for start, end in pairwise(bounds)]


def _stage(layers: list[Layer], store_for: StoreFor, tp: int, tokens: int, encoder_tokens: int) -> Held:
    held = NOTHING
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    for layer, count in counts.items():
        held += held_by_layer(layer, store_for, tp, tokens, encoder_tokens).times(count)
    return held
