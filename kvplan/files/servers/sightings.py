"""Which model and which GPU an observation is of, by what is known here. Names in a log open no file."""

from __future__ import annotations

from kvplan.engines.observed import Count, Observation
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card
from kvplan.files.cards.index import find_targets
from kvplan.files.gpus.find import key_of, list_gpus, list_keys, load_gpu
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record
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


@record()
class SeenGpu:
    """A GPU that an engine's words tell, and how: ``h100-sxm (its name)``, ``a or b (their memory)``."""

    gpu: Gpu
    words: str


def gpu_of(observation: Observation) -> SeenGpu | None:
    """The GPU that the engine named, else one whose total memory it printed.

    None where neither is said, or where several kinds (architectures) have that memory. A name whose memory
    is not the printed one (a slice of that GPU, say) is not taken.
    """
    printed = observation.count("total_memory_bytes")
    named = _named(observation)
    if named is not None and (printed is None or _has(named, printed)):
        return SeenGpu(named, f"{named.slug} (its name)")
    if printed is None:
        return None
    fitting = [gpu for gpu in list_gpus() if _has(gpu, printed)]
    whole = [gpu for gpu in fitting if not gpu.is_mig_slice] or fitting
    kinds = {(gpu.vendor, gpu.arch, gpu.compute_capability) for gpu in whole}
    if len(kinds) != 1:
        return None
    # First the one that a family's name means: h100 is the SXM card.
    whole.sort(key=lambda gpu: (not gpu.default_for, gpu.slug))
    slugs = [gpu.slug for gpu in whole]
    return SeenGpu(whole[0], f"{' or '.join(slugs)} ({'their' if len(slugs) > 1 else 'its'} memory)")


def _has(gpu: Gpu, printed: Count) -> bool:
    """True where the GPU has the printed total, as far as drivers differ."""
    total = gpu.memory_total_bytes
    return total is not None and printed.low - MEMORY_SPREAD <= total <= printed.high + MEMORY_SPREAD


def _named(observation: Observation) -> Gpu | None:
    """By its whole name, as the driver or the name of a kernel's configuration file has it."""
    name = observation.setting("gpu_name")
    if not isinstance(name, str):
        return None
    key = key_of(name.strip().removesuffix(".json"))
    return load_gpu(key) if key in list_keys() else None
