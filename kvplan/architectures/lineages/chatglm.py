"""ChatGLM 2 and 3, GLM-4 as first published.

Source: vllm-project/vllm 0.32 vllm/transformers_utils/configs/chatglm.py, models/chatglm.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import every_head, every_layer, width_per_head
from kvplan.architectures.blocks.decoder import num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Heads, fused
from kvplan.architectures.blocks.plain import Plain
from kvplan.architectures.config.custom_types import VLLM_CONFIGS, CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.families import FullAttention
from kvplan.model import Layer


def chatglm_layers(view: ConfigView) -> list[Layer]:
    """ChatGLM: multi_query_group_num KV heads if multi_query_attention, else all; kv_channels wide.

    Source: vllm-project/vllm 0.32 vllm/transformers_utils/configs/chatglm.py, models/chatglm.py.
    """
    refuse = [key for key in ("pre_seq_len",) if view.get(key)]
    if refuse:
        raise view.refuse(refuse[0], "prefix tuning adds a prefix of unknown layout to the cache")
    heads = every_head(view)
    kv = view.integer("multi_query_group_num") if view.flag("multi_query_attention") else heads
    return every_layer(view, FullAttention(kv, width_per_head(view, "kv_channels")), "num_layers")


def _chatglm_heads(view: ConfigView) -> Heads:
    count = int(num_heads(view))
    kv = int(view.integer("multi_query_group_num")) if view.flag("multi_query_attention") else count
    width = int(view.optional_integer("kv_channels") or view.integer("hidden_size") // count)
    return Heads(count, kv, width, width)


lineage(
    "chatglm",
    reads=CustomType(
        VLLM_CONFIGS + "chatglm.py",
        aliases={"num_hidden_layers": "num_layers"},
        defaults={
            "num_layers": 28,
            "hidden_size": 4096,
            "kv_channels": 128,
            "num_attention_heads": 32,
            "multi_query_attention": False,
            "multi_query_group_num": 1,
            "padded_vocab_size": 65024,
            "seq_length": 2048,
        },
    ),
    layers=chatglm_layers,
    block=Plain(
        frame=Frame(
            layers="transformer.encoder.layers",
            embed="transformer.embedding.word_embeddings",
            final_norm="transformer.encoder.final_layernorm",
            head="transformer.output_layer",
            vocabulary=("padded_vocab_size",),
            everywhere=True,
        ),
        names=fused("self_attention", "query_key_value", "dense"),
        heads=_chatglm_heads,
        qkv_bias=("add_bias_linear", "add_qkv_bias"),
        o_bias="add_bias_linear",
        mlp_bias="add_bias_linear",
        mlp_names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
        width=("ffn_hidden_size",),
    ),
)
