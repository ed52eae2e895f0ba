"""Falcon, its first releases (RefinedWeb) and Falcon-H1.

Sources: huggingface/transformers 5.23.0 models/{falcon,falcon_h1}; vllm-project/vllm 0.32
vllm/model_executor/models/ falcon.py, falcon_h1.py, vllm/transformers_utils/configs/falcon.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_head, every_layer
from kvplan.architectures.blocks.decoder import full, hidden_per_head, num_heads, uniform
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import LAYER, Heads, attention, fused, mlp, norms, whole
from kvplan.architectures.blocks.plain import NEOX_MLP, Plain, four_times, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import HYBRID, Parts, Recipe, all_of
from kvplan.architectures.blocks.state_space import bamba_mixer, inner_width, mamba2_part, mamba_hidden
from kvplan.architectures.config.custom_types import REFINED_WEB_NAMES, VLLM_CONFIGS, CustomType
from kvplan.architectures.config.plain import HEADS
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer


def refined_web_layers(view: ConfigView) -> list[Layer]:
    """Falcon's first files: one KV head if multi_query, n_head_kv (default 1) in the new architecture.

    A hidden size of 8192 is the new architecture (Falcon-40B, whose file does not say so).
    Source: vllm-project/vllm 0.32 vllm/transformers_utils/configs/falcon.py.
    """
    hidden = view.integer("hidden_size")
    new = view.flag("new_decoder_architecture") or hidden == 8192
    if new:
        kv = view.optional_integer("num_kv_heads") or derived(1, "n_head_kv not stated: 1")
    else:
        kv = derived(1, "multi_query") if view.flag("multi_query") else every_head(view)
    return every_layer(
        view, FullAttention(kv, derived(hidden // view.integer(*HEADS) or 1, "hidden_size // n_head"))
    )


def falcon_layers(view: ConfigView) -> list[Layer]:
    """multi_query keeps one head; the new architecture num_kv_heads, which the class repeats to all heads.

    models/falcon/modeling_falcon.py, FalconAttention._split_heads.
    """
    heads, width = num_heads(view), hidden_per_head(view)
    if view.flag("new_decoder_architecture"):
        kv = view.optional_integer("num_kv_heads") or heads
        part = FullAttention(kv, width, broadcast_heads=heads if kv != heads else None)
    elif view.flag("multi_query"):
        part = FullAttention(derived(1, "multi_query"), width)
    else:
        part = FullAttention(derived(int(heads), "num_attention_heads (multi_query is off)"), width)
    return uniform(view, part)


def _falcon_h1_layer(view: ConfigView) -> Parts:
    """K and V and a Mamba-2 state in every layer."""
    inner = view.optional_integer("mamba_d_ssm") or inner_width(view, "mamba_expand")
    return (*full(view), mamba2_part(view, inner))


def falcon_h1_tensors(view: ConfigView) -> Decoder:
    """Attention and Mamba-2 side by side in every layer."""
    hidden = hidden_size(view)
    inner = view.optional_integer("mamba_d_ssm")
    bias = view.flag("attention_bias")
    layer = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
    layer += bamba_mixer(view, int(inner) if inner is not None else mamba_hidden(view))
    layer += mlp("feed_forward", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    layer += norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    frame = Frame(final_norm="model.final_layernorm")
    return Decoder(frame, (layer,) * int(view.num_layers()))


def _falcon_heads(view: ConfigView) -> Heads:
    """One KV head under multi_query, num_kv_heads in the newer architecture, else one for each head."""
    count = int(num_heads(view))
    kv = count
    if view.flag("new_decoder_architecture"):
        kv = int(view.optional_integer("num_kv_heads") or count)
    elif view.flag("multi_query", default=True):
        kv = 1
    width = int(view.integer("hidden_size")) // count
    return Heads(count, kv, width, width)


def _falcon_norms(view: ConfigView) -> tuple[str, ...]:
    if not view.flag("parallel_attn", default=True):
        return ("input_layernorm", "post_attention_layernorm")
    number = view.optional_integer("num_ln_in_parallel_attn")
    if number is None and view.flag("new_decoder_architecture"):
        number = 2
    return ("ln_attn", "ln_mlp") if number == 2 else ("input_layernorm",)


lineage(
    "falcon",
    layers=falcon_layers,
    block=Plain(
        frame=Frame(
            layers="transformer.h",
            embed="transformer.word_embeddings",
            final_norm="transformer.ln_f",
            norm=LAYER,
            everywhere=True,
        ),
        norm=LAYER,
        norms=_falcon_norms,
        names=fused("self_attention", "query_key_value", "dense"),
        heads=_falcon_heads,
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias="bias",
        gated=False,
        mlp_names=NEOX_MLP,
        width_of=four_times,
    ),
)
lineage(
    "RefinedWeb",
    reads=CustomType(VLLM_CONFIGS + "falcon.py", aliases=REFINED_WEB_NAMES, defaults={"multi_query": True}),
    layers=refined_web_layers,
)
lineage(
    "RefinedWebModel",
    reads=CustomType(VLLM_CONFIGS + "falcon.py", aliases=REFINED_WEB_NAMES, defaults={"multi_query": True}),
    layers=refined_web_layers,
)
lineage("falcon_h1", layers=Recipe({HYBRID: _falcon_h1_layer}, all_of(HYBRID)), tensors=falcon_h1_tensors)
