"""Configs of the classes that are traced: what vLLM asks beyond a card's keys, and each width changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kvplan.proof.validate.installed.asked_keys import ASKED, OF_HIDDEN
from scripts.tracing.decoders import Config, parts

HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
WIDTHS = (
    *("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "moe_intermediate_size"),
    *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "intermediate_size_mlp"),
    *("shared_intermediate_size", "mlp_hidden_size", "head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank"),
    *("qk_rope_head_dim", "qk_nope_head_dim", "linear_num_key_heads", "linear_num_value_heads"),
    *("linear_key_head_dim", "linear_value_head_dim", "mamba_d_ssm", "mamba_n_heads", "mamba_d_state"),
    *("mamba_n_groups", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "state_size"),
    *("mamba_d_head", "mamba_expand", "time_step_rank", "mamba_dt_rank", "n_routed_experts", "num_experts"),
    *("num_local_experts", "moe_num_experts", "n_shared_experts", "moe_latent_size", "index_n_heads"),
    *("index_head_dim", "lru_width", "global_head_dim", "num_global_key_value_heads", "conv_dim"),
    *("swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads", "o_lora_rank"),
)
_KNOWN_AS = {"phi-msft": "phi"}
REMOTE = (
    "baichuan",
    "deepseek",
    "mimo",
    "minicpm",
    "internlm",
    "internlm2",
    "internlm3",
    "minimax_text_01",
    "orion",
)
"""Types whose config class lies beside the checkpoint; Llama's takes every key."""


def completed(config: Config) -> Config:
    """The config with what vLLM asks for besides, and without the kind of its rotary tables."""
    full = copy.deepcopy(config)
    for part in parts(full):
        kind = str(part.get("model_type"))
        part["model_type"] = _KNOWN_AS.get(kind, kind)
        for key, value in {**ASKED.get(str(config.get("model_type")), {}), **ASKED.get(kind, {})}.items():
            part.setdefault(key, value)
        for key in OF_HIDDEN.get(kind, ()):
            part.setdefault(key, part["hidden_size"])
        for key in ("rope_scaling", "rope_parameters"):
            if isinstance(part.get(key), dict) and "mrope_section" not in part[key]:
                del part[key]
    return full


def changed(config: Config, *, own_heads: bool) -> Iterator[Config]:
    """The config with one width after another changed, some together. own_heads: heads of a size that the
    config does not state, too."""
    for names in (HEADS, KV_HEADS, HIDDEN):
        yield from _each(config, names)
    yield from _each(config, WIDTHS)
    yield from _together(config)
    if own_heads:
        yield from _own_heads(config)


def _each(config: Config, names: tuple[str, ...]) -> Iterator[Config]:
    """Each of the widths twice as large, wherever the config has it."""
    for name in names:
        if any(_whole(part.get(name)) for part in parts(config)):
            yield _scaled(config, {name: 2})


def _together(config: Config) -> Iterator[Config]:
    """Heads and the hidden states, which many classes tie to one another."""
    for heads in HEADS:
        for hidden in HIDDEN:
            if any(_whole(part.get(heads)) and _whole(part.get(hidden)) for part in parts(config)):
                yield _scaled(config, {heads: 2, hidden: 2})
                for kv in KV_HEADS:
                    yield _scaled(config, {heads: 2, kv: 2})
                    yield _scaled(config, {heads: 2, kv: 2, hidden: 2})


def _own_heads(config: Config) -> Iterator[Config]:
    """Heads of a size of their own, where the config leaves it to be worked out."""
    made = copy.deepcopy(config)
    for part in parts(made):
        heads, hidden = (next((part[key] for key in keys if key in part), 0) for keys in (HEADS, HIDDEN))
        if _whole(heads) and _whole(hidden) and not part.get("head_dim"):
            part["head_dim"] = 2 * hidden // heads
            yield made


def _scaled(config: Config, factors: dict[str, int]) -> Config:
    made = copy.deepcopy(config)
    for part in parts(made):
        for name, factor in factors.items():
            tied = OF_HIDDEN.get(str(part.get("model_type")), ()) if name in HIDDEN else ()
            for key in (name, *tied):
                if _whole(part.get(key)):
                    part[key] *= factor
    return made


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
