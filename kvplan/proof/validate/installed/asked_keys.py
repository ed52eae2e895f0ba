"""Keys that an engine reads of a config beyond those that decide sizes, which are all that a card keeps.

No tensor and no cache depends on these: bases of rotary angles, epsilons, how a router chooses. Values are
those of published configs of the class, or of its config class where checkpoints differ. A config that the
user gives is never completed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.record import Json

Config = dict[str, Any]
_GROUPS: Config = {"n_group": 1, "topk_group": 1, "topk_method": "greedy"}
_LFM2: Config = {"block_multiple_of": 256, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0}
ASKED: Mapping[str, Config] = {
    "afmoe": {"score_func": "sigmoid", "route_norm": True, "route_scale": 1.0, "n_group": 1, "topk_group": 1},
    "chatglm": {"original_rope": True},
    "deepseek_v2": _GROUPS,
    "deepseek_v4": {
        "compress_rope_theta": 160_000,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
        "hidden_act": "silu",
        "index_topk": 512,
        "norm_topk_prob": True,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "routed_scaling_factor": 1.5,
        "scoring_func": "sqrtsoftplus",
        "swiglu_limit": 10.0,
        "topk_method": "noaux_tc",
    },
    "kimi_k3": {"mla_use_nope": True},
    "kimi_linear": {"mla_use_nope": True},
    "kimi_vl": {"n_group": 1, "topk_group": 1},
    "lfm2": _LFM2,
    "mimo_v2_flash": {"layernorm_epsilon": 1e-5},
    "minicpm": {"dim_model_base": 256, "scale_emb": 12, "scale_depth": 1.4},
    "minimax_m2": {"scoring_func": "sigmoid", "use_routing_bias": True},
    "qwen2_moe": {"norm_topk_prob": False},
    "qwen3_vl_moe": {"norm_topk_prob": True},
    "xlm-roberta": {"position_embedding_type": "absolute"},
}
"""By model type, of the whole config or of a part."""
OF_HIDDEN = {"lfm2": ("block_dim", "conv_dim", "conv_dim_out")}
"""Keys that repeat hidden_size."""
_ROPE = ("rope_parameters", "rope_scaling")
_THETA = 10_000.0


def parts(config: Config) -> Iterator[Config]:
    """The config and every config in it."""
    yield config
    for value in config.values():
        if isinstance(value, dict) and "model_type" in value:
            yield from parts(value)


def completed(config: Json) -> Config:
    """The config with every key that the engine asks for."""
    full: Config = copy.deepcopy(dict(config))
    top = str(full.get("model_type"))
    for part in parts(full):
        kind = str(part.get("model_type"))
        for key, value in {**ASKED.get(top, {}), **ASKED.get(kind, {})}.items():
            part.setdefault(key, value)
        for key in OF_HIDDEN.get(kind, ()):
            part.setdefault(key, part["hidden_size"])
        for rope in _ropes(part):
            rope.setdefault("rope_theta", part.get("rope_theta", _THETA))
    return full


def _ropes(part: Config) -> Iterator[Config]:
    """Objects that describe rotary angles; of a config with one for each kind of layer, all."""
    for name in _ROPE:
        found = part.get(name)
        if isinstance(found, dict):
            inner = [value for value in found.values() if isinstance(value, dict)]
            yield from inner or [found]
