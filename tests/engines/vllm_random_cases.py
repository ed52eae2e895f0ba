"""Settings of every kind drawn by chance, for random models: what a release is asked to find differences.

Most of an answer's figures are those of the defaults; a wrong rule shows where a few settings meet. Each draw
changes some of them, on any GPU of the stage, for a config of any lineage at little depth.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cache
from typing import Any

from kvplan.api import load_model, make_settings
from kvplan.errors import KvplanError
from kvplan.settings import Settings
from tests.engines.vllm_besides import DRAFTS
from tests.engines.vllm_card_cases import asked, plain
from tests.engines.vllm_cases import CONFIGS, GIB, Case, Config, Options, question
from tests.engines.vllm_compare import gpu_of, installed
from tests.engines.vllm_drafts import CONFIGS as PREDICTING
from tests.engines.vllm_drafts import LIKE, RESTORE
from tests.engines.vllm_release_cases import SIZELESS, card_configs, shallow, with_angles
from tests.engines.vllm_stage import CARDS
from tests.packaged import packaged_cards
from tests.recorded import config_names, config_of

MEMORY = (24, 24, 24, 24, 3, 1, 60, 140)
"""GiB of the cache, little enough at times that the model's own length does not fit."""
DEPTHS = (13, 13, 8, 24)
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
Entry = dict[str, Any]

TWO_DEPTHS = ("longcat_flash", "step3p5")
"""Configs that state two numbers of layers, of which each transformers believes another, or leave out the
length, which vLLM's own config class has a default for."""


@cache
def pool() -> dict[str, tuple[str, ...]]:
    """Names of configs by where they come from: every lineage that a card or a published config has."""
    return {
        "small": tuple(CONFIGS),
        "card": tuple(sorted(_cards())),
        "predicting": tuple(name for name in PREDICTING if name not in (*LIKE, *TWO_DEPTHS)),
        "published": config_names(),
    }


@cache
def _cards() -> dict[str, Config]:
    """Configs of the cards, where the keys that a card keeps are enough to say which layers it has."""
    found = {}
    for card in packaged_cards():
        if card.model.config:
            config = plain(card.model.config)
            with suppress(KvplanError):
                if load_model(config).layers() == card.model.layers():
                    found[card.slug] = config
    return found


def config_named(where: str, name: str, depth: int) -> Config:
    """A config as vLLM gets it: without remote code, cut to so many layers."""
    if where == "small":
        return CONFIGS[name]
    if where == "predicting":
        return PREDICTING[name]
    if where == "card" and name in card_configs():
        raw = card_configs()[name]
    else:
        raw = _cards()[name] if where == "card" else plain(config_of(name)[0])
    shared = "num_kv_shared_layers" in str(raw)  # a layer whose K and V another one reads must stay
    config = asked(raw) if shared else shallow(asked(raw), depth)
    config.pop("auto_map", None)
    return {**SIZELESS.get(str(config.get("model_type")), {}), **with_angles(config)}


def _drafts(draw: random.Random, where: str, name: str, config: Config) -> tuple[Options, str]:
    """How drafts are proposed: mostly not; by lookups, the model's own layers, a model beside it."""
    chance = draw.random()
    count = draw.choice((1, 2, 3, 5))
    own = where == "predicting" or any("nextn" in key or "mtp" in key for key in config)
    if own and chance < 0.6:
        return {"speculative_method": "mtp", "num_speculative_tokens": count}, ""
    if chance < 0.12:
        return {"speculative_method": "ngram", "num_speculative_tokens": count}, ""
    beside = [key for key, (target, _, _) in DRAFTS.items() if where == "small" and target is CONFIGS[name]]
    if beside and chance < 0.4:
        key = draw.choice(beside)
        method = DRAFTS[key][2].get("method", "draft_model")
        return {"speculative_method": method, "num_speculative_tokens": count}, key
    return {}, ""


