"""Random questions about deployments, as somebody might type them."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.results import SizeResult

MODELS = (
    "llama-3.1-8b qwen3-32b qwen3-8b gemma-3-27b gemma-3-12b gemma-2-9b gpt-oss-20b gpt-oss-120b "
    "deepseek-v2-lite deepseek-v3 deepseek-v3.2 deepseek-v4-flash qwen3-next-80b-a3b nemotron-nano-9b-v2 "
    "qwen3-30b-a3b mistral-7b-v0.1 falcon-h1-7b llama-3.3-70b llama-4-scout kimi-linear-48b-a3b "
    "granite-4.0-h-tiny mixtral-8x7b phi-4 lfm2-1.2b jamba-1.5-mini command-r7b gemma-4-31b qwen3.5-27b "
    "olmo-3-7b minimax-m2 glm-4.5-air recurrentgemma-2b gpt2 smollm2-135m mimo-v2-flash qwen2.5-vl-7b"
).split()
BUILT = (
    "llama-3.1-8b qwen3-32b qwen3-8b gemma-3-12b gpt-oss-20b qwen3-30b-a3b mistral-7b-v0.1 llama-3.3-70b "
    "mixtral-8x7b phi-4 gemma-3-27b granite-4.0-h-tiny falcon-h1-7b deepseek-v2-lite lfm2-1.2b"
).split()
"""Models that people run as GGUF builds."""
ENGINES = (
    "vllm vllm vllm@0.33 vllm@0.32 vllm@0.27 vllm@0.19 vllm@0.14 vllm@0.11 vllm@0.9 "
    "sglang sglang sglang@0.5.12 sglang@0.4.10 trtllm trtllm llamacpp llamacpp tgi"
).split()
GPUS = (
    "h100 h200 a100-sxm-80gb l40s b200 mi300x rtx-4090 rtx-3090 a10g l4 rtx-5090 h20-96gb "
    "rtx-pro-6000-blackwell-96gb"
).split()
SMALL_GPUS = "rtx-4090 rtx-3090 rtx-3060-12gb h100 l40s rtx-5090 rtx-4060-ti-16gb a10g m3-max-128gb".split()
_CACHES = {"vllm": ("fp8", "fp8_e5m2"), "sglang": ("fp8_e4m3", "fp8_e5m2"), "trtllm": ("fp8",),
           "llamacpp": ("q8_0", "q4_0"), "tgi": ("fp8_e4m3fn",)}  # fmt: skip
_SHARES = {
    "vllm": "gpu_memory_utilization",
    "sglang": "mem_fraction_static",
    "trtllm": "free_gpu_memory_fraction",
}
_BUILDS = ("q4_k_m", "q4_k_m", "q8_0", "q5_k_m", "q3_k_m", "iq4_xs")
_LENGTHS = (1, 100, 512, 1000, 2048, 4096, 6000, 8192, 16384, 20000, 32768, 65536, 131072)
_NUMBERS = (1, 1, 1, 2, 4, 8, 16, 32, 60, 100, 250)


class Asked(NamedTuple):
    """One question. options: keywords of ``kvplan.size``, which are long flags of the command line."""

    model: str
    engine: str
    options: Mapping[str, Any]

    @property
    def words(self) -> list[str]:
        """The words after ``kvplan size``."""
        return [self.model, *self.flags()]

    def flags(self, *, but: tuple[str, ...] = ()) -> list[str]:
        """Engine and options as flags. but: options that are left out."""
        words = ["--engine", self.engine]
        for name, value in self.options.items():
            if name not in but:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return words

    def __str__(self) -> str:
        return shlex.join(["kvplan", "size", *self.words])

    def asking(self, **options: Any) -> Asked:
        """The question with other options; None takes one away."""
        changed = {**self.options, **options}
        return self._replace(options={name: value for name, value in changed.items() if value is not None})


def question(chance: random.Random, others: Sequence[str] = ()) -> Asked:
    """One question: most can be answered, some are refused. others: models that half of the questions ask of,
    where there are any."""
    engine = chance.choice(ENGINES)
    name = engine.partition("@")[0]
    llama = name == "llamacpp"
    known = others if others and chance.random() < 0.5 else BUILT if llama else MODELS
    model = chance.choice(known)
    kind = chance.choice(SMALL_GPUS if llama else GPUS)
    options: dict[str, Any] = {}
    if llama:
        options["quantization"] = chance.choice(_BUILDS)
        count = chance.choice((1, 1, 1, 2))
    else:
        tensor = chance.choice((None, 1, 1, 2, 2, 4, 8))
        stages = chance.choice((1, 1, 1, 1, 2)) if name in ("vllm", "trtllm") else 1
        data = chance.choice((1, 1, 1, 1, 2)) if name == "vllm" else 1
        each = (tensor or 1) * stages * data
        count = each * chance.choice((1, 1, 1, 2, 3)) + chance.choice((0, 0, 0, 0, 1))
        options |= {"tensor_parallel_size": tensor} if tensor else {}
        options |= {"pipeline_parallel_size": stages} if stages > 1 else {}
        options |= {"data_parallel_size": data} if data > 1 else {}
    options["gpu"] = kind if count == 1 and chance.random() < 0.5 else f"{count}x{kind}"
    if name != "tgi" and chance.random() < 0.25:
        options["kv_cache_dtype"] = chance.choice(_CACHES[name])
    if name in _SHARES and chance.random() < 0.2:
        options[_SHARES[name]] = chance.choice((0.8, 0.85, 0.95))
    if name != "llamacpp" and chance.random() < 0.3:
        options["max_num_seqs"] = chance.choice((1, 7, 32, 64, 300))
    if name in ("vllm", "trtllm") and chance.random() < 0.1:
        options["max_num_batched_tokens"] = chance.choice((2048, 16384))
    options["tokens"] = chance.choice(_LENGTHS)
    options["requests"] = chance.choice(_NUMBERS)
    if not llama and chance.random() < 0.35:
        options["max_model_len"] = max(options["tokens"], chance.choice((4096, 8192, 32768)))
    return Asked(model, engine, options)


def at_the_edge(asked: Asked, told: SizeResult, chance: random.Random) -> Asked:
    """The question with about as many requests as are held, where that is known."""
    capacity = told.capacity
    if capacity is None or not capacity.requests:
        return asked
    few, many = sorted((capacity.safe_requests, capacity.requests))
    number = chance.choice((few, few + 1, (few + many) // 2, many, many + 1, many * 11 // 10 + 1))
    return asked.asking(requests=max(1, number))


def questions(seed: int, count: int, others: Sequence[str] = ()) -> Iterator[Asked]:
    """So many questions; the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield question(chance, others)
