"""What an engine loads: what a plan's ``model``, or a draft model, means to it."""

from __future__ import annotations

from pathlib import PurePosixPath

from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.record import record

_INSIDE = (".json", ".safetensors")
_FILES = (*_INSIDE, ".gguf")


@record()
class Checkpoint:
    """A name on the Hub, perhaps at a revision, or a path (as the plan's reader resolved it)."""

    name: str
    is_path: bool
    revision: str | None = None

    @property
    def is_gguf(self) -> bool:
        return self.name.lower().endswith(".gguf")


def checkpoint_of(plan: Plan, model: Model | None) -> Checkpoint:
    """What the plan's ``model`` means.

    ``hf:org/name@revision`` is a name on the Hub; otherwise as `loaded`, where the model was read (which
    tells a card from a folder of the same name), else a path where it looks like one. Raises
    KvplanError(no-checkpoint)."""
    if plan.model.startswith("hf:"):
        name, _, revision = plan.model.removeprefix("hf:").partition("@")
        return Checkpoint(name, False, revision or None)
    if model is not None:
        return loaded(model)
    text = plan.model.replace("\\", "/")
    if text.startswith((".", "/", "~")) or text.lower().endswith(_FILES):
        return _path(text)
    raise KvplanError(
        "no-checkpoint",
        f"`{plan.model}` is the name of a card, and an engine needs a checkpoint",
        help=f"write model: hf:org/name, or the path of the checkpoint, instead of {plan.model}",
    )


def loaded(model: Model) -> Checkpoint:
    """A card stands for the model that it describes; a config.json for its folder; a GGUF file for itself."""
    source = model.source.replace("\\", "/")
    if source.startswith(("card:", "hf:")) or source.lower().endswith((".yaml", ".yml")):
        return Checkpoint(model.id, False)
    return _path(source)


def _path(text: str) -> Checkpoint:
    path = PurePosixPath(text)
    return Checkpoint(str(path.parent if path.name.lower().endswith(_INSIDE) else path), True)
