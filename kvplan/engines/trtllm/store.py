"""The element formats of TensorRT-LLM's caches, and what a GPU takes (model_loader.py, _KV_CACHE_MAP)."""

from __future__ import annotations

from functools import lru_cache

from kvplan.dtypes import KV_DTYPES, KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.base import served_dtype
from kvplan.engines.kv_support import rows_of, unsupported, words_on
from kvplan.engines.traits import not_on
from kvplan.errors import KvplanError
from kvplan.families import Kind, Part, Storage
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import Serving

VERSION = "1.2"
ASSUMED_GPU, ASSUMED_CAPABILITY = "the assumed H100", (9, 0)
TOKENS_PER_BLOCK, FLASH_MLA = 32, 64
_HOPPER, _FLASH_WIDTH = (9, 0), 576
OLDEST = (8, 0)
"""NVIDIA/TensorRT-LLM docs/source/supported-hardware.md: Ampere, Ada, Hopper, Blackwell."""


def store_for(model: Model, settings: Serving) -> Storage:
    element = served_dtype(model, settings)
    return Storage(
        kv=_kv_dtype(model, settings, element),
        dtype=element,
        conv_state=element if settings.mamba_cache_dtype == "auto" else scalar(settings.mamba_cache_dtype),
        recurrent_state=element
        if settings.mamba_ssm_cache_dtype == "auto"
        else scalar(settings.mamba_ssm_cache_dtype),
        index_key=KV_DTYPES["fp8_per_token_head"],
    )


def tokens_per_block(model: Model, settings: Serving) -> int:
    """As asked, else 32; 64 whatever is asked where MLA runs on FlashMLA, on Hopper with latents as wide as
    DeepSeek's.

    _torch/pyexecutor/py_executor_creator.py (create_py_executor), _torch/model_config.py (enable_flash_mla).
    """
    capability = ASSUMED_CAPABILITY if settings.gpu is None else settings.gpu.compute_capability
    latents = {part.key_width for run in model.runs for part in run.layer.parts if part.kind is Kind.MLA}
    if capability == _HOPPER and latents == {_FLASH_WIDTH}:
        return FLASH_MLA
    return settings.block_size or TOKENS_PER_BLOCK


@lru_cache(maxsize=1024)
def part_store(store: Storage, part: Part, ssm: str = "auto") -> Storage:
    """A recurrent state is as asked, else as the config names it, else in the model's dtype."""
    word = part.state_dtype if ssm == "auto" else ssm
    return replace(store, recurrent_state=scalar(word)) if word else store


def _kv_dtype(model: Model, settings: Serving, element: Packing) -> KvDtype:
    """auto: what the checkpoint's quantisation says, else the model's dtype; else fp8 or nvfp4."""
    word = settings.kv_cache_dtype
    if word == "auto":
        scheme = model.kv_cache_scheme or ""
        found = kv_dtype(
            "fp8_e4m3" if scheme.startswith("fp8") else "nvfp4" if scheme == "nvfp4" else element.name
        )
    else:
        found = kv_dtype(word)
    gpu = settings.gpu
    capability = ASSUMED_CAPABILITY if gpu is None else gpu.compute_capability
    if capability is None or capability < OLDEST:
        assert gpu is not None
        why = f"TensorRT-LLM does not run on {gpu.name}"
        raise not_on(gpu, why, "choose an NVIDIA GPU, Ampere (compute capability 8.0) or newer")
    if found.name == element.name:
        return found
    name = ASSUMED_GPU if gpu is None else gpu.name
    none = unsupported("trtllm", "TensorRT-LLM", VERSION, found.name, name, "nvidia", capability)
    if none is not None:
        there = words_on("trtllm", VERSION, "nvidia", capability)
        other = "fp8" if "fp8_e4m3" in there else element.name
        known = ", ".join("fp8" if one == "fp8_e4m3" else one for one in there)
        never = not any(rows_of("trtllm", found.name))
        raise KvplanError(
            "unsupported-dtype",
            none.message,
            help=f"use {other}; known: {known}" if never else f"use {other}",
        )
    return found
