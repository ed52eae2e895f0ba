"""Which model and which GPU an observation is of, by what is known here. Names in a log open no file."""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.observation import Observation
from kvplan.readers.card_index import find_targets
from kvplan.readers.cards import load_card
from kvplan.readers.gpus import list_gpus
from kvplan.units import GIB

MEMORY_SPREAD = GIB // 50
"""By how much the same GPU's total differs between drivers."""
NAMED_BY = ("model", "model_name", "served_model_name")


def model_named(observation: Observation) -> Model:
    """The card of the model that the engine names (a hub id, or the last part of a path).

    Raises KvplanError(no-model | unknown-model).
    """
    found = _names(observation)
    if not found:
        raise KvplanError(
            "no-model",
            f"the {observation.source} does not name its model",
            help="name it: kvplan compare MODEL …",
        )
    for name in found:
        if len(find_targets(name)) == 1:
            return load_card(name)
    raise KvplanError(
        "unknown-model",
        f"the {observation.source} is of {found[0][:120]!r}, which no card describes",
        help="give its config: kvplan compare ./config.json …, or hf:ORG/NAME",
    )


def other_model(observation: Observation, model: Model) -> str | None:
    """The id of the card that the engine names, where it is another one than `model`."""
    try:
        named = model_named(observation)
    except KvplanError:
        return None
    return None if named.id == model.id else named.id


def _names(observation: Observation) -> list[str]:
    names: list[str] = []
    for key in NAMED_BY:
        value = observation.setting(key)
        if isinstance(value, str) and value.strip():
            plain = value.strip().rstrip("/\\")
            last = plain.replace("\\", "/").rpartition("/")[2]
            # A cache of the hub holds models--org--name/snapshots/revision.
            cached = [part for part in plain.split("/") if part.startswith("models--")]
            names += [part.removeprefix("models--").replace("--", "/") for part in cached]
            names += [plain, last.removesuffix(".gguf")]
    return list(dict.fromkeys(name for name in names if name))


def gpu_of(observation: Observation) -> Gpu | None:
    """The GPU whose total memory the engine printed; None where none, or several kinds, have it."""
    printed = observation.count("total_memory_bytes")
    if printed is None:
        return None
    fitting = [
        gpu
        for gpu in list_gpus()
        if gpu.memory_total_bytes is not None
        and printed.low - MEMORY_SPREAD <= gpu.memory_total_bytes <= printed.high + MEMORY_SPREAD
    ]
    whole = [gpu for gpu in fitting if not gpu.is_mig_slice] or fitting
    kinds = {(gpu.vendor, gpu.arch, gpu.compute_capability) for gpu in whole}
    return whole[0] if len(kinds) == 1 else None
