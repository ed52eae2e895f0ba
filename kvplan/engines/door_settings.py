"""The settings with which a program (`kvplan.engines.doors`) starts its engine, or an engine itself where it
leaves in host memory what its GPUs do not hold."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.doors import Begun, Door, Wish, door_of
from kvplan.engines.spill import spill
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import replace
from kvplan.settings import Settings, stated_length


def through(model: Model, choice: Choice, settings: Settings) -> tuple[Choice, Settings]:
    """The question as the engine is asked it, with what the program hands to it where nobody said, and what
    the engine leaves in host memory by itself. Raises KvplanError(bad-setting)."""
    if choice.door is None:
        settings, spilled = spill(model, choice, settings)
        return replace(choice, notes=(*choice.notes, *spilled)), settings
    door = door_of(choice.door)
    settings, begun, notes = _begin(model, choice, settings)
    own = settings.own
    notes += _said(door, settings, own, begun)
    if settings.tokens is None and settings.max_model_len is None and not own.get("ctx_size"):
        settings = replace(settings, tokens=begun.context)
    settings, spilled = _with_options(model, choice, settings, {**begun.options, **own})
    return replace(choice, notes=(*notes, *spilled, *door.always)), settings


def check_taken(model: Model, choice: Choice, settings: Settings) -> None:
    """Raises KvplanError where the program does not take such options."""
    assert choice.door is not None
    door_of(choice.door).begin(model, settings, Wish())


def built(model: Model, choice: Choice, settings: Settings) -> Settings:
    """The settings with the file that the program takes of the model, on the GPUs as its engine deals
    them."""
    assert choice.door is not None
    settings = own_settings(choice.engine, settings)
    named = model.gguf_mixture is not None or model.is_gguf or settings.weights is not None
    if named or settings.quantization is not None:
        return settings
    return replace(settings, quantization=door_of(choice.door).build(model))


def _wish(settings: Settings) -> Wish:
    """The wish expressed by an option or by the question."""
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
    """Options to give to the program so that the question is its answer."""
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
    return spill(model, choice, settings)
