"""The few widths of a config that decide what a forward pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kvplan.architectures.config.rotary import rotary_table_bytes
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import ConfigView, check_integer, split_quant
from kvplan.model import Model
from kvplan.record import Json, record

_MLP_WIDTH = (
    *("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff"),
    "decoder_ffn_dim",
)
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "intermediate_size")
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts_total")
_PER_TOKEN = (
    *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
    "experts_per_token",
)
_TOWERS = ("vision_config", "audio_config", "vision_tower", "visual")


@record()
class Shape:
    """The widths of a model that decide its activations. Widths are per token, before tensor parallelism."""

    hidden_size: int
    vocab_size: int
    mlp_width: int
    expert_width: int = 0
    experts_per_token: int = 0
    element_bytes: int = 2
    is_multimodal: bool = False
    rotary_bytes: int = 0
    """the tables of rotary angles, which every rank has"""
    num_layers: int = 0
    attention_width: int = 0
    """q and k of one token, where an engine looks for it"""
    layer_embedding: int = 0
    """elements of a token in an embedding of every layer"""
    expert_hidden: int = 0
    """what routed experts take in and give back, 0: the hidden states"""
    ungated: bool = False
    """their first product has no gate beside it"""


def activation_shape(raw: Json, model: Model, element_bytes: int) -> Shape:
    """Widths as the config states them; 4 · hidden where a config of an older class states no MLP width."""
    part = find_text_part(raw)
    view = part.view
    experts = _experts(view)
    per_token = (view.optional_integer(*_PER_TOKEN, default=0, lowest=0) or 0) if experts > 1 else 0
    hidden = model.hidden_size
    width = _widest(view, _MLP_WIDTH) or 4 * hidden
    return Shape(
        hidden_size=hidden,
        vocab_size=model.vocab_size,
        mlp_width=width,
        expert_width=_widest(view, _EXPERT_WIDTH) if per_token else 0,
        experts_per_token=int(per_token),
        element_bytes=element_bytes,
        is_multimodal=any(
            isinstance(level.raw.get(key), Mapping) for level in part.levels for key in _TOWERS
        ),
        rotary_bytes=rotary_table_bytes(raw, element_bytes),
        num_layers=model.num_layers,
        layer_embedding=model.num_layers
        * (view.optional_integer("hidden_size_per_layer_input", default=0, lowest=0) or 0),
    )


def _widest(view: ConfigView, keys: tuple[str, ...]) -> int:
    """A width, or the largest where each layer has its own (Gemma 3n)."""
    if isinstance(view.get(*keys), (list, Mapping)):
        return max((check_integer(value, keys[0], 0) for value in view.sequence(*keys) or []), default=0)
    return int(view.optional_integer(*keys, default=0, lowest=0) or 0)


@lru_cache(maxsize=1024)
def shape_of(model: Model, element_bytes: int) -> Shape:
    """The widths of a loaded model; from its facts where no config came with it (GGUF, a partial card)."""
    if model.config:
        return activation_shape(split_quant(model.config)[0], model, element_bytes)
    return Shape(
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        mlp_width=_fact(model, "intermediate_size") or 4 * model.hidden_size,
        expert_width=_fact(model, "moe_intermediate_size"),
        experts_per_token=_fact(model, "num_experts_per_tok"),
        element_bytes=element_bytes,
        num_layers=model.num_layers,
    )


def _fact(model: Model, name: str) -> int:
    value = model.facts.get(name)
    return int(value) if isinstance(value, int) else 0


def _experts(view: ConfigView) -> int:
    """How many a layer has; of a list with a number for each kind of token (ERNIE 4.5 VL: text and images)
    the first, as many as a token may choose from."""
    value, origin = view.find(*_EXPERTS)
    if isinstance(value, list) and value:
        return int(check_integer(value[0], origin, 0))
    return int(view.optional_integer(*_EXPERTS, default=0, lowest=0) or 0)


def num_experts(model: Model) -> int:
    """Routed experts of a layer, 0 for a dense model or where no config says."""
    if not model.config:
        return 0
    view = find_text_part(split_quant(model.config)[0]).view
    count = _experts(view)
    return int(count) if count > 1 else 0
