"""One user at a desktop: the longest context and the tokens a second, way by way.

All on the GPUs with the cache as asked, then in fewer bits; then as much in host memory as the model's own
length takes. Each way is the engine's answer, and its speed the engine's part ``speed``; engines without one
have no ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType

from kvplan.deployment.answer import Answer, answered
from kvplan.deployment.fixes import Trials, least_of
from kvplan.deployment.resolve import Deployment
from kvplan.engines.base import SAFE
from kvplan.engines.folders import part_of
from kvplan.engines.spill import PLACES, SHORTENED, on_gpus, spill
from kvplan.errors import KvplanError
from kvplan.record import changed, replace
from kvplan.results import Way

_STEP = 256
"""Tokens by which llama.cpp's contexts grow."""
LENGTHS = ("ctx_size", "parallel", SHORTENED)
"""Options that say how long a context is, or how many there are."""


def with_ways(found: Answer) -> Answer:
    """The answer with the ways in which one request at a time is served; as it is where more are asked for,
    or the engine's speed is not estimated: on GPUs of data centres, with drafts, where tokens are dropped."""
    settings = found.deployment.settings
    speed = part_of(found.deployment.choice.engine.name, "speed")
    stated = settings.kv_cache_memory is not None or settings.weights is not None
    many = found.deployment.requests > 1 or found.deployment.replicas > 1
    own = settings.own
    other = settings.speculative_method is not None or own.get("kv_retention") or own.get("rope_scaling")
    if speed is None or settings.gpu is None or stated or many or other:
        return found
    if settings.gpu.market == "datacenter":
        return found
    # Each way is an answer of its own: they are found when a screen or a reader first asks for them.
    result = changed(found.result)
    result.find_ways = cache(lambda: _found_ways(found, speed))
    return replace(found, result=result)


def _found_ways(found: Answer, speed: ModuleType) -> tuple[Way, ...]:
    """No ways where the config says too little: nothing that was answered already fails for it."""
    try:
        return tuple(_ways(found, speed))
    except KvplanError:
        return ()


def _ways(found: Answer, speed: ModuleType) -> Iterator[Way]:
    deployment, own = found.deployment, found.deployment.model.max_model_len
    settings = deployment.settings
    typed = any(name in deployment.typed for name in PLACES)
    alone = replace(settings, own=settings.own.without(*LENGTHS), tokens=None, max_model_len=None)
    longest = 0
    if not typed:
        free = replace(alone, own=alone.own.without(*PLACES))
        for option, cached in (("", free), *speed.narrower(free)):
            way = _whole(replace(deployment, settings=cached), speed, option)
            if way is not None and longest < (own or longest + 1):
                longest = max(longest, way.longest or 0)
                yield way
    hosted = found.result.refusal is None and speed.reads_host(deployment.model, settings)
    if hosted or typed:  # as it is placed, with the context that it is started for
        served = found.result.settings.get("n_ctx_seq")
        yield from _way(deployment, speed, "", hosted=hosted, lengths=(served, served))
        longest = max(longest, served or 0)
    if not typed and own is not None and longest < own:
        yield from _moved(replace(deployment, settings=free), speed, own)


def _whole(deployment: Deployment, speed: ModuleType, option: str) -> Way | None:
    """All on the GPUs, with the context that the engine's own fitting leaves; None where it moves a layer."""
    model, choice, asked = deployment.model, deployment.choice, deployment.settings
    try:
        started, _ = spill(model, choice, asked)
        result = answered(replace(deployment, settings=started)).result
        likely = part_of(choice.engine.name, "placement").placed(model, asked, None, safely=False).n_ctx
    except KvplanError:
        return None
    served = result.settings.get("n_ctx_seq")
    if result.refusal is not None or not served or speed.reads_host(model, started):
        return None
    if option and deployment.gpus > 1:
        # What layers dealt for a cut context leave room for is not always dealt where it is asked for.
        served = _asked_for(deployment, speed, served)
    most = min(max(served, likely), model.max_model_len or likely)
    placed = replace(deployment, settings=started)
    return next(_way(placed, speed, option, lengths=(served, max(served, most))), None)


def _asked_for(deployment: Deployment, speed: ModuleType, served: int) -> int:
    """The longest context, up to that one, that starts whole where it is asked for by its length."""
    lengths = sorted(
        {served, *(served * part // 32 // _STEP * _STEP for part in range(16, 32))}, reverse=True
    )
    return next((one for one in lengths if one and _is_whole(deployment, speed, one)), 0)


def _is_whole(deployment: Deployment, speed: ModuleType, tokens: int) -> bool:
    model, asked = deployment.model, replace(deployment.settings, tokens=tokens)
    try:
        started, _ = spill(model, deployment.choice, asked)
        found = answered(replace(deployment, settings=started)).result
    except KvplanError:
        return False
    return found.refusal is None and not speed.reads_host(model, started)


def _way(
    deployment: Deployment, speed: ModuleType, option: str, *, lengths: tuple[int | None, int | None],
    hosted: bool = False,
) -> Iterator[Way]:  # fmt: skip
    """The way with such lengths, safely and likely."""
    model, settings = deployment.model, deployment.settings
    safe, likely = lengths
    if until := safe or likely:
        start, half = (speed.decode(model, settings, count) for count in (1, until // 2))
        yield Way(option, speed.cache_of(settings), safe, likely, start, half, hosted)


def _moved(deployment: Deployment, speed: ModuleType, own: int) -> Iterator[Way]:
    """The least that has to lie in host memory for the model's own length: experts, else whole layers."""
    choice = replace(deployment.choice, pool=SAFE)
    asked = on_gpus(deployment.model, choice, replace(deployment.settings, tokens=own, max_model_len=own))
    offered: Trials | None = getattr(choice.engine, "moves", None)
    for steps in offered(deployment.model, asked) if offered is not None else ():
        # Where next to nothing lies on a GPU the cache does not either, and nothing is counted.
        tried = (least_of(deployment.model, choice, steps[: len(steps) * part // 4]) for part in (4, 3, 2))
        best = next((one for one in tried if one is not None), None)
        if best is not None:
            option, settings = best
            moved = replace(deployment, settings=settings)
            yield from _way(moved, speed, option, lengths=(own, own), hosted=True)
            return
