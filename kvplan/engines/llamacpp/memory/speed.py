"""Tokens a second that one request gets under llama.cpp, by what a token reads (`reads`).

    seconds = Σ GPUs ( (weights + experts) / (bandwidth · share) + cache / (bandwidth · share · cache_share)
                       + layers · layer + layers with experts · routed ) + bytes in host memory / rate

GPUs take their layers one after the other (--split-mode layer). Constants by class of GPU: data/speed.tsv,
fitted to published figures by scripts/desk_speed.py, whose held-out rows docs/data/desk-speed.md lists. An
estimate that ranks, no benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kvplan.engines.llamacpp.memory.reads import Reads, reads
from kvplan.engines.llamacpp.start.cache_types import ggml_word
from kvplan.errors import KvplanError
from kvplan.gpu import APPLE, Gpu
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import DecodeSpeed
from kvplan.settings import Serving, Settings, with_settings
from kvplan.units import GB

TABLE = Path(__file__).parents[1] / "data" / "speed.tsv"
MICRO = 1e-6
_BLACKWELL, _OLDEST = (12, 0), (7, 5)
"""NVIDIA's compute capability from which the rows are."""
_RDNA = "RDNA"
_NARROW = "q8_0"
_IN_F16 = {"cache_type_k": "f16", "cache_type_v": "f16"}


@record()
class Rates:
    """The constants of a class of GPUs.

    share: of the memory's bandwidth that kernels reach. cache_share: of that, what attention reaches. layer,
    routed: seconds of a layer's kernels and of its experts', whatever they read. fast, slow: the interval of
    measured seconds, as shares of the estimate."""

    share: float
    layer: float
    routed: float
    cache_share: float
    fast: float
    slow: float

    def seconds(self, found: Reads, bandwidth: int) -> float:
        """Of one token at a GPU."""
        rate = bandwidth * self.share
        matrices = (found.weights + found.experts) / rate
        return (
            matrices + found.cache / (rate * self.cache_share)
            + found.layers * self.layer + found.routed * self.routed
        )  # fmt: skip


@record()
class HostRate:
    """Bytes a second of host memory that matrices are multiplied from: nobody says which memory it is, so
    between a desktop with two channels of DDR4 and one with DDR5."""

    low: float
    likely: float
    high: float


@cache
def table() -> tuple[dict[str, Rates], HostRate]:
    """The packaged constants."""
    return parsed(TABLE.read_text(encoding="utf-8"))


def parsed(text: str) -> tuple[dict[str, Rates], HostRate]:
    """Lines of ``class share layer_us routed_us cache_share fast slow``, and one of ``host`` with GB/s."""
    found, host = {}, HostRate(1.0, 1.0, 1.0)
    for line in text.splitlines()[1:]:
        name, *words = line.split("\t")
        numbers = [float(word) for word in words if word]
        if name == "host":
            host = HostRate(*(one * GB for one in numbers))
            continue
        share, layer, routed, cached, fast, slow = numbers
        found[name] = Rates(share, layer * MICRO, routed * MICRO, cached, fast, slow)
    return found, host


def class_of(gpu: Gpu) -> str | None:
    """The class that has a GPU's constants; None where nobody published a row of its like."""
    if gpu.vendor == APPLE:
        return APPLE
    if gpu.market not in ("desktop", "laptop", "workstation") or gpu.is_vgpu or gpu.is_mig_slice:
        return None
    capability = gpu.compute_capability or (0, 0)
    if not (gpu.arch.startswith(_RDNA) if gpu.vendor == "amd" else capability >= _OLDEST):
        return None
    if gpu.is_unified_memory:
        return f"{gpu.vendor}-unified"
    return "nvidia-blackwell" if capability >= _BLACKWELL else gpu.vendor


def decode(model: Model, settings: Serving, tokens: int) -> DecodeSpeed | None:
    """Tokens a second of one request that runs alone, with so many tokens in the cache.

    A cache in fewer bits counts as f16: nothing published says that it is read faster. None where the GPUs'
    bandwidth or class is not known, or the bytes of the model's tensors are not."""
    gpu = settings.gpu
    if gpu is None or settings.weights is not None:
        return None
    try:
        in_f16 = with_settings(replace(settings, kv_cache_dtype="auto"), _IN_F16)
        return seconds_of(reads(model, in_f16, tokens), gpu, tokens)
    except KvplanError:
        return None


def seconds_of(found: tuple[Reads, ...], gpu: Gpu, tokens: int) -> DecodeSpeed | None:
    """The speed of what a token reads at each GPU, then in host memory."""
    by_class, host = table()
    row = gpu.row or (gpu,) * (len(found) - 1)
    fast = likely = slow = 0.0
    for one, read in zip(row, found):
        rates, bandwidth = by_class.get(class_of(one) or ""), one.bandwidth_bytes_per_second
        if rates is None or not bandwidth:
            return None
        own = rates.seconds(read, bandwidth)
        fast, likely, slow = fast + own * rates.fast, likely + own, slow + own * rates.slow
    beside = found[-1].bytes
    fast, likely, slow = fast + beside / host.high, likely + beside / host.likely, slow + beside / host.low
    if not likely:
        return None
    return DecodeSpeed(tokens, round(1 / likely, 1), round(1 / slow, 1), round(1 / fast, 1))


def cache_of(settings: Serving) -> str:
    """The type of the cache's numbers, as -ctk names it."""
    asked = settings.own.get("cache_type_k")
    return (
        str(asked)
        if asked
        else ggml_word(settings.kv_cache_dtype)
        if settings.kv_cache_dtype != "auto"
        else "f16"
    )


def narrower(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """The options and settings of a cache in fewer bits that loses next to nothing, where it is not one."""
    if cache_of(settings) == "f16":
        types = {"cache_type_k": _NARROW, "cache_type_v": _NARROW}
        yield f"-ctk {_NARROW} -ctv {_NARROW}", with_settings(settings, types)


def reads_host(model: Model, settings: Serving) -> bool:
    """Whether a token reads matrices or cache from host memory."""
    try:
        return bool(reads(model, settings, 1)[-1].bytes)
    except KvplanError:
        return False
