"""Settings of every kind drawn by chance, for random models: what a release is asked to find differences.

Most of an answer's figures are those of the defaults; a wrong rule shows where a few settings meet. Each draw
changes some of them, on any GPU of the stage, for a config of any lineage at little depth.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from kvplan.files.cards.index import read_cards
from kvplan.files.datafiles import data_dir
from tests.engines.vllm_besides import DRAFTS
from tests.engines.vllm_card_cases import asked, plain
from tests.engines.vllm_cases import CONFIGS, GIB, Case, Config, Options, question
from tests.engines.vllm_drafts import CONFIGS as PREDICTING
from tests.engines.vllm_drafts import LIKE, RESTORE
from tests.engines.vllm_own_cases import OWN
from tests.engines.vllm_release_cases import SIZELESS, card_configs, shallow, with_angles
from tests.engines.vllm_stage import CARDS
from tests.recorded import config_names, config_of

MEMORY = (24, 24, 24, 24, 3, 1, 60, 140)
"""GiB of the cache, little enough at times that the model's own length does not fit."""
DEPTHS = (13, 13, 5, 8, 24)
CHANCES: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (2, 4, 8, 2, 4, 16),
    "pipeline_parallel_size": (2, 3, 4),
    "kv_cache_dtype": (
        "fp8", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16", "int8_per_token_head",
        "fp8_per_token_head", "int4_per_token_head", "nvfp4", "turboquant_k8v4", "fp8_ds_mla",
    ),
    "block_size": (16, 32, 48, 64, 80, 96, 128, 144, 256, 512, 1024),
    "max_model_len": (777, 1000, 2048, 4096, 8192, 16000),
    "max_num_seqs": (1, 7, 16, 64, 300, 2000),
    "max_num_batched_tokens": (1000, 2048, 5000, 16384, 40000),
    "enable_prefix_caching": (True, False),
    "disable_hybrid_kv_cache_manager": (True,),
    "usage": ("llm",),
    "dtype": ("float16", "float32", "bfloat16"),
    "mamba_ssm_cache_dtype": ("float32", "float16", "bfloat16"),
    "mamba_cache_dtype": ("float32", "bfloat16"),
    "enable_expert_parallel": (True,),
    "decode_context_parallel_size": (2, 4),
    "async_scheduling": (True, False),
    "num_gpu_blocks_override": (700, 5000),
    "language_model_only": (True,),
}  # fmt: skip
"""What may be changed, and to what."""
RARELY = (
    "num_gpu_blocks_override", "language_model_only", "decode_context_parallel_size", "mamba_cache_dtype",
    "mamba_ssm_cache_dtype", "disable_hybrid_kv_cache_manager",
)  # fmt: skip
LOOKUPS = ("ngram", "ngram", "suffix")


@cache
def pool() -> dict[str, tuple[Config, ...]]:
    """Names of configs by where they come from: every lineage that a card or a published config has."""
    kinds: dict[str, list[Config]] = {"small": [], "card": [], "predicting": [], "published": [], "own": []}
    kinds["small"] = [{"from": "small", "name": name} for name in CONFIGS]
    kinds["card"] = [
        {"from": "card", "name": card.slug}
        for card in read_cards(data_dir("model_cards"))
        if card.model.config
    ]
    kinds["predicting"] = [{"from": "predicting", "name": name} for name in PREDICTING if name not in LIKE]
    kinds["published"] = [{"from": "published", "name": name} for name in config_names()]
    kinds["own"] = [{"from": "own", "name": name} for name in OWN]
    return {kind: tuple(sorted(listed, key=str)) for kind, listed in kinds.items()}


@cache
def _cards() -> dict[str, Config]:
    return {
        card.slug: plain(card.model.config)
        for card in read_cards(data_dir("model_cards"))
        if card.model.config
    }


def config_named(where: str, name: str, depth: int) -> Config:
    """A config as vLLM gets it: without remote code, cut to so many layers."""
    if where == "small":
        return CONFIGS[name]
    if where == "own":
        return OWN[name]
    if where == "predicting":
        return PREDICTING[name]
    if where == "card" and name in card_configs():
        raw = card_configs()[name]
    else:
        raw = _cards()[name] if where == "card" else plain(config_of(name)[0])
    config = shallow(asked(raw), depth)
    config.pop("auto_map", None)
    return {**SIZELESS.get(str(config.get("model_type")), {}), **with_angles(config)}


def _drafts(draw: random.Random, where: str, name: str, config: Config) -> tuple[Options, Config | None]:
    """How drafts are proposed, where anything is drawn: lookups, the model's own layers, a model beside it."""
    chance = draw.random()
    count = draw.choice((1, 2, 3, 5))
    own = where == "predicting" or any("nextn" in key or "mtp" in key for key in config)
    if own and chance < 0.6:
        return {"speculative_method": "mtp", "num_speculative_tokens": count}, None
    if chance < 0.12:
        return {"speculative_method": draw.choice(LOOKUPS), "num_speculative_tokens": count}, None
    if where == "small" and chance < 0.3:
        found = [(draft, how) for target, draft, how in DRAFTS.values() if target is config]
        if found:
            draft, how = draw.choice(found)
            method = how.get("method", "draft_model")
            return {"speculative_method": method, "num_speculative_tokens": count}, draft
    return {}, None


def random_case(draw: random.Random, gpus: tuple[str, ...]) -> tuple[Case, Config | None]:
    """One draw: (the case, its draft model)."""
    where = draw.choice(("small", "small", "card", "card", "card", "published", "published", "predicting"))
    name = draw.choice(pool()[where])["name"]
    depth = draw.choice(DEPTHS)
    config = config_named(where, name, depth)
    options: Options = {}
    for key, choices in CHANCES.items():
        if draw.random() < (0.06 if key in RARELY else 0.22):
            options[key] = draw.choice(choices)
    if "decode_context_parallel_size" in options:
        options["tensor_parallel_size"] = draw.choice((4, 8, 16))
    drafts, draft = _drafts(draw, where, name, config)
    options |= drafts
    gpu, memory = draw.choice(gpus), draw.choice(MEMORY) * GIB
    words = [f"{key}={value}" for key, value in options.items()]
    title = " ".join([f"{where}:{name}", f"depth={depth}", f"gpu={gpu}", f"memory={memory // GIB}", *words])
    return Case(title, gpu, config, memory, options), draft


def random_cases(release: str, seed: int, count: int) -> Iterator[tuple[Case, Config | None]]:
    """So many draws of a seed, grouped by GPU: three GPUs a seed, since each starts a process."""
    draw = random.Random(f"{release} {seed}")
    gpus = tuple(draw.sample(sorted(CARDS), 3)) + ("h100",)
    made = {case.name: (case, draft) for case, draft in (random_case(draw, gpus) for _ in range(count))}
    yield from sorted(made.values(), key=lambda entry: (entry[0].gpu, entry[0].name))


def random_question(case: Case, draft: Config | None) -> dict[str, Any]:
    """The line that `vllm_ask` reads."""
    model_type = str(case.config.get("model_type"))
    return {
        **question(case),
        **({"draft": draft} if draft is not None else {}),
        **({"restore": RESTORE[model_type]} if model_type in RESTORE else {}),
    }
