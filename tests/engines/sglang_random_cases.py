"""Settings of every kind drawn by chance for published configs and cards, for SGLang to be asked.

Most of an answer's figures are those of the defaults; a wrong rule shows where a few settings meet. A draw
says where its config comes from, the GPU, the bytes left for the cache, SGLang's own arguments, the draft
beside it.
"""

from __future__ import annotations

import json
import random
from functools import cache, lru_cache
from typing import Any

from kvplan.api import load_model
from kvplan.architectures.config.read import read_config
from kvplan.engines.base import parse_version
from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.sglang_cases import GIB, _plain, completed
from tests.engines.sglang_compare import differences, ours, recorded
from tests.packaged import packaged_cards
from tests.recorded import model_of, record

Entry = dict[str, Any]
GPUS = (
    *("h100", "h100", "h200", "b200", "b200", "a100", "l40s", "l4", "rtx5090", "pro6000", "rtx4090", "b300"),
    *("h20", "gb200", "a100_40", "a10", "t4", "rtx3060", "thor", "gb10"),
    *("mi300x", "mi355x"),
)
MEMORY = {
    "h100": (40, 20, 33, 8, 60), "h200": (60, 90, 25, 110), "b200": (100, 50, 140, 30), "a100": (12, 40, 60),
    "l40s": (9, 20, 30), "l4": (3, 8, 14), "rtx5090": (4, 11, 19), "pro6000": (10, 35, 60),
    "rtx4090": (2, 7, 13), "b300": (60, 130, 200), "h20": (15, 45, 70), "gb200": (40, 110),
    "a100_40": (6, 17, 25), "a10": (3, 9), "t4": (2, 6), "rtx3060": (1, 4), "thor": (20, 60),
    "gb10": (15, 70), "mi300x": (60, 25, 120), "mi355x": (90, 200),
}  # fmt: skip
"""GiB left for the cache."""
CHANCES: dict[str, tuple[Any, ...]] = {
    "tp_size": (2, 4, 8, 8, 4, 16),
    "kv_cache_dtype": ("fp8_e4m3", "fp8_e4m3", "fp8_e5m2", "bfloat16", "nvfp4", "fp4_mx_block16"),
    "page_size": (1, 16, 32, 64, 128, 256),
    "context_length": (1000, 2048, 4096, 8192, 16000),
    "max_running_requests": (1, 3, 16, 40, 64, 200, 500, 3000),
    "chunked_prefill_size": (1024, 2048, 4096, 16384, -1),
    "max_total_tokens": (5000, 50_001, 400_000),
    "disable_radix_cache": (True,),
    "disable_overlap_schedule": (True,),
    "disable_hybrid_swa_memory": (True,),
    "disable_cuda_graph": (True,),
    "mem_fraction_static": (0.6, 0.8, 0.91),
    "swa_full_tokens_ratio": (0.1, 0.25, 0.5, 1.0),
    "mamba_full_memory_ratio": (0.1, 0.5, 2.0),
    "mamba_radix_cache_strategy": ("extra_buffer", "no_buffer", "extra_buffer_lazy"),
    "mamba_ssm_dtype": ("float32", "bfloat16"),
    "max_mamba_cache_size": (20, 200),
    "dtype": ("bfloat16", "float16"),
    "attention_backend": ("triton", "flashinfer", "fa3", "trtllm_mha", "flashmla", "fa4"),
    "moe_a2a_backend": ("deepep",),
    "dcp_size": (2, 4),
    "dsa_prefill_backend": ("flashmla_sparse", "tilelang", "trtllm"),
    "dsa_decode_backend": ("flashmla_kv", "tilelang", "trtllm"),
    "max_prefill_tokens": (4096, 32_768),
    "enable_mixed_chunk": (True,),
    "enable_hierarchical_cache": (True,),
    "pp_size": (2, 4),
    "ep_size": (2, 4, 8),
}  # fmt: skip
"""What may be changed, and to what."""
RARELY = frozenset(
    """mem_fraction_static dtype attention_backend enable_mixed_chunk enable_hierarchical_cache pp_size
    ep_size moe_a2a_backend dcp_size max_prefill_tokens
    max_mamba_cache_size disable_cuda_graph max_total_tokens mamba_ssm_dtype""".split()
)
OF_STATES = frozenset(name for name in CHANCES if "mamba" in name)
OF_SPARSE = frozenset(("dsa_prefill_backend", "dsa_decode_backend"))
OF_WINDOWS = frozenset(("disable_hybrid_swa_memory", "swa_full_tokens_ratio"))
LATER = {"mamba_radix_cache_strategy": "0.5.19", "attn_dp_size": "0.5.22", "pp_size": "0.5.16",
    "dcp_size": "0.5.19", "dsa_prefill_backend": "0.5.19", "dsa_decode_backend": "0.5.19",
}  # fmt: skip
"""Arguments that are called otherwise before, or are not there."""
DRAFTS = {
    "llama": ("meta-llama__Llama-3.2-1B", "STANDALONE"),
    "qwen3": ("Qwen__Qwen3-0.6B", "STANDALONE"),
    "qwen2": ("Qwen__Qwen2.5-3B", "STANDALONE"),
}
"""Model type → a small model of its vocabulary."""
HEADS = ("llama", "qwen3", "qwen3_moe", "qwen2")
"""Model types that get an EAGLE3 head: one layer of Llama's, of the target's widths."""


