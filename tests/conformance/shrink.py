"""Small configs: every size of a class's default cut down by what its name says, patterns kept whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HEADS, KV_HEADS, WIDTH, HEAD_DIM, WINDOW = 6, 3, 96, 16, 12
# The first pattern that matches the whole key decides; None leaves the class's value alone.
_SIZES: tuple[tuple[str, int | None], ...] = (
    (r"num_key_value_heads|num_kv_heads|swa_num_key_value_heads", None),  # set with the heads, below
    (r"num_global_key_value_heads", 1),
    (r"mamba_(n|num)_heads|n_mamba_heads", 6),
    (r"linear_num_key_heads", 3),
    (r"(linear|swa|encoder|decoder)?_?(num_)?(encoder_|decoder_)?attention_heads", HEADS),
    (r"n_heads?|num_heads|linear_num_(value_)?heads", HEADS),
    (r"(hidden|embedding)_size|d_model|n_embd|dim|emb_dim|embedding_dim", WIDTH),
    (r"word_embed_proj_dim|lru_width", WIDTH),
    (r"attention_hidden_size|(input|output)_embedding_size", WIDTH),
    (r"(swa_)?head_dim|kv_channels|d_kv|dim_head|d_head|mamba_(d_)?head(_)?dim|mamba_d_head", HEAD_DIM),
    (r"global_head_dim", 2 * HEAD_DIM),
    (r"linear_(key_)?head_dim", 10),
    (r"linear_value_head_dim|(swa_)?v_head_dim", 14),
    (r"(swa_)?qk_rope_head_dim|rotary_dim", 8),
    (r"(swa_)?qk_nope_head_dim", 16),
    (r"(swa_)?kv_lora_rank", 28),
    (r"(swa_)?[qo]_lora_rank", 20),
    (r"index_n_heads|o_groups", 2),
    (r"index_head_dim", 24),
    (r"index_topk", 6),
    (r"(mamba_d_state|state_size|ssm_state_size)", 6),
    (r"(mamba_)?chunk_size|mamba_chunk_size", 8),
    (r"time_step_rank|mamba_dt_rank|laurel_rank|hidden_size_per_layer_input|adapter_rank|hc_lowrank", 8),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|dim_ff|dff|n_inner|feed_forward_size)(_mlp)?", 64),
    (r"d_inner|prompt_mid_dim", 64),
    (r"(n_routed|num|num_local|moe_num)_experts", 4),
    (r"(num_experts_per_tok(en)?|moe_topk|moe_k|zero_expert_num)", 2),
    (r"n_group|topk_group|num_expert_group|(n|num|moe_num)_shared_experts", 1),
    (r"first_k_dense_replace|moe_layer_start_index", 1),
    (r"num_nextn_predict_layers|num_mtp_layers", 0),
    (r"sliding_window(_size)?|attention_(window|chunk)_size|local_attention(_window_len)?", WINDOW),
    (r"window_size|keep_window_size|block_size", WINDOW),
    (r"(unpadded_)?vocab_size(_per_layer_input)?", 100),
    (r"max_(position_embeddings|seq_len|target_positions)|n_positions|n_ctx|context_length", 128),
    (r"model_max_length", 128),
    (r"max_source_positions", 32),
    (r"prompt_length", 5),
    (r"mem_len", 30),
    (r"(shape|pronunciation)_(vocab_size|embed_dim)", 40),
    (r"query_pre_attn_scalar", 16),
    (r"encoder_layers|num_encoder_layers", 4),
)  # fmt: skip
SIZES = tuple((re.compile(pattern), size) for pattern, size in _SIZES)
LAYERS = re.compile(
    r"(num_)?(hidden_|decoder_)?layers|n_layers?|num_blocks|num_layers_per_stack|decoder_(num_hidden_)?layers"
)
SPECIAL_TOKEN = re.compile(r"(\w+)_token_id")
TOWERS = ("vision_config", "audio_config", "audio_encoder", "qformer_config", "vq_config", "speech_config")


def small_value(key: str) -> int | None:
    for pattern, size in SIZES:
        if pattern.fullmatch(key):
            return size
    return None


def small_settings(default: Any, layers: int) -> dict[str, Any]:
    """Keyword arguments that shrink a config of this class; what no pattern names stays as it is."""
    known = default.to_dict()
    settings: dict[str, Any] = {}
    for key, value in known.items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if LAYERS.fullmatch(key) and key != "encoder_layers":
            settings[key] = layers
        elif SPECIAL_TOKEN.fullmatch(key):
            settings[key] = 0 if key == "pad_token_id" else 1
        elif (small := small_value(key)) is not None and value > 0:
            settings[key] = min(value, small)
    for key in ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"):
        value = known.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            heads = next((known[name] for name in ("num_attention_heads", "n_head") if name in known), None)
            settings[key] = HEADS if value == heads else 1 if value == 1 else KV_HEADS
    if "kv_lora_rank" in known:
        settings.pop("head_dim", None)
    if "is_decoder" in known:
        settings["is_decoder"] = True
    return settings


def small_config(model_type: str, settings: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A config of the type with a depth at which every kind of layer of the default occurs.

    A part is changed with ``{"text_config": {"settings": {…}}}``.
    """
    return _small(CONFIG_MAPPING[model_type], settings)


def _small(config_class: Any, settings: Mapping[str, Any]) -> Any:
    default = config_class()
    parts = getattr(config_class, "sub_configs", None) or {}
    wanted = set(getattr(default, "layer_types", None) or ())
    for layers in (3, 4, 5, 6, 8, 12, 16):
        made = {**small_settings(default, layers), **settings, **_small_parts(default, parts, settings)}
        config = config_class(**made)
        if not wanted or set(getattr(config, "layer_types", None) or ()) >= wanted:
            return config
    return config


def _small_parts(default: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in parts:
        part = getattr(default, name, None)
        given = settings.get(name, {"settings": {}})
        if part is None or "settings" not in given:
            continue
        if name in TOWERS:
            made[name] = _small_tower(part)
        else:
            made[name] = _small(type(part), given["settings"]).to_dict()
    return made


_TOWER = {
    "hidden_size": 32, "intermediate_size": 32, "embed_dim": 32, "d_model": 32, "mlp_dim": 32, "num_heads": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 1, "depth": 1,
    "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "num_global_layers": 1,
    "out_hidden_size": WIDTH, "output_dim": WIDTH, "vision_output_dim": WIDTH,
}  # fmt: skip


def _small_tower(part: Any) -> dict[str, Any]:
    known = part.to_dict()
    kept = {"model_type": known["model_type"]} if known.get("model_type") else {}
    return kept | {key: size for key, size in _TOWER.items() if isinstance(known.get(key), int)}
