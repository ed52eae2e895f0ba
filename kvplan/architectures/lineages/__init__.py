"""The lineages: one file each, with the layers, tensors, prediction layers and media of its model types.

Every file beside this one is found by itself; it calls ``registry.lineage`` for its types. Sources, unless a
file says otherwise: huggingface/transformers 5.23.0 models/<type>/ (configuration_*.py for the layers,
modeling_*.py for the tensors) and vllm-project/vllm 0.32 vllm/model_executor/models/.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from kvplan.architectures.registry import LINEAGES, Lineage

_NOTHING = Lineage()


def lineage_of(model_type: str) -> Lineage:
    """Everything known of a model type; an empty lineage for a type that has none.

    Files whose name begins as the type does are read first, until one has it: most questions read one.
    """
    for name in _files():
        if model_type in LINEAGES:
            break
        if model_type.startswith(name.partition("_")[0]):
            _read(name)
    return LINEAGES.get(model_type) or lineages().get(model_type) or _NOTHING


def lineages() -> Mapping[str, Lineage]:
    """Every model type of every file."""
    for name in _files():
        _read(name)
    return LINEAGES


def custom_types() -> list[str]:
    """The model types that transformers does not know."""
    return [name for name, known in lineages().items() if known.reads is not None]


@cache
def _files() -> tuple[str, ...]:
    names = (file.name for file in Path(*__path__).iterdir())
    return tuple(sorted(name[:-3] for name in names if name.endswith(".py") and not name.startswith("_")))


@cache
def _read(name: str) -> None:
    import_module(f"{__name__}.{name}")
