"""Models and GPUs by name, path or value (the readers are called here); the engine where nobody names one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplan.api.arguments import takes
from kvplan.engines import default_engine
from kvplan.engines.doors import DOORS, door_of
from kvplan.files.cards.ollama_names import HEADS, is_library_name
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import replace

ModelLike = Model | str | Path | Mapping[str, Any]
MODEL = (Model, str, Path, Mapping)
"""The types of a `ModelLike`."""
_TEXT = (str,)


@takes(model=MODEL, revision=_TEXT, weights_from=_TEXT)
def load_model(model: ModelLike, *, revision: str | None = None, weights_from: str | None = None) -> Model:
    """A model from a card id, a path (config.json, its directory, a GGUF file), ``hf:org/name`` or a dict.

    weights_from: ``transformers`` counts its tensors by building its class (extras hf and gpu); nothing is
    built otherwise.
    Raises KvplanError: unknown-model, bad-config, missing-key, unknown-layer-type, no-network …
    """
    found = _loaded(model, revision)
    if weights_from is None:
        return found
    from kvplan.files.meta_model import counted

    return counted(found, weights_from)


def load_draft(model: ModelLike) -> Model:
    """`load_model` of what is to draft for another: a head's GGUF file too."""
    return _loaded(model, None, as_draft=True)


def _loaded(model: ModelLike, revision: str | None, *, as_draft: bool = False) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, Mapping):
        from kvplan.architectures.config.read import read_config

        return read_config(
            model, id=str(model.get("_name_or_path") or model.get("model_type", "config")), source="dict"
        )
    from kvplan.files.sources import open_model

    return open_model(str(model), revision=revision, as_draft=as_draft)


@takes(gpu=(Gpu, str))
def load_gpu(gpu: Gpu | str) -> Gpu:
    """A GPU by slug, alias, NVML name or unique prefix; ``auto``: the first of this machine; ``80GiB``: one
    that is not listed. Raises KvplanError(unknown-gpu), CannotRunHere(no-gpu | missing-extra)."""
    return gpus_of(gpu)[0]


@takes(gpu=(Gpu, str))
def gpus_of(gpu: Gpu | str) -> tuple[Gpu, int]:
    """The GPU that a text names and how many: ``h100x8``, ``8xh100``; of several kinds in one server:
    ``rtx-3090+rtx-3060``."""
    if isinstance(gpu, Gpu):
        return gpu, max(len(gpu.row), 1)
    from kvplan.files.gpus.find import gpu_of_size, parse_gpu_count
    from kvplan.files.gpus.find import load_gpu as find
    from kvplan.files.gpus.listed import find_slugs

    if "+" in gpu and not find_slugs(gpu):
        return _row([gpus_of(part) for part in gpu.split("+")])
    name, count = parse_gpu_count(gpu)
    if name.strip().lower() == "auto":
        from kvplan.files.gpus.this import first_gpu

        return first_gpu(), count
    return gpu_of_size(name) or find(name), count


def _row(kinds: list[tuple[Gpu, int]]) -> tuple[Gpu, int]:
    """GPUs of several kinds as one value: the first one's figures, and all of them in order."""
    row = tuple(gpu for gpu, count in kinds for _ in range(count))
    if len({gpu.slug for gpu in row}) == 1:
        return row[0], len(row)
    slug = "+".join(gpu.slug if count == 1 else f"{count}x{gpu.slug}" for gpu, count in kinds)
    name = ", ".join(gpu.name if count == 1 else f"{count} {gpu.name}" for gpu, count in kinds)
    return replace(row[0], slug=slug, name=name, row=row), len(row)


def usual_engine(
    models: Sequence[Model], quantization: str | None = None, gpus: Iterable[Gpu | None] = ()
) -> str:
    """The program whose library a model was named after, else what `default_engine` says.

    quantization, gpus: as they are asked for."""
    if len(models) == 1 and is_library_name(models[0].id.lower()):
        return next(name for name in DOORS if door_of(name).head == HEADS[0])
    return default_engine(models, quantization, gpus)


def engine_for(models: Sequence[Model], options: Mapping[str, object]) -> str:
    """`usual_engine` by the keywords of a question, before they are read."""
    more = options.get("settings")
    given = {**(more if isinstance(more, Mapping) else {}), **options}
    build, gpu = given.get("quantization"), given.get("gpu")
    kinds = (gpus_of(gpu)[0],) if isinstance(gpu, (Gpu, str)) else ()
    return usual_engine(models, build if isinstance(build, str) else None, kinds)
