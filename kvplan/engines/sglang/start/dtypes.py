"""The element format of the cache: what ``auto`` means, and which pairs are refused.

sgl-project/sglang 0.5.23 mem_cache/kv_cache_dtype.py, arg_groups/kv_cache_hook.py, arg_groups/overrides.py
(_dsa_kv_cache_dtype_default, _dsa_split_backend_resolution).

Backends that read a 4-bit cache, and what it costs beside its numbers: 0.5.21 to 0.5.23
arg_groups/kv_cache_hook.py (handle_nvfp4_prefill_kv_dequant_dtype, handle_kv4_compatibility) and
layers/quantization/fp4_kv_cache_quant_method.py (NVFP4KVCacheMethod).
"""

from __future__ import annotations

from kvplan.dtypes import KV_DTYPES, KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.base import has_kind, served_dtype
from kvplan.engines.kv_support import unsupported
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.devices import Device, modelopt_algorithm
from kvplan.engines.sglang.start.models import known_of
from kvplan.engines.sglang.start.versions import Rules
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.settings import Serving

NVFP4_ROW = 9
"""A scale beside 8 bytes of numbers."""
_NATIVE, _COPIED = "trtllm_mha", "flashinfer"
"""Reads nvfp4 as it lies; reads an fp8 copy of a layer."""

VERSION = "0.5.23"
FP4 = ("nvfp4", "fp4_mx_block16")


def cache_dtype(model: Model, settings: Serving, device: Device, dtype: Packing) -> KvDtype:
    """As asked; ``auto`` is the model's dtype, but for checkpoints with FP8 scales and for DeepSeek."""
    word = settings.kv_cache_dtype
    if word == "auto":
        return kv_dtype(_automatic(model, device, dtype))
    found = kv_dtype(word)
    vendor = "nvidia" if device.nvidia else "amd"
    none = unsupported("sglang", "SGLang", VERSION, found.name, device.name, vendor, device.capability)
    if none is not None and found.name != dtype.name:
        ways = ("use fp8_e4m3", *none.help)
        if found.name == "nvfp4" and device.nvidia:
            ways = ("use fp8_e4m3", "use fp4_mx_block16 with --attention-backend triton")
        raise KvplanError("unsupported-dtype", none.message, help=ways)
    if has_kind(model, Kind.COMPRESSED) and device.nvidia and found.name != "fp8_e4m3":
        # mem_cache/deepseek_v4_memory_pool.py: the rows of its pools are records of fp8, whatever is asked.
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang keeps DeepSeek-V4's cache in fp8_e4m3, not in {word}",
            help="use fp8_e4m3",
        )
    sparse = has_kind(model, Kind.COMPRESSED) or is_sparse_latent(model)
    if sparse and found.name not in ("bfloat16", "fp8_e4m3"):
        raise KvplanError(
            "unsupported-dtype",
            f"DeepSeek's sparse attention in SGLang takes bfloat16 or fp8_e4m3, not {word}",
            help="use fp8_e4m3",
        )
    return found


def _automatic(model: Model, device: Device, dtype: Packing) -> str:
    if has_kind(model, Kind.COMPRESSED):
        return "fp8_e4m3"
    if is_sparse_latent(model):
        return "fp8_e4m3" if device.nvidia and device.major >= 10 else "bfloat16"
    if known_of(model).kv_dtype:
        return known_of(model).kv_dtype
    if facts_of(model).fp8:
        return "fp8_e4m3"
    return dtype.name


def hears_scheme(model: Model, rules: Rules) -> bool:
    """Whether the release makes ``auto`` an fp8 cache where the checkpoint says so."""
    builds = (model.quantization or "").startswith("compressed") and not has_kind(model, Kind.COMPRESSED)
    mixed = modelopt_algorithm(model) == "MIXED_PRECISION" and facts_of(model).fp8_beside
    heard = (rules.scheme_of_builds or not builds) and (rules.scheme_of_mixed or not mixed)
    return rules.scaled_cache and heard


def check_format(kv: KvDtype, rules: Rules, version: str) -> None:
    """Formats in blocks came with 0.5.16 (mem_cache/kv_cache_dtype.py); before, fp4_e2m1 was the only one."""
    if kv.name in (*FP4, "mxfp8") and not rules.block_formats:
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang {version} has no cache dtype {kv.name}",
            help=("use fp8_e4m3", "use engine sglang@0.5.16"),
        )


def is_sparse_latent(model: Model) -> bool:
    return has_kind(model, Kind.INDEXER) and has_kind(model, Kind.MLA)


def latent_dtype(model: Model, kv: KvDtype, device: Device, options: SglangOptions) -> KvDtype:
    """How sparse MLA stores fp8: 656 B with scales, or raw rows of 576 B for trtllm and tilelang."""
    if kv.name != "fp8_e4m3" or not is_sparse_latent(model):
        return kv
    default = "trtllm" if device.major >= 10 else "flashmla_kv"
    if not device.nvidia:
        default = "triton"
    elif device.major == 12 and model.model_type == "glm_moe_dsa":
        default = "flashinfer_sparse_mla"
    prefill = options.dsa_prefill_backend or default
    decode = options.dsa_decode_backend or default
    raw = "trtllm" in (prefill, decode) or prefill == decode == "tilelang" or not device.nvidia
    return kv if raw else KV_DTYPES["fp8_ds_mla"]


def index_dtype(model: Model, kv: KvDtype, device: Device, backend: str, dtype: Packing) -> KvDtype:
    """Index keys: fp8 with a scale (132 B); MiniMax-M3's in the model's dtype, fp8 where its kernels are."""
    if has_kind(model, Kind.MLA) or has_kind(model, Kind.COMPRESSED):
        return KV_DTYPES["fp8_per_token_head"]
    fp8 = kv.name == "fp8_e4m3" and (device.major == 9 or (device.major == 10 and backend == "trtllm_mha"))
    return kv if fp8 else kv_dtype(dtype.name)


def model_dtype(model: Model, settings: Serving) -> Packing:
    """As asked; else the checkpoint's; float32 and unstated ones in float16, Gemma's in bfloat16."""
    known = known_of(model)
    fixed = known.dtype or (known.mxfp4_dtype if model.quantization == "mxfp4" else "")
    if fixed:
        return scalar(fixed)
    if settings.dtype != "auto":
        return scalar(settings.dtype)
    stated = model.dtype or "float32"
    if stated.startswith("float8") or scalar(stated).name != "float32":
        return served_dtype(model, settings)
    # gpt-oss in mxfp4 is always computed in bf16 (arg_groups/model_overrides/gpt_oss.py).
    kept = model.model_type.startswith("gemma") or model.quantization == "mxfp4"
    return scalar("bfloat16" if kept else "float16")


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
