"""Which backends read a 4-bit cache, and what it costs beside its numbers.

sgl-project/sglang 0.5.21 to 0.5.23 arg_groups/kv_cache_hook.py (handle_nvfp4_prefill_kv_dequant_dtype,
handle_kv4_compatibility) and layers/quantization/fp4_kv_cache_quant_method.py (NVFP4KVCacheMethod).
"""

from __future__ import annotations

from kvplan.dtypes import KvDtype
from kvplan.engines.base import has_kind
from kvplan.engines.sglang.devices import Device
from kvplan.engines.sglang.dtypes import FP4
from kvplan.engines.sglang.versions import Rules
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model

NVFP4_ROW = 9
"""A scale beside 8 bytes of numbers."""
_NATIVE, _COPIED = "trtllm_mha", "flashinfer"
"""Reads nvfp4 as it lies; reads an fp8 copy of a layer."""


def nvfp4_backends(device: Device, named: str | None) -> tuple[str, str]:
    """(prefill, decode) of an nvfp4 cache. named: what was asked for, or what the class's own rule names: a
    prefill that does not read the cache is refused, whoever named it."""
    sm100 = device.major == 10
    if named is None:
        return (_NATIVE if sm100 else _COPIED), _NATIVE
    if named == _COPIED or (named == _NATIVE and sm100):
        return named, _NATIVE
    raise KvplanError(
        "unsupported-dtype",
        f"SGLang's nvfp4 cache does not go with the attention backend {named} ({device.name})",
        help=("use fp8_e4m3", f"--attention-backend {_NATIVE if sm100 else _COPIED}"),
    )


def check_fp4(model: Model, kv: KvDtype, backend: str, decode: str, device: Device) -> None:
    """Refuses backends that do not read a 4-bit cache; a pair of two backends is not held to it."""
    if kv.name not in FP4 or backend != decode:
        return
    able = (
        (_COPIED, "trtllm_mla")
        if has_kind(model, Kind.MLA)
        else ("triton", "torch_native", "flex_attention", _NATIVE)
    )
    if backend not in able:
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang's {kv.name} cache does not go with the attention backend {backend} ({device.name})",
            help=(f"--attention-backend {able[0]}", "use fp8_e4m3"),
        )


def copies_layers(kv: KvDtype, backend: str, rules: Rules) -> bool:
    """Whether every token pays for an fp8 copy of one layer that prefill reads: until 0.5.20 of any 4-bit
    cache (pool_configurator.py, _compute_cell_size), from 0.5.21 on where prefill makes one."""
    if not rules.nvfp4_pairs:
        return kv.name in FP4
    return kv.name == "nvfp4" and backend == _COPIED


def keeps_scales_twice(kv: KvDtype, backend: str, device: Device, rules: Rules) -> bool:
    """On SM100 a cache that prefill copies and decode reads as it lies has its scales in both orders."""
    return rules.nvfp4_pairs and copies_layers(kv, backend, rules) and device.major == 10
