"""When may a config be read as a plain decoder without knowing its class? If nothing speaks against it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kvplan.later import regex
from kvplan.record import Json

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num")
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")

# Words in keys that go with windows, states, latents, sharing, compression or patterns of layers.
_TELLTALE = regex(
    r"sliding|window|layer_types|layers_block_type|pattern|lora_rank|latent|(^|_)mla(_|$)|ssm|mamba|conv|rwkv|rnn"
    r"|recurren|state_size|d_state|linear_attn|linear_att|lightning|delta|retention|decay|block_config|block_types"
    r"|(^|_)cla(_|$)|cross_layer|kv_share|shared_kv|share_factor|yoco|index_head|index_topk|index_n|indexer"
    r"|compress|sparse|chunk|local_att|global_att|attn_type|attention_type|(attn|attention)_layer(?!_?norm)|sink"
    r"|hybrid|swa|per_layer|cross_attention|mem_len|loop|n_shared_head|qk_rope|qk_nope|num_query_groups"
    r"|kv_channels|v_head_dim|(^|_)hash"
)
# Keys that contain such a word and mean something else.
_HARMLESS = regex(
    r"expert|moe|mlp|router|embed|vision|image|audio|video|token|^quantization_config$|^compression_config$"
    r"|^enc_index$|^max_window_layers$|^chunk_size_feed_forward$|^cross_attention_hidden_size$|^add_cross_attention$|^conv_bias$|drop|init"
)
_OFF = (None, False, 0, "", "none", "full", "full_attention")


def telltale_keys(raw: Json, understood: Collection[str] = ()) -> list[str]:
    """Keys of the config that speak against "full attention in every layer", in the file's order.

    understood: keys that the type's own rule reads. A key that is off (null, false, 0, -1, empty) says
    nothing; a window with ``use_sliding_window: false`` is off as well. A list with one entry a layer is a
    pattern, whatever it is called.
    """
    window_off = raw.get("use_sliding_window") is False
    layers = next((raw[key] for key in LAYERS if isinstance(raw.get(key), int)), None)
    found: list[str] = []
    for key, value in raw.items():
        if not isinstance(key, str) or key in understood or _is_off(value) or _HARMLESS.search(key):
            continue
        if window_off and "window" in key:
            continue
        per_layer = isinstance(value, list) and len(value) > 1 and len(value) == layers
        if per_layer or _TELLTALE.search(key):
            found.append(key)
    return found


def _is_off(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return not value
    if isinstance(value, int) and value < 0:
        return True
    return any(value is off or (type(value) is type(off) and value == off) for off in _OFF)


def two_meanings(raw: Json) -> list[str]:
    """Spellings of one thing that disagree in the file: ``["n_head", "num_attention_heads"]``."""
    for names in (LAYERS, HEADS, KV_HEADS):
        given = [name for name in names if isinstance(raw.get(name), int)]
        if len({raw[name] for name in given}) > 1:
            return given
    return []
