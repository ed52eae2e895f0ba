"""The textbook: each term as the architecture defines it, no allocator, no rounding to blocks.

Conventions: a window keeps min(tokens, window); K and V are both stored; a conv state keeps kernel - 1
columns in the model's dtype; a recurrent state has the dtype that the config names, else fp32; an index
key of sparse attention is fp8 with one fp32 scale. With ``kv_retention`` every layer keeps so many first and
newest tokens at most. Layers are dealt evenly over pipeline stages (the
first stages take the remainder); heads are divided over tensor parallelism, at least one a rank.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from kvplan.dtypes import kv_dtype, scalar
from kvplan.engines.base import (
    StoreFor,
    answer_length,
    encoder_length,
    layers_with,
    named_or_float32,
    part_terms,
    rank_terms,
    request_tokens,
    served_dtype,
    undividable,
)
from kvplan.engines.options import RETENTION, EngineOption, RetainingOptions
from kvplan.engines.retention import Retention, accuracy, retained, retention_of
from kvplan.errors import KvplanError
from kvplan.families import Part, Storage
from kvplan.model import Layer, Model
from kvplan.record import record, replace
from kvplan.results import EngineRef, LayerTerms, ModelRef, PerGpu, Request, SizeResult, Total, plain_number
from kvplan.settings import Settings
from kvplan.terms import Grows, Term
from kvplan.units import ceil_div

_STATE_SETTINGS = ("mamba_cache_dtype", "mamba_ssm_cache_dtype")


@record(eq=False)
class _Plan:
    """Values that stay the same from call to call: storage, answered layers, and each stage's terms."""

    base: Storage
    layers: tuple[LayerTerms, ...]
    stages: tuple[tuple[tuple[Term, int], ...], ...]


class Generic:
    """Engine ``generic``."""

    name: str = "generic"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = (RETENTION,)

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Sum of the terms of all layers; per GPU the fullest pipeline stage's share."""
        tp, pp = settings.tensor_parallel_size, settings.pipeline_parallel_size
        refusal = undividable(model, settings)
        stages = min(pp, max(model.num_layers, 1))
        states = (settings.mamba_cache_dtype, settings.mamba_ssm_cache_dtype)
        retention = retention_of(RetainingOptions.of(settings))
        if retention is not None and settings.decode_context_parallel_size > 1:
            raise KvplanError(
                "unsupported-setting",
                "which rank keeps which of the tokens that stay is a rule of an engine, not of a model",
                help="leave decode_context_parallel_size at 1",
            )
        plan = _plan(model, settings.dtype, settings.kv_cache_dtype, states, tp, stages, retention)
        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        own_tokens = ceil_div(tokens, settings.decode_context_parallel_size)
        held = [_held(terms, own_tokens, encoder_tokens) for terms in plan.stages]
        fullest = max(range(stages), key=lambda stage: held[stage][0])
        (most, fixed), replica, count = (
            held[fullest],
            sum(amount for amount, _ in held) * tp,
            settings.requests,
        )
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings={
                "dtype": plan.base.dtype.name,
                "kv_cache_dtype": plan.base.kv.name,
                **{name: word for name, word in zip(_STATE_SETTINGS, states, strict=True) if word != "auto"},
                **({} if retention is None else settings.own),
                "tensor_parallel_size": tp,
                "pipeline_parallel_size": pp,
                "decode_context_parallel_size": settings.decode_context_parallel_size,
            },
            request=Request(tokens, encoder_tokens, count, answer_length(settings, tokens)),
            per_gpu=PerGpu(
                most,
                most * count,
                most * count,
                plain_number(_growth(plan.stages[fullest], own_tokens)),
                fixed,
            ),
            total=Total(replica, replica * count),
            layers=plan.layers,
            refusal=refusal,
            warnings=(
                *model.warnings,
                *([warning] if warning else []),
                *([accuracy(retention)] if retention is not None and tokens > retention.kept else []),
            ),
        )


@lru_cache(maxsize=256)
def _plan(
    model: Model,
    dtype: str,
    kv_cache_dtype: str,
    states: tuple[str, str],
    tp: int,
    pp: int,
    retention: Retention | None,
) -> _Plan:
    element = served_dtype(model, Settings(dtype=dtype))
    conv, recurrent = (None if word == "auto" else scalar(word) for word in states)
    base = Storage(
        kv=kv_dtype(element.name if kv_cache_dtype == "auto" else kv_cache_dtype),
        dtype=element,
        conv_state=conv or element,
    )

    def store_for(part: Part) -> Storage:
        return replace(base, recurrent_state=recurrent or named_or_float32(part))

    def terms_of(part: Part) -> tuple[Term, ...]:
        return tuple(retained(term, retention) for term in part_terms(part, store_for(part)))

    stages = tuple(
        _stage_terms(layers, store_for, tp, retention) for layers in split_evenly(model.layers(), pp)
    )
    return _Plan(base, layers_with(model, terms_of), stages)


def _stage_terms(
    layers: list[Layer], store_for: StoreFor, tp: int, retention: Retention | None
) -> tuple[tuple[Term, int], ...]:
    """Each different term of one stage's rank and how often it occurs."""
    return tuple(
        (retained(term, retention), count)
        for layer, count in Counter(layers).items()
        for part in layer.parts
        for term in rank_terms(part, store_for(part), tp)
    )


def _held(terms: tuple[tuple[Term, int], ...], tokens: int, encoder_tokens: int) -> tuple[int, int]:
    """Bytes of one request on one rank, and those of them that do not grow with its tokens."""
    total = fixed = 0
    for term, count in terms:
        amount = term.bytes_at(tokens, encoder_tokens) * count
        total += amount
        if term.grows is not Grows.TOKEN:
            fixed += amount
    return total, fixed


def _growth(terms: tuple[tuple[Term, int], ...], tokens: int) -> Fraction:
    return sum((term.growth_at(tokens) * count for term, count in terms), start=Fraction(0))


def split_evenly(layers: list[Layer], stages: int) -> list[list[Layer]]:
    """Consecutive slices that differ by at most one layer, the longer ones first."""
    size, longer = divmod(len(layers), stages)
    bounds = [stage * size + min(stage, longer) for stage in range(stages + 1)]
    return [layers[start:end] for start, end in pairwise(bounds)]
