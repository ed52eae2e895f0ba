"""The cases that say which attention backend runs where: AMD's GPUs, and NVIDIA's with FlashInfer installed.

The cards of the stage that have FlashInfer (`vllm_stage.WITH_FLASHINFER`) are those whose answers need it:
8.0, 8.6, 7.x (which has to do without) and 12.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.engines.vllm_cases import CONFIGS, Case, Options
from tests.engines.vllm_release_cases import case_of

RELEASES = ("0.20.2", "0.24.0", "0.28.0", "0.33.0")
"""Before and after each change of AMD's priorities and of the backends' own rows."""
AMD: tuple[Options, ...] = (
    {},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "fp8_e5m2", "tensor_parallel_size": 2},
    {"max_model_len": 4096, "block_size": 64},
)
NVIDIA: tuple[Options, ...] = (
    {},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "fp8_e5m2", "block_size": 32},
)
SHAPES = ("llama", "gpt-oss", "deepseek-v3", "deepseek-v32", "qwen3-next", "mimo-v2", "whisper", "llama-mha")
FLASHINFER = ("a100-flashinfer", "rtx-3090", "t4", "v100", "rtx-pro-6000")
FP8_ONLY = ("mistral-window", "gemma3", "nemotron-h", "cohere2")
"""Shapes whose windows or states make another block size of another kernel: asked where only one runs."""


def backend_cases() -> Iterator[Case]:
    """Every case, grouped by GPU."""
    for gpu in ("mi300x", "mi355x"):
        for name, config in CONFIGS.items():
            for options in AMD if gpu == "mi300x" else AMD[:1]:
                yield case_of(name, gpu, config, options)
    for gpu in FLASHINFER:
        for name in SHAPES:
            for options in NVIDIA:
                yield case_of(name, gpu, CONFIGS[name], options)
        if gpu in ("a100-flashinfer", "rtx-3090"):
            for name in FP8_ONLY:
                yield case_of(name, gpu, CONFIGS[name], {"kv_cache_dtype": "fp8"})
