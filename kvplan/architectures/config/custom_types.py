"""Model types that transformers 5.24 does not know, or that engines read otherwise: whose rule reads them,
and under which key names.

A lineage says so with ``reads=``. Sources: the remote code beside the public checkpoints, and the classes
with which vllm-project/vllm 0.32 reads them (vllm/transformers_utils/configs, vllm/model_executor/models).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.record import Json, field, record

PLAIN = "plain_custom_decoder"  # without a key for KV heads, every head has its own
GROUPED = "grouped_custom_decoder"  # the number of KV heads must be stated


@record()
class CustomType:
    """How one custom model type is read.

    like: the transformers type (or own rule) that reads it, "" for a rule under the type's own name;
    inherits: its class defaults and aliases count as well; aliases: other spelling → the rule's word;
    defaults: the remote class's own; source: where this was read.
    """

    source: str
    like: str = ""
    inherits: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    text: str | None = None
    """key of a wrapper's text part"""
    text_type: str | None = None
    """the type of that part where it does not state one"""


def own_keys(source: str, aliases: Mapping[str, str] | None = None, **defaults: Any) -> CustomType:
    """A decoder with full attention in every layer that only spells the keys in its own way."""
    return CustomType(source, like=PLAIN, aliases=aliases or {}, defaults=defaults)


def own_keys_grouped(source: str, aliases: Mapping[str, str] | None = None) -> CustomType:
    return CustomType(source, like=GROUPED, aliases=aliases or {})


def copy_of(of: str, source: str, *, inherits: bool = True, **more: Any) -> CustomType:
    return CustomType(source, like=of, inherits=inherits, **more)


def wrapper_of(source: str, text: str = "text_config", text_type: str | None = None) -> CustomType:
    return CustomType(source, text=text, text_type=text_type)


GPT2_NAMES = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embd": "hidden_size"}
REFINED_WEB_NAMES = {
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_head_kv": "num_kv_heads",
}
VLLM = "vllm-project/vllm 0.32 vllm/"
VLLM_MODELS = VLLM + "model_executor/models/"
VLLM_CONFIGS = VLLM + "transformers_utils/configs/"

# Types whose cache is not that of a decoder, whatever their keys look like.
NOT_SIZED = {
    "llada": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "llada_moe": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "Dream": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "phi3small": "blocksparse attention of its own",
    "retnet": "retention states of its own",
    "gla": "gated linear attention states of its own",
}
