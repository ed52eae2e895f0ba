"""What an engine loads: what a model that was read means to it."""

from __future__ import annotations

from pathlib import PurePosixPath

from kvplan.model import Model
from kvplan.record import record

INSIDE = (".json", ".safetensors")
FILES = (*INSIDE, ".gguf")


@record()
class Checkpoint:
    """A name on the Hub, perhaps at a revision, or a path (as the plan's reader resolved it)."""

    name: str
    is_path: bool
    revision: str | None = None

    @property
    def is_gguf(self) -> bool:
        return self.name.lower().endswith(".gguf")


def loaded(model: Model) -> Checkpoint:
    """A card stands for the model that it describes; a config.json for its folder; a GGUF file for itself."""
    source = model.source.replace("\\", "/")
    if source.startswith(("card:", "hf:")) or source.lower().endswith((".yaml", ".yml")):
        return Checkpoint(model.id, False)
    return path_of(source)


def path_of(text: str) -> Checkpoint:
    """The checkpoint at a path; of a file inside it, its folder."""
    path = PurePosixPath(text)
    return Checkpoint(str(path.parent if path.name.lower().endswith(INSIDE) else path), True)
