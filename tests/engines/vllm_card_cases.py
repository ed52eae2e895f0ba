"""Every card's model asked of vLLM: released shapes at full depth, one turn of the settings each.

The config is the card's own, without its quantisation (vLLM's planner does not look at it, its parameters
would be other ones). Which GPU and settings a card is asked with follows from its slug.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.architectures.config.view import split_quant, unquantised
from kvplan.model import Model
from tests.engines.vllm_cases import GIB, Case, Options
from tests.packaged import packaged_cards

GPUS = ("h100", "a100", "l40s", "b200")
MEMORY = 24 * GIB
TURNS: tuple[Options, ...] = (
    {},
    {"tensor_parallel_size": 2},
    {"tensor_parallel_size": 4, "max_model_len": 32768},
    {"tensor_parallel_size": 8, "max_model_len": 4096},
    {"max_model_len": 8192, "enable_prefix_caching": False},
    {"pipeline_parallel_size": 2, "max_model_len": 16384},
    {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": 8192},
    {"tensor_parallel_size": 4, "block_size": 32, "max_model_len": 2048, "usage": "llm"},
    {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_model_len": 4096},
    {"tensor_parallel_size": 8, "max_num_seqs": 64, "max_num_batched_tokens": 4096},
    {"tensor_parallel_size": 16, "max_model_len": 8192},
)
"""Eleven: a number that shares no factor with the four GPUs."""


SIZELESS = {
    "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0, "hc_eps": 1e-6, "layernorm_epsilon": 1e-5, "norm_eps": 1e-5,
    "rms_norm_eps": 1e-6, "layer_norm_epsilon": 1e-5, "original_rope": True, "block_dim": 2048,
}  # fmt: skip
"""Keys that a class of vLLM wants to read, and that a card leaves out because no size depends on them."""


def asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as vLLM gets it, in its parts too."""
    parts = {key: asked(value) for key, value in config.items() if key == "text_config"}
    return {**SIZELESS, **config, **parts}


def plain(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and dictionaries only, as JSON has them, without the quantisation."""
    config, _ = split_quant(raw)
    made: dict[str, Any] = json.loads(json.dumps(unquantised(config)))
    return made


def fitting(options: Options, model: Model) -> Options:
    """The settings with a length that the model has, and ranks that its heads can be divided over."""
    made = dict(options)
    if "max_model_len" in made and model.max_model_len:
        made["max_model_len"] = min(made["max_model_len"], model.max_model_len)
    ranks, heads = made.get("tensor_parallel_size", 1), model.num_attention_heads or 1
    while heads % ranks:
        ranks //= 2
    return made if ranks == made.get("tensor_parallel_size", 1) else {**made, "tensor_parallel_size": ranks}


def card_cases() -> Iterator[Case]:
    """One case a card that carries a config, grouped by GPU."""
    made = []
    for card in packaged_cards():
        if not card.model.config:
            continue
        number = zlib.crc32(card.slug.encode())
        gpu, options = GPUS[number % len(GPUS)], TURNS[number % len(TURNS)]
        made.append(Case(card.slug, gpu, plain(card.model.config), MEMORY, fitting(options, card.model)))
    yield from sorted(made, key=lambda case: (GPUS.index(case.gpu), case.name))
