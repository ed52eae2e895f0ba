"""Bytes that a loaded model takes, as the program in front of llama.cpp tells them."""

from __future__ import annotations

from kvplan.engines.doors import Loaded
from kvplan.engines.llamacpp.memory.image_encoder import encoder_bytes
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.results import SizeResult
from kvplan.units import GIB

_WEIGHTS, _ENCODER = "weights", "image encoder"
_COMPUTED = ("compute buffer", "draft's compute", _ENCODER)
_WINDOW, _FULL = "window", "full"
"""Groups of a pool, as `cache_layout.pool` names them."""
HOST_COMPUTE = GIB // 2
"""The CPU's own compute buffer where layers lie in host memory: up to this."""


class _Parts(NamedTuple):
    """Bytes of one GPU's weights and compute buffers."""

    low: int
    likely: int
    high: int
    has_encoder: bool


def by_its_buffers(model: Model, found: SizeResult) -> Loaded | None:
    """As ``ollama ps`` adds up the lines of llama-server's log (ollama/ollama 0.33 llm/llama_server.go,
    bufferSizeRegex, MemorySize): model, KV, RS and compute buffers. The encoder's weights have no such line,
    and of two caches, which print the same line, the last counts: a window's. None where the GPUs are not
    told one by one."""
    lines = _lines(found)
    if lines is None:
        return None
    # No graph, no weights: it lies in host memory, or there is none.
    encoder = (encoder_bytes(model) or 0) if lines.has_encoder else 0
    return _with_host(found, lines, _counted_cache(found) - encoder)


def all_of_it(model: Model, found: SizeResult) -> Loaded | None:
    """Weights with the encoder, cache and compute buffers. None where the GPUs are not told one by one."""
    del model
    lines = _lines(found)
    return None if lines is None else _with_host(found, lines, found.per_gpu.kv_bytes)


def _lines(found: SizeResult) -> _Parts | None:
    """The budget's lines that are buffers."""
    if found.budget is None or found.settings.get("pipeline_parallel_size") != 1:
        return None
    weights = [line for line in found.budget.lines if line.name == _WEIGHTS]
    computed = [line for line in found.budget.lines if line.name in _COMPUTED]
    both = (*weights, *computed)
    return _Parts(
        sum(line.low_bytes for line in both),
        sum(line.bytes for line in both),
        sum(line.high_bytes for line in both),
        any(line.name == _ENCODER for line in computed),
    )


def _with_host(found: SizeResult, gpu: _Parts, cache: int) -> Loaded:
    hosted = [line for line in found.host if line.name == _WEIGHTS]
    if not hosted:
        return Loaded((gpu.low + cache, gpu.likely + cache, gpu.high + cache))
    own = int(found.settings.get("host_kv_bytes") or 0) + sum(line.bytes for line in hosted)
    ends = (gpu.low + cache, gpu.likely + cache, gpu.high + cache)
    return Loaded(ends, (own, own + HOST_COMPUTE // 2, own + HOST_COMPUTE))


def _counted_cache(found: SizeResult) -> int:
    """The cache without that of the full layers, where windows have one of their own."""
    cache = found.per_gpu.kv_bytes
    groups = () if found.pool is None else found.pool.groups
    kinds = {group.kind for group in groups}
    if _WINDOW not in kinds:
        return cache
    slots = int(found.settings.get("n_seq_max") or 1)
    full = sum(one.page_bytes * one.blocks_per_request for one in groups if one.kind == _FULL)
    return cache - full * slots
