"""Host memory of llama-server: what of weights and cache lies there, and the prompts that it keeps.

ggml-org/llama.cpp 0.5.0: src/llama-model.cpp (tensors without a device lie in host buffers, which map the
file; the embedding always does), common/common.h (cache_ram_mib 8192: states of finished slots, --cache-ram).
"""

from __future__ import annotations

from kvplan.engines.llamacpp.budget import host_weights
from kvplan.engines.llamacpp.model_options import options_of
from kvplan.model import Model
from kvplan.results import HOST, MEMORY, HostLine, SizeResult
from kvplan.settings import Settings
from kvplan.units import GIB

PROMPTS = 8 * GIB
"""--cache-ram, where nobody says otherwise."""


def lines(model: Model, settings: Settings, version: str, result: SizeResult) -> tuple[HostLine, ...]:
    """Bytes in host memory besides the process itself."""
    del version
    found = []
    if weights := _weights(model, settings, result):
        found.append(_exactly("weights", weights, "tensors without a GPU: pages of the mapped file"))
    found += [
        _exactly("KV cache", one.kv_bytes, "layers without a GPU, all slots")
        for one in result.devices
        if one.name == HOST and one.kv_bytes
    ]
    kept = "states of finished prompts, as they come: --cache-ram, 8,192 MiB by default"
    return (*found, HostLine("kept prompts", PROMPTS, 0, PROMPTS, MEMORY, kept))


def _weights(model: Model, settings: Settings, result: SizeResult) -> int:
    """Where more than the embedding lies there, whole layers or their experts."""
    if not any(result.settings.get(name) for name in ("layers_on_host", "expert_layers_on_host")):
        return 0
    return host_weights(model, settings, options_of(model, settings))


def _exactly(name: str, amount: int, source: str) -> HostLine:
    return HostLine(name, amount, amount, amount, MEMORY, source)