@cache
def pool() -> dict[str, tuple[str, ...]]:
    """Names of configs by where they come from; without encoders, whose pool nothing is written to."""
    cards = tuple(
        sorted(card.slug for card in packaged_cards() if card.model.config and not card.model.no_cache_reason)
    )
    return {"published": tuple(record("configs")), "card": cards}


@cache
def _cards() -> dict[str, Any]:
    return {
        card.slug: (completed(_plain(card.model.config)[0]), _plain(card.model.config)[1])
        for card in packaged_cards()
        if card.model.config
    }


def config_of_draw(entry: Entry) -> tuple[dict[str, Any], Any]:
    """The config and, beside it, hf_quant_config.json; a card's as it was when it was asked."""
    if entry.get("asked") is not None:
        config, quant = entry["asked"]
        return config, quant
    where, name = entry["config"].split(":", 1)
    if where == "published":
        stored = record("configs")[name]
        return _plain(stored["config"])[0], stored.get("hf_quant_config")
    found: tuple[dict[str, Any], Any] = _cards()[name]
    return found


def model_of_draw(entry: Entry) -> Model | KvplanError:
    """The model of a draw's config."""
    asked = entry.get("asked")
    return _model(entry["config"], None if asked is None else json.dumps(asked))


@lru_cache(maxsize=256)
def _model(name: str, asked: str | None) -> Model | KvplanError:
    try:
        if name.startswith("published:"):
            return model_of(name.partition(":")[2])
        config, quant = config_of_draw(
            {"config": name, "asked": None if asked is None else json.loads(asked)}
        )
        return read_config(config, id=name, source="recorded", hf_quant_config=quant)
    except KvplanError as error:
        return error


