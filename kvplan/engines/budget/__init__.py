"""The memory left for the cache on a named GPU, and the engine's answer with that pool.

Engines with a block pool get their memory here when a GPU is named and ``kv_cache_memory`` is not. How a
GPU's memory is divided is each engine's own (``budget`` in its folder), loaded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

from kvplan.engines import choose_engine
from kvplan.engines.base import LIKELY, SAFE, Choice
from kvplan.engines.folders import FOLDERS, part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import changed, replace
from kvplan.results import HOST, Budget, Device, ModelWeights, Refusal, SizeResult
from kvplan.settings import LONGEST, Settings, started_in
from kvplan.units import MIB, gib

BUDGETS = FOLDERS
"""Engines that divide a GPU's memory: ``fit(model, choice, settings)`` of ``budget`` in their folder."""


def divides(engine: str, settings: Settings | None = None) -> bool:
    """Whether the engine divides a GPU's memory: whatever is set (None), or with these settings."""
    if engine not in BUDGETS:
        return False
    option = traits_of(engine).divides_with
    return option is None or (settings is not None and bool(settings.own.get(option)))


_WAYS = (2, 4, 8, 16)


class Shortens(NamedTuple):
    """Where nobody gives a length and the model's own does not fit, the engine starts with the longest that
    does, if that is ``least`` tokens or more, and leaves ``spare`` bytes of each GPU beside it. said: the
    option that does it."""

    least: int
    spare: int
    said: str


class Fit(NamedTuple):
    """A budget, the weights in it and the settings that decided it; without a budget the warnings say why.

    help: the engine's own way out where nothing is left. per_device: weights of each GPU, then of the host,
    where an engine deals whole layers.
    """

    budget: Budget | None
    weights: ModelWeights | None
    warnings: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    help: tuple[str, ...] = ()
    per_device: tuple[int, ...] = ()
    shortens: Shortens | None = None


class _Module(Protocol):
    fit: Callable[[Model, Choice, Settings], Fit]


def choose(spec: str) -> Choice:
    """The engine and version of ``vllm@0.32``, whose answers have a budget where a GPU is named."""
    return replace(choose_engine(spec), pool=LIKELY)


