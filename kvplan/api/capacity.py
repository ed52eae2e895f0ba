"""Requests at once by GPU, ways of dividing and length: one line a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kvplan.api.fits import Fitting
from kvplan.engines.base import Choice
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.questions import ask, in_pools, max_requests, uncounted
from kvplan.results import Budget
from kvplan.settings import Settings, stated_length


class Held(NamedTuple):
    """What one machine holds. gpus: of one server; cells: one for each length, None where the model takes no
    request that long, 0 where the engine would not start. alone: whether each length has a server that is
    started for it, since none starts for the longest. why: why there is no line. max_model_len: what all
    lengths are served with, where neither the question nor the model says it."""

    gpu: Gpu
    gpus: int
    tensor_parallel_size: int
    cells: tuple[Fitting | None, ...] = ()
    weights: int | None = None
    alone: bool = False
    why: str | None = None
    warnings: tuple[str, ...] = ()
    max_model_len: int | None = None


def held(model: Model, choice: Choice, settings: Settings, lengths: Sequence[int]) -> Held:
    """The requests of each length that are held in the likely pool and in the safe one.

    The engine is started for the longest length that the model takes (or ``max_model_len``); where it would
    not start, for each length by itself.
    """
    gpu = settings.gpu
    assert gpu is not None
    gpus = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
    line = Held(gpu, gpus, settings.tensor_parallel_size)
    try:
        return _held(line, model, choice, settings, lengths)
    except KvplanError as error:
        return line._replace(why=error.message)


def _held(line: Held, model: Model, choice: Choice, settings: Settings, lengths: Sequence[int]) -> Held:
    own = stated_length(settings) or model.max_model_len
    taken = [length for length in lengths if own is None or length <= own]
    if not taken:
        return line._replace(why=f"{model.id} takes no request that long")
    plain = ask(model, choice, replace(settings, tokens=max(taken), requests=1))
    by_length = plain.settings.get("max_model_len") is not None  # else the requests decide what is started

    def start(length: int) -> Settings:
        longest = settings.max_model_len or (length if by_length else None)
        return replace(settings, max_model_len=longest, tokens=length, requests=1)

    started = start(max(taken))
    result = ask(model, choice, started)
    if result.budget is None or result.weights is None or uncounted(result):
        refused = None if result.refusal is None else result.refusal.message
        return line._replace(why=refused or next(iter(result.warnings), "no pool was computed"))
    alone = result.refusal is not None and settings.max_model_len is None and len(taken) > 1
    cells: list[Fitting | None] = []
    for length in lengths:
        if length not in taken:
            cells.append(None)
            continue
        base = start(length) if alone else started
        budget = ask(model, choice, base).budget if alone else result.budget
        cells.append(_cell(model, choice, base, budget, length))
    weights = result.weights.bytes_per_gpu
    line = line._replace(cells=tuple(cells), weights=weights, alone=alone, warnings=result.warnings)
    told = None if alone or settings.max_model_len is not None else started.max_model_len
    return line if told == model.max_model_len else line._replace(max_model_len=told)


def _cell(model: Model, choice: Choice, base: Settings, budget: Budget | None, length: int) -> Fitting:
    if budget is None:
        return Fitting(length, 0, 0)
    likely, safe = (
        max_requests(model, choice, replace(pool, tokens=length)) if pool.kv_cache_memory else 0
        for pool in in_pools(model, choice, base, budget)
    )
    return Fitting(length, likely, safe)
