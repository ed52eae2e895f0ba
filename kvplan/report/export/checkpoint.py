"""The checkpoint that an engine loads for a plan's ``model``, or for a draft model."""

from __future__ import annotations

from kvplan.engines.command import FILES, Checkpoint, EngineTable, loaded, path_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.plan import Plan


def checkpoint_of(plan: Plan, model: Model | None, table: EngineTable) -> Checkpoint:
    """The checkpoint that the plan's ``model`` means.

    ``hf:org/name@revision`` is a name on the Hub; otherwise as `loaded`, where the model was read (which
    tells a card from a folder of the same name), else a path where it looks like one. Raises
    KvplanError(no-checkpoint).
    """
    named = _named(plan, model)
    build = plan.settings.quantization
    if table.build is None or build is None or (model is not None and model.gguf_mixture):
        return named
    return table.build(named, build)


def _named(plan: Plan, model: Model | None) -> Checkpoint:
    if plan.model.startswith("hf:"):
        name, _, revision = plan.model.removeprefix("hf:").partition("@")
        return Checkpoint(name, False, revision or None)
    if model is not None:
        return loaded(model)
    text = plan.model.replace("\\", "/")
    if text.startswith((".", "/", "~")) or text.lower().endswith(FILES):
        return path_of(text)
    raise KvplanError(
        "no-checkpoint",
        f"`{plan.model}` is the name of a card, and an engine needs a checkpoint",
        help=f"write model: hf:org/name, or the path of the checkpoint, instead of {plan.model}",
    )