def answered(model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """The engine's answer: with the pool that the choice asks for and what it takes of the host, or, where it
    asks for none, as the settings alone say."""
    if choice.pool is None:
        if settings.max_model_len == LONGEST:
            settings = with_longest(model, choice, settings)
        return choice.engine.size(model, settings, choice.version)
    result = (fitted_safely if choice.pool == SAFE else fitted)(model, choice, settings)
    host = None if result.refusal is not None or settings.gpu is None else part_of(choice.engine.name, "host")
    found = () if host is None else host.lines(model, settings, choice.version, result)
    return changed(result, host=found) if found else result


def fitted(model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """The engine's answer with the pool that its budget leaves, where one is asked for."""
    engine = choice.engine
    module = engine.name if engine.name in BUDGETS else None
    longest = settings.max_model_len == LONGEST
    if longest:
        _check_auto(choice)
    if settings.gpu is not None and settings.gpu.row and not traits_of(engine.name).unequal:
        raise KvplanError(
            "unequal-gpus",
            f"{engine.name} takes as much of every GPU: {settings.gpu.slug} are of several kinds",
            help=("--engine llamacpp deals layers by what each has", "name the smallest of them as often"),
        )
    if module is None or settings.gpu is None or settings.kv_cache_memory is not None:
        return _with_stated_pool(module, model, choice, settings)
    return _divided(module, model, choice, _settled(module, model, choice, settings) if longest else settings)


def _with_stated_pool(module: str | None, model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """The answer that no budget decides: a pool that was stated, or none."""
    asked = with_longest(model, choice, settings) if settings.max_model_len == LONGEST else settings
    result = choice.engine.size(model, asked, choice.version)
    if module is None or settings.gpu is None or result.refusal is not None:
        return result
    budget = _fit(module, model, choice, changed(asked, kv_cache_memory=None)).budget
    return _beside(model, choice, asked, budget, result)


def _divided(module: str, model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """The answer with what the engine's budget leaves of the GPU."""
    longest = settings.max_model_len == LONGEST
    plain = replace(settings, max_model_len=None) if longest else settings
    fit = _fit(module, model, choice, plain)
    if fit.budget is None:
        if longest:
            raise KvplanError("no-memory", "the longest length that fits is not known", detail=fit.warnings)
        result = choice.engine.size(model, plain, choice.version)
        return replace(result, warnings=(*result.warnings, *fit.warnings)) if fit.warnings else result
    if fit.budget.kv_pool_bytes == 0:
        result = choice.engine.size(model, plain, choice.version)
        if result.refusal is None:
            result = replace(result, refusal=_nothing_left(module, model, choice, plain, fit))
    else:
        with_pool = started_in(settings, fit.budget.kv_pool_bytes)
        result = _started(model, choice, with_pool, fit.shortens, fit.budget.kv_pool_low_bytes)
        if settings.num_gpu_blocks_override is not None:
            result = _beside(model, choice, with_pool, fit.budget, result)
    return changed(
        result,
        settings={**result.settings, **dict(fit.settings)},
        budget=fit.budget,
        weights=fit.weights,
        devices=_with_weights(result.devices, fit.per_device),
        warnings=(*result.warnings, *fit.warnings),
    )


def room_for_cache(budget: Budget) -> int:
    """Bytes of the GPU beside everything else that the engine takes, whatever its utilisation is set to."""
    return max(budget.total_bytes - sum(line.bytes for line in budget.lines), 0)


TOO_LARGE = "pool-too-large"
TOO_LITTLE = "not-enough-memory"
"""A refusal that a shorter length may lift."""


def _beside(
    model: Model, choice: Choice, settings: Settings, budget: Budget | None, result: SizeResult
) -> SizeResult:
    """The answer with a pool that was stated in bytes or blocks, refused where it does not fit the GPU beside
    the rest: the engine's allocation would run out of memory."""
    stated = settings.kv_cache_memory or 0
    if settings.num_gpu_blocks_override is not None and result.pool is not None:
        stated = result.pool.num_blocks * result.pool.bytes_per_block
    if budget is None or stated <= room_for_cache(budget):
        return result
    left = room_for_cache(budget)
    smaller = replace(settings, kv_cache_memory=left // MIB * MIB, num_gpu_blocks_override=None)
    starts = left >= MIB and choice.engine.size(model, smaller, choice.version).refusal is None
    refusal = Refusal(
        TOO_LARGE,
        f"{gib(stated)} for the cache do not fit beside the {gib(budget.total_bytes - left)} that the engine"
        f" takes: of {gib(budget.total_bytes)} at most {gib(left)} are left",
        help=(f"--kv-cache-memory {left // MIB}MiB",) if starts else (),
    )
    return replace(result, refusal=refusal)


def _with_weights(devices: tuple[Device, ...], amounts: tuple[int, ...]) -> tuple[Device, ...]:
    """amounts: of every GPU, then of the host; none where they were stated."""
    if not amounts:
        return devices
    own = dict(zip((one.name for one in devices if one.name != HOST), amounts, strict=False))
    return tuple(changed(one, weights_bytes=own.get(one.name, amounts[-1])) for one in devices)


def fitted_safely(model: Model, choice: Choice, settings: Settings) -> SizeResult:
    """`fitted` with the safe figure of the pool in the place of the likely one: what a plan that requires
    ``pool: safe`` is counted with. Budget and weights are the same."""
    return in_safe_pool(model, choice, settings, fitted(model, choice, settings))


def in_safe_pool(model: Model, choice: Choice, settings: Settings, likely: SizeResult) -> SizeResult:
    """The answer with the safe pool of the budget of ``likely``, which is the answer with the likely one."""
    budget = likely.budget
    if budget is None or not budget.kv_pool_bytes:
        return likely
    pool = budget.kv_pool_low_bytes
    if not pool:
        nothing = Refusal("no-memory-for-cache", "the safe figure of the pool is 0 bytes")
        return replace(likely, refusal=likely.refusal or nothing)
    shortens = None
    if _is_lengthless(settings) and settings.gpu is not None:
        shortens = _fit(choice.engine.name, model, choice, settings).shortens
    found = _started(model, choice, started_in(settings, pool), shortens, pool)
    return replace(
        found,
        settings={**likely.settings, **found.settings},
        budget=budget,
        weights=likely.weights,
        warnings=likely.warnings,
    )


def _is_lengthless(settings: Settings) -> bool:
    return settings.max_model_len is None and settings.tokens is None


def _started(
    model: Model, choice: Choice, settings: Settings, shortens: Shortens | None, low_bytes: int
) -> SizeResult:
    """The engine's answer in the pool of ``settings``, with the length that it takes there by itself: where
    that is an estimate, the length that ``low_bytes`` hold, the safe figure of the pool."""
    engine, version = choice.engine, choice.version
    if settings.max_model_len == LONGEST:
        return engine.size(model, with_longest(model, choice, settings), version)
    result = engine.size(model, settings, version)
    if shortens is None or result.refusal is None or not _is_lengthless(settings):
        return result
    if result.refusal.code != TOO_LITTLE:
        return result
    likely, safe = (
        _longest(
            model, choice, changed(settings, kv_cache_memory=max(pool - shortens.spare, 0))
        ).max_model_len
        or 0
        for pool in (settings.kv_cache_memory or 0, low_bytes)
    )
    length = safe if safe >= shortens.least else likely
    if length < shortens.least:
        return result
    found = engine.size(model, changed(settings, max_model_len=length), version)
    words = f"no length given: {shortens.said} leaves {length:,} of {result.request.tokens:,} tokens"
    return changed(found, warnings=(f"{words}, likely {likely:,}", *found.warnings))


def _fit(module: str, model: Model, choice: Choice, settings: Settings) -> Fit:
    found: _Module = part_of(module, "budget")
    return found.fit(model, choice, settings)


def _check_auto(choice: Choice) -> None:
    if not traits_of(choice.engine.name).auto_length:
        message = f"{choice.engine.name} has no --max-model-len auto"
        raise KvplanError("bad-setting", message, help="give a length")


def with_longest(model: Model, choice: Choice, settings: Settings) -> Settings:
    """max_model_len ``auto``: the model's own where it fits, else the longest that does. Raises
    KvplanError for an engine that has no such length, and without a pool."""
    _check_auto(choice)
    if settings.kv_cache_memory is None:
        raise KvplanError(
            "no-memory",
            "--max-model-len auto asks for the longest length that fits a memory which was not given",
            help="add --gpu h100, or --kv-cache-memory 16GiB",
        )
    return _longest(model, choice, settings)


def _longest(model: Model, choice: Choice, settings: Settings) -> Settings:
    """With the longest length that its pool holds, None for the model's own."""
    longest = getattr(choice.engine, "longest", None)
    if longest is not None:
        return replace(settings, max_model_len=longest(model, settings, choice.version))
    own = replace(settings, max_model_len=None, tokens=None)
    refusal = choice.engine.size(model, own, choice.version).refusal
    return replace(settings, max_model_len=None if refusal is None else refusal.largest_max_model_len)


def _settled(module: str, model: Model, choice: Choice, settings: Settings) -> Settings:
    """The longest length that is held beside what it takes itself, for an engine that looks for it so
    (``longest``): llama.cpp's compute buffers grow with the context. Unchanged where none is."""
    if getattr(choice.engine, "longest", None) is None:
        return settings
    length: int | None = None
    while True:
        budget = _fit(module, model, choice, replace(settings, max_model_len=length)).budget
        if budget is None or not budget.kv_pool_bytes:
            return settings
        found = with_longest(model, choice, started_in(settings, budget.kv_pool_bytes)).max_model_len
        if found is None:
            return settings
        if length is not None and found >= length:
            return replace(settings, max_model_len=length)
        length = found


def _nothing_left(module: str, model: Model, choice: Choice, settings: Settings, fit: Fit) -> Refusal:
    """vLLM's "No available memory for the cache blocks"; every way out was computed."""
    budget = fit.budget
    assert budget is not None
    needed = sum(line.bytes for line in budget.lines)
    usable = budget.total_bytes - budget.unused_bytes
    return Refusal(
        "no-memory-for-cache",
        f"weights, activations and the rest take {gib(needed)}; {gib(usable)} of {gib(budget.total_bytes)}"
        " may be used, so nothing is left for the cache",
        help=(*(_ways_out(module, model, choice, settings) if choice.advice else ()), *fit.help),
    )


def _ways_out(module: str, model: Model, choice: Choice, settings: Settings) -> list[str]:
    """Changes with which the engine would start."""

    def starts(**changes: Any) -> bool:
        changed = replace(settings, **changes)
        try:
            budget = _fit(module, model, choice, changed).budget
            if budget is None or not budget.kv_pool_bytes:
                return False
            pooled = started_in(changed, budget.kv_pool_bytes)
            return choice.engine.size(model, pooled, choice.version).refusal is None
        except KvplanError:
            return False

    wider = (ways for ways in _WAYS if ways > settings.tensor_parallel_size)
    ways = next((ways for ways in wider if starts(tensor_parallel_size=ways)), None)
    found = [f"--tp {ways}"] if ways else []
    if starts(gpu_memory_utilization=Fraction(95, 100)):
        found.append("--gpu-memory-utilization 0.95")
    if settings.quantization is None and not model.quantization and starts(quantization="fp8"):
        found.append("--quantization fp8")
    return found
