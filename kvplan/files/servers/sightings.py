"""Which model and which GPU an observation is of, by what is known here. Names in a log open no file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvplan.engines.budget.parts import kept_by_driver
from kvplan.engines.observed import Count, Observation
from kvplan.engines.observed.reading import reading_of
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card
from kvplan.files.cards.index import find_targets
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import find_slugs, key_of, list_gpus, list_keys
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record
from kvplan.units import GIB

MEMORY_SPREAD = GIB // 50
"""By how much the same GPU's total differs between drivers."""
_VENDORS = {"cuda": "nvidia", "rocm": "amd"}
_HOPPER = 9
"""FlashAttention 3 is for this major compute capability alone, and 2 is taken elsewhere."""
_ARCH = regex(r"(\d{1,2})(\d)[af]?", re.ASCII)
NAMED_BY = ("model", "model_name", "served_model_name")


def model_named(observation: Observation) -> Model:
    """The card of the model that the engine names (a hub id, or the last part of a path).

    Raises KvplanError(no-model | unknown-model).
    """
    found = names_in(observation)
    if not found:
        raise KvplanError(
            "no-model",
            f"the {observation.source} does not name its model",
            help="name it: kvplan compare MODEL …",
        )
    known = named_model(found)
    if known is not None:
        return known
    raise KvplanError(
        "unknown-model",
        f"the {observation.source} is of {found[0][:120]!r}, which no card describes",
        help="give its config: kvplan compare ./config.json …, or hf:ORG/NAME",
    )


def named_model(names: Iterable[str]) -> Model | None:
    """The card that one of the names has, the first that has one; None where none does."""
    for name in names:
        if len(find_targets(name)) == 1:
            return load_card(name)
    return None


def other_model(observation: Observation, model: Model) -> str | None:
    """The id of the card that the engine names, where it is another one than `model`."""
    try:
        named = model_named(observation)
    except KvplanError:
        return None
    return None if named.id == model.id else named.id


def names_in(observation: Observation) -> list[str]:
    """The engine's names of its model, the likeliest first: ids, folders and their last parts."""
    names: list[str] = []
    for key in NAMED_BY:
        value = observation.setting(key)
        if isinstance(value, str) and value.strip():
            names += spelled(value)
    return list(dict.fromkeys(name for name in names if name))


def spelled(value: str) -> list[str]:
    """The names that a path or an id may stand for, the likeliest first."""
    plain = value.strip().rstrip("/\\")
    last = plain.replace("\\", "/").rpartition("/")[2]
    # A cache of the hub holds models--org--name/snapshots/revision.
    cached = [part.removeprefix("models--") for part in plain.split("/") if part.startswith("models--")]
    return [*(part.replace("--", "/") for part in cached), plain, last.removesuffix(".gguf")]


@record()
class SeenGpu:
    """A GPU that an engine's words tell, and how: ``h100-sxm (its name)``, ``a or b (their memory)``."""

    gpu: Gpu
    words: str


def gpu_of(observation: Observation) -> SeenGpu | None:
    """The GPU that the engine named, else one whose total memory it printed, or whose total follows from what
    it printed.

    None where none is said, or where several kinds (architectures) have that memory. A name whose memory
    is not the printed one (a slice of that GPU, say) is not taken.
    """
    printed = observation.count("total_memory_bytes")
    named = _named(observation)
    if named is not None and (printed is None or _has(named, printed)):
        return SeenGpu(named, f"{named.slug} (its name)")
    if printed is not None:
        fitting, how = gpus_of_memory(observation), "memory"
    else:
        told = told_total(observation)
        if told is None:
            return None
        low, high, how = told
        fitting = [gpu for gpu in gpus_seen(observation) if _lies(gpu, low, high)]
    return one_kind(fitting, how)


def gpus_of_memory(observation: Observation) -> list[Gpu]:
    """The GPUs that have the printed total."""
    printed = observation.count("total_memory_bytes")
    return [] if printed is None else [gpu for gpu in gpus_seen(observation) if _has(gpu, printed)]


def one_kind(fitting: list[Gpu], how: str) -> SeenGpu | None:
    """The GPU that a list names, where all of it are of one kind; else None."""
    whole = [gpu for gpu in fitting if not gpu.is_mig_slice] or fitting
    kinds = {(gpu.vendor, gpu.arch, gpu.compute_capability) for gpu in whole}
    if len(kinds) != 1:
        return None
    # First the one that a family's name means: h100 is the SXM card.
    whole.sort(key=lambda gpu: (not gpu.default_for, gpu.slug))
    slugs = [gpu.slug for gpu in whole]
    return SeenGpu(whole[0], f"{' or '.join(slugs)} ({'their' if len(slugs) > 1 else 'its'} {how})")


def gpus_seen(observation: Observation) -> list[Gpu]:
    """The GPUs that the words of the engine leave: of its platform, and of the compute capability that its
    kernels are for."""
    vendors = _VENDORS.get(str(observation.setting("platform")).rstrip("."))
    found = [gpu for gpu in list_gpus() if vendors is None or gpu.vendor == vendors]
    flash = observation.setting("flash_attention")
    if flash in (2, 3):
        known = [gpu for gpu in found if gpu.compute_capability is not None]
        found = (
            [gpu for gpu in known if (gpu.compute_capability or (0,))[0] == _HOPPER]
            if flash == 3
            else [gpu for gpu in known if (gpu.compute_capability or (0,))[0] != _HOPPER]
        )
    arch = _ARCH.fullmatch(str(observation.setting("gpu_arch")))
    if arch is not None:
        found = [gpu for gpu in found if gpu.compute_capability == (int(arch[1]), int(arch[2]))]
    return found


def told_total(observation: Observation) -> tuple[int, int, str] | None:
    """Between which bytes the GPU's memory lies, and how that is told; None where the engine's lines do
    not."""
    return reading_of(observation.engine).told_total(observation)


def _lies(gpu: Gpu, low: int, high: int) -> bool:
    """True where the GPU's memory lies between them; nvidia-smi shows what the driver keeps, too."""
    shown = gpu.memory_nvml_bytes
    if gpu.memory_total_bytes is not None:
        return any(low - MEMORY_SPREAD <= total <= high + MEMORY_SPREAD for total in _totals(gpu))
    return shown is not None and low <= shown and shown - kept_by_driver(shown)[2] <= high


def _has(gpu: Gpu, printed: Count) -> bool:
    """True where the GPU has the printed total, as far as drivers differ."""
    return gpu.memory_total_bytes is not None and _lies(gpu, printed.low, printed.high)


def _totals(gpu: Gpu) -> tuple[int, ...]:
    """Totals that the runtime reports, under one driver or another."""
    total = gpu.memory_total_bytes
    return (*((total,) if total is not None else ()), *gpu.memory_totals_seen)


def _listed(observation: Observation) -> str | None:
    """The name that a list of GPUs beside the log has, where all of its first ones have it."""
    names = {
        value.partition(" (")[0].strip()
        for key in ("gpu_listed", "gpu_beside", "gpu_third")
        if isinstance(value := observation.setting(key), str)
    }
    return names.pop() if len(names) == 1 else None


def _named(observation: Observation) -> Gpu | None:
    """By its whole name, as the driver or the name of a kernel's configuration file has it."""
    name = observation.setting("gpu_name") or _listed(observation)
    if not isinstance(name, str):
        return None
    key = key_of(name.strip().removesuffix(".json"))
    slugs = find_slugs(key) if key in list_keys() else []
    return load_gpu(slugs[0]) if len(slugs) == 1 else None
