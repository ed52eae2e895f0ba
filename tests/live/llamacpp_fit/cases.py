"""The settings that llama.cpp's fitting is asked about: models, GPUs, contexts, slots, caches, margins.

A setting is a dict of the words that program.cpp reads; which ones a model is asked with follows from its
name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

from kvplan.units import GIB, MIB

Q8_0 = 8
"""ggml_type."""
BUILDS: dict[str, str] = {
    "Qwen__Qwen3-32B": "q4_k_m", "Qwen__Qwen3-14B": "q4_k_m", "Qwen__Qwen2.5-7B-Instruct": "q4_k_m",
    "meta-llama__Llama-3.1-8B-Instruct": "q4_k_m", "meta-llama__Llama-3.3-70B-Instruct": "q4_k_m",
    "mistralai__Mistral-Small-24B-Instruct-2501": "q5_k_m", "microsoft__phi-4": "q4_k_m",
    "microsoft__Phi-3.5-mini-instruct": "q8_0", "google__gemma-2-27b-it": "q4_k_m",
    "google__gemma-3-12b-it": "q4_k_m", "google__gemma-3-27b-it": "q4_k_m",
    "CohereForAI__c4ai-command-r7b-12-2024": "q4_k_m", "Qwen__Qwen3-30B-A3B": "q4_k_m",
    "Qwen__Qwen3-235B-A22B": "q3_k_m", "openai__gpt-oss-20b": "mxfp4_moe",
    "openai__gpt-oss-120b": "mxfp4_moe",
    "mistralai__Mixtral-8x7B-Instruct-v0.1": "q4_k_m", "zai-org__GLM-4.5-Air": "q4_k_m",
    "MiniMaxAI__MiniMax-M2": "q4_k_m", "rednote-hilab__dots.llm1.base": "q4_k_m",
    "Qwen__Qwen3.5-27B": "q4_k_m", "Qwen__Qwen3.6-35B-A3B": "q4_k_m",
    "Qwen__Qwen3-Next-80B-A3B-Thinking": "q4_k_m", "LiquidAI__LFM2-1.2B": "f16",
    "ibm-granite__granite-4.0-h-small": "q4_k_m", "ibm-ai-platform__Bamba-9B-v1": "q4_k_m",
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "q4_k_m", "deepseek-ai__DeepSeek-V2-Lite": "q4_k_m",
    "deepseek-ai__DeepSeek-V3": "q4_k_m", "zai-org__GLM-4.7-Flash": "q4_k_m",
}  # fmt: skip
"""Published config → the build of which a file is made."""
EACH = 8
"""Settings that a model is asked with."""


def cases(sizes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Every setting, by models' names. sizes: bytes of the models' files."""
    for name, size in sizes.items():
        for number in range(EACH):
            random = Random(zlib.crc32(f"{name} {number}".encode()))
            yield {"name": f"{name}|{number}", **_setting(random, size)}


def _setting(random: Random, size: int) -> dict[str, Any]:
    """GPUs that hold from a third of the file to all of it, and what a user may say."""
    gpus = random.choice([1, 1, 2, 2, 3, 4])
    amount = int(size * random.choice([0.3, 0.5, 0.8, 1.0, 1.15, 1.4])) + gpus * 8 * GIB // 5
    parts = [random.choice([1, 1, 2, 3]) for _ in range(gpus)]
    free = [max(9 * GIB // 5, amount * part // sum(parts)) // MIB * MIB for part in parts]
    found: dict[str, Any] = {"free": free}
    if random.random() < 0.5:
        found["n_ctx"] = random.choice([4096, 8192, 16_384, 32_768, 65_536])
    if random.random() < 0.5:
        found |= {"slots": 4, "unified": 1}
    elif random.random() < 0.3:
        found["slots"] = random.choice([2, 4])
    if random.random() < 0.25:
        found["n_ubatch"] = random.choice([256, 1024, 2048])
    if random.random() < 0.25:
        found |= {"type_k": Q8_0, "type_v": Q8_0}
    if random.random() < 0.2:
        found["margins"] = [random.choice([256, 512, 2048]) * MIB] * gpus
    if random.random() < 0.1 and "type_k" not in found:
        found["flash"] = 0
    return found


def line(case: dict[str, Any], path: str) -> str:
    """The setting as a line for program.cpp."""
    words = {"path": path, **case}
    return " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in words.items()
    )
