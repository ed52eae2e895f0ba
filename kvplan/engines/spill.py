"""The part of a model that an engine leaves in host memory by itself, where its GPUs do not hold it.

One rule for every question: `kvplan size`, plan files, commands, the planner and `kvplan fits` ask `spill`.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.budget import fitted_safely
from kvplan.engines.folders import FOLDERS
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import LONGEST, Settings, with_settings

PLACES = ("n_gpu_layers", "n_cpu_moe", "cpu_moe", "kv_offload", "tensor_split")
"""Options that say where layers lie: the engine's own fitting stops at them."""
SHORTENED = "fit_ctx"
"""The option that says that the context is the server's own affair, and how far it is cut."""
FITS = "fit"
"""The option that says that its fitting keeps some memory free, though context and layers are given."""
HOST_MEMORY = "host_memory"
"""The option that says how much host memory there is: it bounds what is left there, not what leaves."""


def spills(choice: Choice) -> int:
    """Tokens to which the engine shortens a context before it leaves layers in host memory; 0: it leaves
    none."""
    return traits_of(choice.engine.name).spills if choice.engine.name in FOLDERS else 0


def on_gpus(model: Model, choice: Choice, settings: Settings) -> Settings:
    """The settings of an engine that leaves layers in host memory by itself, with all of them on the GPUs."""
    if not spills(choice) or any(name in settings.own for name in PLACES):
        return settings
    more = {FITS: settings.own.get(FITS, True), PLACES[0]: model.num_layers + 1}
    return with_settings(settings, more)


def spill(model: Model, choice: Choice, settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings with as many layers on the GPUs as fit them, and a note where those are not all.

    Such an engine does not refuse a model that is too large: its own fitting shortens the context where
    nobody gave one, then leaves in host memory what a GPU does not hold, experts before whole layers
    (ggml-org/llama.cpp common/fit.cpp). It does not look at how much host memory there is: where that was
    said and is too little, the engine's answer with these settings is the refusal.
    """
    least = spills(choice)
    if not least or settings.gpu is None:
        return settings, ()
    asked, settings = settings, own_settings(choice.engine, settings)
    if _is_settled(model, choice, settings):
        return asked, ()
    settings, notes = _shortened(model, settings, least)

    def with_own(**more: object) -> Settings:
        return with_settings(settings, {FITS: settings.own.get(FITS, True), **more})

    def starts(**more: object) -> bool:
        asked = with_own(**more)
        return _starts(model, choice, replace(asked, own=asked.own.without(HOST_MEMORY)))

    layers = model.num_layers
    if _has_experts(model) and starts(cpu_moe=True):
        most = _largest(layers, lambda kept: starts(n_cpu_moe=layers - kept))
        hosted = layers - most
        words = f"it does not fit whole: its fitting takes some --n-cpu-moe {hosted} of {layers}"
        return with_own(n_cpu_moe=hosted), (*notes, words)
    more: dict[str, object] = {"cpu_moe": True} if _has_experts(model) else {}
    if not starts(n_gpu_layers=0, **more):
        return asked, ()
    most = _largest(layers, lambda kept: starts(n_gpu_layers=kept, **more))
    words = f"it does not fit whole: its fitting takes some -ngl {most} of {layers + 1}"
    return with_own(n_gpu_layers=most, **more), (*notes, words)


def _is_settled(model: Model, choice: Choice, settings: Settings) -> bool:
    """Whether the fitting has nothing to move: sizes or places are given, or it starts as it is."""
    stated = settings.kv_cache_memory is not None or settings.weights is not None
    if stated or settings.max_model_len == LONGEST or any(name in settings.own for name in PLACES):
        return True
    if _starts(model, choice, settings):
        return True
    # The context is cut whatever a request asks for.
    return bool(settings.own.get(SHORTENED)) and _starts(model, choice, replace(settings, tokens=None))


def _shortened(model: Model, settings: Settings, least: int) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the context that is cut where nobody gave one, and a note where it is."""
    own, whole = settings.own, model.max_model_len or least
    ours = settings.tokens is not None and not own.get(SHORTENED)
    if ours or settings.max_model_len is not None or own.get("ctx_size") is not None or whole <= least:
        return settings, ()
    note = f"no length given: it is cut to {least:,} of {whole:,} tokens"
    return replace(settings, max_model_len=least), (note,)


def _has_experts(model: Model) -> bool:
    return bool(shape_of(model, 2).experts_per_token)


def _starts(model: Model, choice: Choice, settings: Settings) -> bool:
    """With the safe figure of the pool, as what would not start is worse than a layer too few."""
    found = fitted_safely(model, replace(choice, door=None), settings)
    if found.refusal is not None:
        return found.refusal.code not in _MEMORY
    pool = found.pool  # more requests than it has slots are held nowhere
    return pool is None or pool.max_running >= min(settings.requests, max(1, pool.max_num_seqs))


_MEMORY = ("no-memory-for-cache", "not-enough-memory", "no-memory")


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number below ``most`` that fits, 0 where none is known to."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
