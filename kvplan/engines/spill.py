"""The part of a model that an engine leaves in host memory by itself, where its GPUs do not hold it.

One rule for every question: `kvplan size`, plan files, commands, the planner and `kvplan fits` ask `spill`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.budget import fitted_safely
from kvplan.engines.folders import FOLDERS, part_of
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import LONGEST, Settings, with_settings
from kvplan.units import MIB

PLACES = ("n_gpu_layers", "n_cpu_moe", "cpu_moe", "kv_offload", "tensor_split", "override_tensor")
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
    """The settings of an engine that leaves layers in host memory by itself, with all of them on the GPUs,
    the file's prediction layers and the output among them."""
    if not spills(choice) or any(name in settings.own for name in PLACES):
        return settings
    more = {FITS: settings.own.get(FITS, True), PLACES[0]: model.num_layers + len(model.draft_layers) + 1}
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
    placement = part_of(choice.engine.name, "placement")
    length = _length_of(model, settings)
    fits = settings.own.get(FITS, True)
    try:
        likely = placement.placed(model, settings, length, safely=False)
        for spare in _SPARE:
            found = placement.placed(model, settings, length, safely=True, spare=spare)
            started, notes = _cut(model, settings, length, found.n_ctx, likely.n_ctx)
            if found.own:
                started = with_settings(started, {FITS: fits, **found.own})
                notes += _words(model, found.own, likely.own)
            if notes and _starts(model, choice, replace(started, own=started.own.without(HOST_MEMORY))):
                return started, notes
    except KvplanError:
        pass
    return asked, ()


_SPARE = tuple(MIB * amount for amount in (0, 64, 128, 192, 256, 384, 512, 1024, 2048))
"""Bytes of each GPU to leave free besides: a budget for a length that nobody gave is an interval of its own,
and takes the same compute buffer on each GPU."""


def _length_of(model: Model, settings: Settings) -> int | None:
    """n_ctx where somebody gave a length; None where the fitting chooses it."""
    own, whole = settings.own, model.max_model_len
    given, slots = own.get("ctx_size"), own.get("parallel")
    count = slots if isinstance(slots, int) else settings.requests
    if isinstance(given, int) and given:
        return given
    length = settings.max_model_len if isinstance(settings.max_model_len, int) else None
    if length is None and not own.get(SHORTENED):
        length = settings.tokens
    if length is None and given == 0:
        length = whole
    return None if length is None else length * count


def _cut(
    model: Model, settings: Settings, given: int | None, n_ctx: int, likely: int
) -> tuple[Settings, tuple[str, ...]]:
    """With the context that the fitting chooses where none is given, and a note where it is not the model's
    own."""
    own, whole = settings.own, model.max_model_len or 0
    if given is not None:
        return settings, ()
    slots = own.get("parallel")
    count = 1 if own.get("kv_unified") or not isinstance(slots, int) else slots
    length = n_ctx // count
    if length >= whole:
        return settings, ()
    note = f"no length given: --fit leaves {length:,} of {whole:,} tokens, likely {likely // count:,}"
    if own.get(SHORTENED):
        cut = with_settings(settings, {"ctx_size": n_ctx})
        return replace(cut, own=cut.own.without(SHORTENED)), (note,)
    return replace(settings, max_model_len=length), (note,)


def _words(model: Model, own: Mapping[str, object], likely: Mapping[str, object]) -> tuple[str, ...]:
    """Where layers lie, as the options would say it."""
    layers = model.num_layers + 1
    found = []
    here, there = own["n_gpu_layers"], likely.get("n_gpu_layers", layers)
    if here != layers:
        found.append(f"not every layer fits: --fit chooses about -ngl {here} of {layers}, likely {there}")
    if "override_tensor" in own:
        moved = ",".join(map(str, cast("tuple[str, ...]", own["override_tensor"])))
        found.append(f"not every tensor fits: --fit leaves some in host memory, -ot {moved}")
    if not found:
        shares = ",".join(map(str, cast("tuple[Fraction, ...]", own["tensor_split"])))
        found.append(f"--fit splits the layers by free memory: -ts {shares}")
    return tuple(found)


def _is_settled(model: Model, choice: Choice, settings: Settings) -> bool:
    """Whether the fitting has nothing to move: sizes or places are given, or it starts as it is."""
    stated = settings.kv_cache_memory is not None or settings.weights is not None
    if stated or settings.max_model_len == LONGEST or any(name in settings.own for name in PLACES):
        return True
    lengthless = _length_of(model, settings) is None
    if lengthless and settings.pipeline_parallel_size > 1:
        # Over several GPUs the sum of what is free decides where a context is cut.
        whole = replace(settings, max_model_len=model.max_model_len, own=settings.own.without(SHORTENED))
        return model.max_model_len is None or _starts(model, choice, whole)
    if _starts(model, choice, settings):
        return True
    # The context is cut whatever a request asks for.
    return bool(settings.own.get(SHORTENED)) and _starts(model, choice, replace(settings, tokens=None))


def _starts(model: Model, choice: Choice, settings: Settings) -> bool:
    """With the safe figure of the pool, as what would not start is worse than a layer too few."""
    found = fitted_safely(model, replace(choice, door=None), settings)
    if found.refusal is not None:
        return found.refusal.code not in _MEMORY
    pool = found.pool  # more requests than it has slots are held nowhere
    return pool is None or pool.max_running >= min(settings.requests, max(1, pool.max_num_seqs))


_MEMORY = ("no-memory-for-cache", "not-enough-memory", "no-memory")
