"""Defaults that depend on the GPU, the usage and the model: element type, lengths, batch sizes.

vllm-project/vllm 0.32: vllm/engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_
batched_tokens_args), vllm/config/model.py (_resolve_auto_dtype, _get_and_verify_max_len).
"""

from __future__ import annotations

import re

from kvplan.dtypes import SCALARS, Packing, scalar
from kvplan.engines.traits import not_on
from kvplan.engines.vllm.options import THROUGHPUT, VllmOptions
from kvplan.engines.vllm.versions import Rules
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Layout
from kvplan.units import GIB

# Numerically unstable in float16 (vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS).
NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
NO_LENGTH_DEFAULT = 2048
"""max_model_len where the config states none."""


@record()
class Device:
    """Facts of a GPU that the rules need; ``assumed`` where the user named none. memory_bytes: as the engine
    is told when it chooses its batch, 0 where it is not. target: AMD's name of what it runs code for
    (gfx942), from which vLLM derives a capability."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]
    vendor: str = "nvidia"
    assumed: bool = False
    target: str = ""

    @property
    def major(self) -> int:
        return self.capability[0]


ASSUMED = Device("h100-sxm-80gb", 79 * GIB, (9, 0), assumed=True)
_CUDA_LIKE = ("nvidia", "amd")
OLDEST = (7, 0)
"""vllm-project/vllm CMakeLists.txt, CUDA_SUPPORTED_ARCHS (7.5 in wheels for CUDA 13)."""
_GFX = regex(r"gfx(\d{1,2})([0-9a-f])[0-9a-f]", re.ASCII)


def rocm_capability(target: str) -> tuple[int, int] | None:
    """(9, 4) of gfx942, (11, 5) of gfx1151: vllm/platforms/rocm.py, _capability_from_gcn_arch."""
    named = _GFX.fullmatch(target)
    return None if named is None else (int(named[1]), int(named[2], 16))


def device_of(gpu: Gpu | None) -> Device:
    """The GPU's facts; without one an H100's. Raises KvplanError(engine-gpu) for other accelerators, and
    for those that its kernels are not built for."""
    if gpu is None:
        return ASSUMED
    if gpu.vendor.lower() not in _CUDA_LIKE:
        why = f"the cache rules of vLLM on {gpu.name} ({gpu.vendor}) are not known"
        raise not_on(gpu, why, "choose an NVIDIA or AMD GPU")
    if gpu.compute_capability is not None and gpu.compute_capability < OLDEST:
        raise KvplanError(
            "engine-gpu",
            f"vLLM's kernels need compute capability 7.0 or newer: {gpu.name} has"
            f" {'.'.join(map(str, gpu.compute_capability))}",
            help=("choose a newer GPU", "--engine llamacpp"),
        )
    memory = gpu.memory_stated_bytes
    if gpu.is_unified_memory and gpu.memory_nvml_bytes is None:
        # NVML is asked and does not tell: get_batch_defaults takes the small row.
        memory = 0
    target = gpu.device_target or ""
    capability = gpu.compute_capability or rocm_capability(target) or (9, 0)
    return Device(gpu.name, memory, capability, gpu.vendor.lower(), target=target)


def model_dtype(model: Model, settings: Layout, device: Device, *, pooling: bool) -> Packing:
    """As asked; else the checkpoint's; float32 and unstated ones in the GPU's preferred 16-bit type."""
    if settings.dtype != "auto":
        return scalar(settings.dtype)
    supported = ["bfloat16", "float16", "float32"] if device.capability >= (8, 0) else ["float16", "float32"]
    if model.model_type in NO_FLOAT16:
        supported.remove("float16")
    preferred = "float16" if pooling and "float16" in supported else supported[0]
    stated = scalar(model.dtype).name if model.dtype and not model.dtype.startswith("float8") else "float32"
    if stated == "float32":
        stated = preferred
    return SCALARS[stated if stated in supported else preferred]


@record()
class Lengths:
    """max_model_len in force, and the longest that the config allows (None: any)."""

    max_model_len: int
    longest: int | None


def lengths_of(model: Model, settings: Layout, rules: Rules) -> Lengths:
    """As given; else the length derived from the config.

    Facts: serving_model_len (the default: rope scaling applied, the original length for longrope) and
    serving_longest_model_len, where they differ from the model's own length; 0 means that no key states one;
    serving_yarn_model_len, both before 0.30 where a YaRN factor stretches another length.
    """
    longest = _fact(model, "serving_longest_model_len")
    if longest is None:
        longest = model.max_model_len
    own = _fact(model, "serving_model_len")
    if own is None:
        own = model.max_model_len
    if (
        model.model_type == "kimi_linear"
        and not rules.own_kimi_length
        and own == _fact(model, "serving_model_len")
    ):
        own, longest = None, None
    if not rules.short_longrope and own and longest and own < longest:
        own = longest
    stretched = None if rules.scaled_yarn else _fact(model, "serving_yarn_model_len")
    if stretched is not None:
        own, longest = stretched, max(stretched, longest or 0)
    said = VllmOptions.of(settings)
    if said.config_length is not None:
        own = longest = said.config_length
    if said.any_length:
        longest = None
    return Lengths(settings.max_model_len or own or NO_LENGTH_DEFAULT, longest or None)


def _fact(model: Model, name: str) -> int | None:
    value = model.facts.get(name)
    return value if isinstance(value, int) else None


@record()
class Batch:
    """max_num_batched_tokens and max_num_seqs."""

    tokens: int
    seqs: int


def batch_of(
    settings: Layout,
    device: Device,
    rules: Rules,
    max_model_len: int,
    *,
    chunked_prefill: bool,
    floor: int = 0,
) -> Batch:
    """The user's numbers, else the row of the GPU, bounded by what max_num_seqs requests can fill.

    floor: tokens of one item (a video) that must be scheduled whole.
    """
    tokens, seqs = batch_row(settings, device, rules)
    given = settings.max_num_seqs
    own_seqs = seqs if given is None else given
    if settings.max_num_batched_tokens is not None:
        tokens = settings.max_num_batched_tokens
    else:
        if not chunked_prefill:
            tokens = max(tokens, max_model_len)
        tokens = max(tokens, floor)
        tokens = min(tokens, own_seqs * max_model_len)
    return Batch(tokens, own_seqs if given is not None else min(own_seqs, tokens))


def batch_row(settings: Layout, device: Device, rules: Rules) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by memory size; an A100 counts as a small GPU. Twice as many of
    both in performance mode ``throughput``."""
    tokens, seqs = _row(settings.usage == "llm", device, rules)
    doubled = rules.performance_modes and _mode(settings) == THROUGHPUT
    return (2 * tokens, 2 * seqs) if doubled else (tokens, seqs)


def _mode(settings: Layout) -> str:
    return VllmOptions.of(settings).performance_mode


def _row(offline: bool, device: Device, rules: Rules) -> tuple[int, int]:
    if rules.large_gpu_row and device.memory_bytes >= 160 * GIB:
        return 16384, 1024
    if device.memory_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return (16384 if offline else 8192), 1024
    return (8192 if offline else 2048), 256
