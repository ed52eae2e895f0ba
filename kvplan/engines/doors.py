"""Programs that start an engine by themselves: ``-e ollama``, ``ollama run``, ``lms load``.

Such a program has no cache of its own. What it hands to the engine where its user says nothing is here; what
the engine makes of it are the engine's own rules. Each program's part is in its engine's folder, loaded when
it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kvplan.engines.base import Choice
from kvplan.engines.traits import traits_of
from kvplan.later import later
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import record, replace
from kvplan.settings import Settings, stated_length

if TYPE_CHECKING:
    from kvplan.engines import spill as spilling
else:
    spilling = later("kvplan.engines", "spill")

_PARTS = {"ollama": "llamacpp.programs.ollama", "lmstudio": "llamacpp.programs.lmstudio"}
DOORS = tuple(_PARTS)
"""Their names, as ``--engine`` takes them."""


class Wish(NamedTuple):
    """What a user told the program; None: nothing.

    context: tokens of one request. gpu_layers: as the engine counts them; gpu_part: a part of them all.
    spread: over all GPUs, though one would do. overhead: bytes of each GPU that it is told to leave alone.
    """

    context: int | None = None
    parallel: int | None = None
    cache_type: str | None = None
    flash_attn: bool | None = None
    gpu_layers: int | None = None
    gpu_part: Fraction | None = None
    batch: int | None = None
    spread: bool = False
    overhead: int = 0


class Begun(NamedTuple):
    """How the program starts the engine.

    context: of one request; usual: what it is where nobody says. options: the engine's own, without the
    context's. gpus: how many it takes of those that are there. notes: what its user has to know.
    """

    context: int
    usual: int
    parallel: int
    options: Mapping[str, object]
    gpus: int
    notes: tuple[str, ...] = ()


@record()
class Door:
    """A program and the engine behind it.

    versions: its releases whose source was read, oldest first; none where it is not public. build: the file
    that it takes of a model that is named and no file. begin: how it starts the engine on the GPUs of the
    settings. context_word, parallel_word: what sets them; parallel: requests at once where nobody says.
    always: what every answer says. head: what its own names of models begin with here. command: the lines
    that start it with an engine's flags, by the name that it has of a model.
    """

    name: str
    title: str
    engine: str
    versions: tuple[str, ...]
    build: Callable[[Model], str]
    begin: Callable[[Model, Settings, Wish], Begun]
    context_word: str
    parallel_word: str
    parallel: int
    always: tuple[str, ...] = ()
    head: str = ""
    command: Callable[[str, Mapping[str, object]], tuple[str, ...]] | None = None


@cache
def door_of(name: str) -> Door:
    """The door of that name, one of `DOORS`."""
    found: Door = import_module(f"kvplan.engines.{_PARTS[name]}").DOOR
    return found


def head_of(choice: Choice | None) -> str:
    """What the names of models begin with that the program of a choice has of its own; nothing without
    one."""
    return "" if choice is None or choice.door is None else door_of(choice.door).head


def through(model: Model, choice: Choice, settings: Settings) -> tuple[Choice, Settings]:
    """The question as the engine is asked it, with what the program hands to it where nobody said, and what
    the engine leaves in host memory by itself. Raises KvplanError(bad-setting)."""
    if choice.door is None:
        if not traits_of(choice.engine.name).spills:
            return choice, settings
        settings, spilled = spilling.spill(model, choice, settings)
        return replace(choice, notes=(*choice.notes, *spilled)), settings
    door = door_of(choice.door)
    settings, begun, notes = _begin(model, choice, settings)
    own = settings.own
    notes += _said(door, settings, own, begun)
    if settings.tokens is None and settings.max_model_len is None and not own.get("ctx_size"):
        settings = replace(settings, tokens=begun.context)
    settings, spilled = _with_options(model, choice, settings, {**begun.options, **own})
    return replace(choice, notes=(*notes, *spilled, *door.always)), settings


def built(model: Model, choice: Choice, settings: Settings) -> Settings:
    """The settings with the file that the program takes of the model, on the GPUs as its engine deals
    them."""
    from kvplan.engines import own_settings

    assert choice.door is not None
    settings = own_settings(choice.engine, settings)
    named = model.gguf_mixture is not None or model.is_gguf or settings.weights is not None
    if named or settings.quantization is not None:
        return settings
    return replace(settings, quantization=door_of(choice.door).build(model))


def _wish(settings: Settings) -> Wish:
    """What an option or the question says."""
    own = settings.own
    slots, cells = own.get("parallel"), own.get("ctx_size")
    parallel = slots if isinstance(slots, int) else settings.requests if settings.requests > 1 else None
    context = stated_length(settings) or settings.tokens
    if isinstance(cells, int):
        context = cells if own.get("kv_unified") else cells // (parallel or 1)
    batch, flash = own.get("ubatch_size"), own.get("flash_attn")
    return Wish(
        context=context,
        parallel=parallel,
        flash_attn=flash if isinstance(flash, bool) else None,
        batch=batch if isinstance(batch, int) else None,
    )


def _file(door: Door, asked: Settings, settings: Settings) -> list[str]:
    """Which file of the model counts, where nobody named one."""
    if asked.quantization is not None or settings.quantization is None or settings.gpu is None:
        return []
    return [f"weights of {settings.quantization}, as {door.title} usually has them: -q, or the file's name"]


def _said(door: Door, settings: Settings, own: Mapping[str, object], begun: Begun) -> list[str]:
    """What the program has to be told so that the question is its answer."""
    found = []
    if not own.get("ctx_size") and begun.context != begun.usual:
        found.append(
            f"{door.context_word}{begun.context}: {door.title}'s own context here is {begun.usual:,} tokens"
        )
    if own.get("parallel") is None and settings.requests > door.parallel:
        found.append(f"{door.parallel_word}{settings.requests}: it serves {door.parallel} at once by itself")
    return found


def start(model: Model, choice: Choice, settings: Settings, wish: Wish) -> tuple[Settings, tuple[str, ...]]:
    """The settings with which the program starts the engine by its own command, and what its user did not
    say.

    settings: GPUs only. Raises KvplanError(bad-setting)."""
    assert choice.door is not None
    door = door_of(choice.door)
    settings, begun, notes = _begin(model, choice, settings, wish)
    shared = bool(begun.options.get("kv_unified"))
    cells = begun.context if shared else begun.context * begun.parallel
    options = {**begun.options, "ctx_size": cells, "parallel": begun.parallel}
    settings, spilled = _with_options(model, choice, settings, options)
    if wish.context is None:
        notes.insert(
            0, f"{door.title}'s own context here: {begun.usual:,} tokens ({door.context_word}… sets it)"
        )
    said = () if choice.warning is None else (choice.warning,)
    return settings, (*said, *notes, *spilled, *door.always)


def _begin(
    model: Model, choice: Choice, settings: Settings, wish: Wish | None = None
) -> tuple[Settings, Begun, list[str]]:
    """The settings with the program's file of the model, on the GPUs that it takes; how it begins, and what
    its user has to know of that. wish: None, what the settings themselves say."""
    assert choice.door is not None
    door, of_file = door_of(choice.door), built(model, choice, settings)
    begun = door.begin(model, of_file, _wish(of_file) if wish is None else wish)
    on_gpus = replace(of_file, pipeline_parallel_size=begun.gpus)
    return on_gpus, begun, [*begun.notes, *_file(door, settings, of_file)]


def _with_options(
    model: Model, choice: Choice, settings: Settings, options: Mapping[str, object]
) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the engine's own options, and what it leaves in host memory with them."""
    settings = replace(settings, own=OwnOptions.of(options))
    return spilling.spill(model, choice, settings)
