"""Which engine is meant where nobody names one: the same for every command and for Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvplan.api.load import gpus_of
from kvplan.engines import default_engine
from kvplan.engines.doors import DOORS, door_of
from kvplan.files.cards.ollama_names import HEADS, is_library_name
from kvplan.gpu import Gpu
from kvplan.model import Model


def usual_engine(
    models: Sequence[Model], quantization: str | None = None, gpus: Iterable[Gpu | None] = ()
) -> str:
    """The program whose library a model was named after, else what `default_engine` says.

    quantization, gpus: as they are asked for."""
    if len(models) == 1 and is_library_name(models[0].id.lower()):
        return next(name for name in DOORS if door_of(name).head == HEADS[0])
    return default_engine(models, quantization, gpus)


def engine_for(models: Sequence[Model], options: Mapping[str, Any]) -> str:
    """`usual_engine` by the keywords of a question, before they are read."""
    more = options.get("settings")
    given = {**(more if isinstance(more, Mapping) else {}), **options}
    build, gpu = given.get("quantization"), given.get("gpu")
    kinds = (gpus_of(gpu)[0],) if isinstance(gpu, (Gpu, str)) else ()
    return usual_engine(models, build if isinstance(build, str) else None, kinds)
