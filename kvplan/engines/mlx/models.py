"""Which cache mlx-lm gives the layers of a model type: ml-explore/mlx-lm 0.32.2 mlx_lm/models/.

A class with ``make_cache`` says it layer by layer, one without has a KVCache for each; types of other names
go through MODEL_REMAPPING of mlx_lm/utils.py. Those named here were built small and asked for their bytes
(tests/data/mlx_cache.json); the others that mlx-lm has were not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kvplan.families import Kind
from kvplan.model import Model
from kvplan.results import Refusal


class Windows(str, Enum):
    """The fate of layers with a window. OFF: they keep every token, in a KVCache. ROTATING: a
    RotatingKVCache as long as the window. BY_TYPES: that where the config lists ``layer_types``, which alone
    mlx-lm reads; else every token."""

    OFF = "off"
    ROTATING = "rotating"
    BY_TYPES = "by layer_types"


_PLAIN = """apertus cohere deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe exaone gemma gemma2 glm glm4 glm4_moe
glm4_moe_lite gpt2 gpt_neox gptj granite granitemoe helium hunyuan_v1_dense internlm3 kimi_k2 kimi_k25
minimax_m2 mistral4 mixtral nanochat olmo2 olmoe phi phi3 phimoe qwen2 qwen2_5_vl qwen2_moe qwen2_vl
qwen3 qwen3_moe qwen3_vl qwen3_vl_moe seed_oss smollm3 stablelm starcoder2"""
_OWN_CACHE = """deepseek_v32 falcon_h1 falcon_mamba glm_moe_dsa granitemoehybrid iquestcoder jamba kimi_linear
lfm2 lfm2_moe llama4 longcat_flash mamba mamba2 nemotron_h olmo_hybrid qwen3_5 qwen3_5_moe qwen3_next"""
_ROTATING = """afmoe cohere2 exaone4 exaone_moe gemma3 gemma3_text gemma3n gemma4 gemma4_text gemma4_unified
gpt_oss laguna mellum mimo_v2_flash muse_glimmer olmo3 step3p5"""
_BY_TYPES = "llama ministral3 mistral mistral3"
TYPES: Mapping[str, Windows] = {
    **dict.fromkeys((*_PLAIN.split(), *_OWN_CACHE.split()), Windows.OFF),
    **dict.fromkeys(_ROTATING.split(), Windows.ROTATING),
    **dict.fromkeys(_BY_TYPES.split(), Windows.BY_TYPES),
}
"""Model type → the fate of its windows."""
LIMITED = frozenset(_PLAIN.split())
"""Types without a ``make_cache``, whose layers ``max_kv_size`` bounds (make_prompt_cache)."""
EXPANDED = frozenset({"deepseek_v2"})
"""Types that keep every head's K and V in place of the latent (deepseek_v2.py)."""
MODEL_STATES = frozenset({"falcon_mamba", "jamba", "mamba"})
"""Types whose recurrent state has the model's own element type (mamba.py, jamba.py); float32 elsewhere."""
_LISTS = frozenset({"deepseek_v32", "falcon_h1", "glm_moe_dsa", "longcat_flash"})
"""Types whose layers have a CacheList, which nothing quantises (generate.py, maybe_quantize_kv_cache)."""


def type_of(model: Model) -> str:
    """The model type by which mlx-lm chooses its class: of a text part the whole model's."""
    name = model.model_type
    return name if name in TYPES else name.removesuffix("_text")


def unserved(model: Model) -> Refusal | None:
    """A type that mlx-lm has no class for, or one whose cache was not asked."""
    if type_of(model) in TYPES:
        return None
    return Refusal(
        "unsupported-model",
        f"how mlx-lm keeps the cache of model_type {model.model_type} is not known here",
        help=("--engine llamacpp", "--engine generic"),
    )


def batches(model: Model) -> bool:
    """Whether the server reads several requests at once: every cache has a ``merge`` (server.py,
    is_batchable); that of chunks has none."""
    return all(part.kind is not Kind.CHUNKED for run in model.runs for part in run.layer.parts)


def rotates(model: Model) -> bool:
    """Whether layers with a window have a cache as long as it."""
    how = TYPES[type_of(model)]
    if how is not Windows.BY_TYPES:
        return how is Windows.ROTATING
    config = model.config or {}
    text = config.get("text_config")
    return bool(config.get("layer_types") or (text.get("layer_types") if isinstance(text, dict) else None))


def quantises(model: Model) -> bool:
    """Whether ``--kv-bits`` changes the layers that keep tokens."""
    return type_of(model) not in _LISTS


def not_quantised(model: Model) -> str | None:
    """Why mlx-lm stops where it should quantise the cache; None where it does not."""
    if not quantises(model):
        return None
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    if Kind.MLA in kinds and type_of(model) not in EXPANDED:
        return "its attention over latents reads no quantised cache"
    if rotates(model) and Kind.SLIDING in kinds:
        return "the cache of a window has no quantised form (RotatingKVCache.to_quantized)"
    return None