def head_of(config: dict[str, Any]) -> dict[str, Any]:
    """The config of an EAGLE3 head for a target, as published heads state it."""
    names = "hidden_size num_attention_heads num_key_value_heads head_dim vocab_size rms_norm_eps".split()
    own = {name: config[name] for name in names if config.get(name) is not None}
    return {
        **own, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
        "intermediate_size": 4 * own["hidden_size"], "draft_vocab_size": 32_000, "torch_dtype": "bfloat16",
        "max_position_embeddings": 2048, "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip


def draft_of(entry: Entry) -> dict[str, Any] | None:
    """The config of the draft model beside the draw's."""
    said = entry.get("draft")
    if said is None:
        return None
    if said == "head":
        return head_of(config_of_draw(entry)[0])
    found: dict[str, Any] = _plain(record("configs")[said]["config"])[0]
    return found


def _speculation(draw: random.Random, config: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """A chain of the model's own layers, of a head or of a small model beside it; tokens of the prompt."""
    chance, steps = draw.random(), draw.choice((1, 2, 3, 5))
    words = str(config)
    chain = {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": steps + 1,
    }
    if any(word in words for word in ("nextn", "mtp_num", "num_mtp")) and chance < 0.4:
        names = ("EAGLE",) if "DeepseekV4" in words else ("EAGLE", "NEXTN")
        return {"speculative_algorithm": draw.choice(names), **chain}, None
    kind = str(config.get("model_type"))
    if kind in DRAFTS and chance < 0.15:
        return {"speculative_algorithm": DRAFTS[kind][1], **chain}, DRAFTS[kind][0]
    if kind in HEADS and chance < 0.3:
        return {"speculative_algorithm": "EAGLE3", **chain}, "head"
    if chance > 0.96:
        return {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": steps + 1}, None
    return {}, None


def draw_case(draw: random.Random, release: str) -> Entry:
    """One draw as it is recorded."""
    where = draw.choice(("published", "published", "card"))
    name = f"{where}:{draw.choice(pool()[where])}"
    gpu = draw.choice(GPUS)
    config = config_of_draw({"config": name})[0]
    model = model_of_draw({"config": name})
    parts = set()
    if isinstance(model, Model):
        parts = {part.kind.name for run in model.runs for part in run.layer.parts}
    args: dict[str, Any] = {}
    for key, choices in CHANCES.items():
        chance, value = draw.random(), draw.choice(choices)
        fits = (key not in OF_STATES or "STATE" in parts) and (key not in OF_WINDOWS or len(parts) > 1)
        fits = fits and (key not in OF_SPARSE or {"INDEXER", "MLA"} <= parts)
        if fits and chance < (0.06 if key in RARELY else 0.2) and _known(key, release):
            args[key] = value
    ranks = args.get("tp_size", 1)
    if ranks > 1 and draw.random() < 0.2:
        groups = draw.choice([size for size in (2, 4, 8) if ranks % size == 0])
        if _known("attn_dp_size", release) and draw.random() < 0.5:
            args["attn_dp_size"] = groups
        else:
            args |= {"dp_size": groups, "enable_dp_attention": True}
    for key in ("ep_size", "dcp_size"):
        if ranks % args.get(key, 1):
            del args[key]
    more, draft = _speculation(draw, config)
    memory = draw.choice(MEMORY[gpu]) * GIB + draw.choice((0, 7, 12_345_678))
    entry: Entry = {"config": name, "gpu": gpu, "rest_memory": memory, "args": {**args, **more}}
    return {**entry, "draft": draft} if draft else entry


def _known(key: str, release: str) -> bool:
    return parse_version(release) >= parse_version(LATER.get(key, "0"))


def draws(release: str, seed: int, count: int) -> list[Entry]:
    """So many draws; the same for the same seed and release."""
    draw = random.Random(f"{release} {seed}")
    return [draw_case(draw, release) for _ in range(count)]


def question_of_draw(entry: Entry) -> Entry:
    """As `sglang_ask` reads it."""
    config, quant = config_of_draw(entry)
    asked = {key: entry[key] for key in ("gpu", "args", "rest_memory")}
    return {"name": entry["config"], "config": config, "quant": quant, "draft": draft_of(entry), **asked}


def found(entry: Entry, release: str) -> dict[str, tuple[Any, Any]]:
    """What differs: field → kvplan's, SGLang's."""
    model = model_of_draw(entry)
    version = ".".join(release.split(".")[:3])
    other = recorded(entry["answer"])
    if isinstance(model, KvplanError):
        mine: dict[str, Any] = {"refused": model.message}
    else:
        draft = draft_of(entry)
        beside = None if draft is None else load_model(draft)
        mine = ours(model, entry, version, draft=beside)
    names = differences(mine, other)
    if "enable_hierarchical_cache" in entry["args"] and version < "0.5.15":  # no graphs of prompts beside it
        names = [name for name in names if name != "fraction"]
    return {
        name: (mine.get("refused", mine.get(name)), other.get("refused", other.get(name))) for name in names
    }


def verdict(entry: Entry, release: str) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """``equal``, ``refused`` by both, or ``differs`` and how."""
    wrong = found(entry, release)
    if wrong:
        return "differs", wrong
    return ("refused" if "refused" in entry["answer"] else "equal"), {}