def draw_case(draw: random.Random, gpus: tuple[str, ...]) -> Entry:
    """One draw as it is recorded: where its config comes from, the GPU, GiB, options, the draft beside it."""
    where = draw.choice(("small", "small", "card", "card", "card", "published", "published", "predicting"))
    name, depth = draw.choice(pool()[where]), draw.choice(DEPTHS)
    options: Options = {}
    for key, choices in CHANCES.items():
        if draw.random() < (0.06 if key in RARELY else 0.22):
            options[key] = draw.choice(choices)
    if "decode_context_parallel_size" in options:
        options["tensor_parallel_size"] = draw.choice((4, 8, 16))
    config = config_named(where, name, depth)
    if "expert" not in str(config) and draw.random() < 0.9:
        options.pop("enable_expert_parallel", None)
    drafts, draft = _drafts(draw, where, name, config)
    entry = {
        "config": f"{where}:{name}:{depth}",
        "gpu": draw.choice(gpus),
        "memory": draw.choice(MEMORY),
        "options": options | drafts,
    }
    return {**entry, "draft": draft} if draft else entry


def draws(release: str, seed: int, count: int) -> list[Entry]:
    """So many draws of a seed, grouped by GPU: four GPUs a seed, since each starts a process."""
    draw = random.Random(f"{release} {seed}")
    gpus = (*draw.sample(sorted(CARDS), 3), "h100")
    made = {str(entry): entry for entry in (draw_case(draw, gpus) for _ in range(count))}
    return sorted(made.values(), key=lambda entry: (entry["gpu"], str(entry)))


def config_of_draw(entry: Entry) -> Config:
    from tests.engines.vllm_random_wide import FORMATS

    where, name, depth, *form = entry["config"].split(":")
    config = config_named(where, name, int(depth))
    return {**config, "quantization_config": FORMATS[form[0]]} if form else config


def draft_beside(method: str, config: Config) -> Config | None:
    """A draft of two plain layers, or an EAGLE head of one, where the config states its widths."""
    text = config.get("text_config", config)
    hidden, vocab = text.get("hidden_size"), config.get("vocab_size") or text.get("vocab_size")
    if not isinstance(hidden, int) or not isinstance(vocab, int):
        return None
    draft: Config = {
        "architectures": ["LlamaForCausalLMEagle3" if method == "eagle3" else "LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": vocab,
        "hidden_size": 1024 if method == "draft_model" else hidden,
        "intermediate_size": 2048,
        "num_hidden_layers": 2 if method == "draft_model" else 1,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
    }
    return {**draft, "draft_vocab_size": vocab} if method == "eagle3" else draft


def draft_of(entry: Entry, config: Config) -> Config | None:
    """The config of the draft that a draw has beside its model."""
    key = entry.get("draft", "")
    if key.startswith("beside:"):
        return draft_beside(key.removeprefix("beside:"), config)
    return DRAFTS[key][1] if key else None


def case_of_draw(entry: Entry, config: Config) -> Case:
    """A draw as a case."""
    words = [f"{key}={value}" for key, value in entry["options"].items()]
    title = " ".join([entry["config"], f"gpu={entry['gpu']}", f"memory={entry['memory']}", *words])
    return Case(title, entry["gpu"], config, entry["memory"] * GIB, entry["options"])


def question_of_draw(entry: Entry, config: Config) -> dict[str, Any]:
    """The line that `vllm_ask` reads."""
    kind = str(config.get("model_type"))
    return {
        **question(case_of_draw(entry, config)),
        **({"draft": draft_of(entry, config)} if "draft" in entry else {}),
        **({"restore": RESTORE[kind]} if kind in RESTORE else {}),
    }


def settings_of_draw(entry: Entry, config: Config | None = None) -> Settings:
    """The draw as kvplan's settings."""
    beside = draft_of(entry, config_of_draw(entry) if config is None else config)
    draft = {} if beside is None else {"speculative_model": beside}
    memory = entry["memory"] * GIB
    given = {"kv_cache_memory": memory, **installed(entry["gpu"]), **entry["options"], **draft}
    return make_settings(gpu=gpu_of(entry["gpu"]), **given)
