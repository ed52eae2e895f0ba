"""MiniMax-Text-01, M1 (lightning attention) and M2.

Sources: huggingface/transformers 5.23.0 models/{minimax,minimax_m2}; vllm-project/vllm 0.32
vllm/model_executor/models/ minimax_text_01.py, minimax_m2.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.custom import entries, every_head, width_per_head
from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import MIXTRAL_KEYS, Moe
from kvplan.architectures.blocks.parts import (
    attention,
    even,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, Plain, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, LINEAR, Parts, Recipe, every, nothing
from kvplan.architectures.blocks.words import by_word, layer_words
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.prediction import MODULE_KEYS, NO_MODULE, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, LightningAttention, Part
from kvplan.model import Layer


def minimax_text_01_layers(view: ConfigView) -> list[Layer]:
    """attn_type_list: 0 = lightning attention (one head_dim² matrix a head), 1 = softmax attention.

    Source: MiniMax-01 (arXiv 2501.08313); MiniMaxAI/MiniMax-Text-01 modeling_minimax_text_01.py.
    """
    kinds = entries(view, "attn_type_list", view.num_layers())
    width = width_per_head(view)
    kv = view.optional_integer("num_key_value_heads")
    parts: dict[int, Part] = {
        0: LightningAttention(view.integer("num_attention_heads"), width),
        1: FullAttention(kv if kv is not None else every_head(view), width),
    }
    where = f"{view.path}attn_type_list"
    return [Layer((parts[check_integer(kind, where, 0, 1)],)) for kind in kinds]


def _lightning(view: ConfigView) -> Parts:
    return (LightningAttention(num_heads(view), head_dim(view)),)


def minimax_tensors(view: ConfigView) -> Decoder:
    """MiniMax-Text-01 in the library's words: layer_types instead of attn_type_list."""
    hidden = hidden_size(view)
    heads, model = heads_of(view), whole("hidden_size", hidden)
    wide = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
    lightning = linear("self_attn.qkv_proj", (whole("query, key and value", 3), *wide), model)
    lightning += linear("self_attn.output_gate", wide, model) + norm("self_attn.norm", *wide)
    lightning += linear("self_attn.out_proj", model, wide)
    forward = MIXTRAL_KEYS.tensors(view) + norms(TWO_NORMS, model)
    mixers = {"linear_attention": lightning, "full_attention": attention(heads, hidden)}
    words = layer_words(view, "layer_types")
    if words is None:
        words = [
            "linear_attention" if (index + 1) % 2 else "full_attention" for index in range(view.num_layers())
        ]
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return Decoder(Frame(), by_word(words, lambda word: mixers[word] + forward))


def minimax_text_tensors(view: ConfigView) -> Decoder:
    """attn_type_list: 0 lightning attention with an output gate and a norm, 1 softmax attention; experts."""
    hidden, count = hidden_size(view), int(view.num_layers())
    kinds = view.sequence("attn_type_list")
    if kinds is None or len(kinds) != count:
        raise view.refuse("attn_type_list", "a list with one entry a layer is needed")
    heads = heads_of(view)
    model, wide = (
        whole("hidden_size", hidden),
        (even("num_attention_heads", heads.count), whole("head_dim", heads.width)),
    )
    lightning = linear("self_attn.qkv_proj", (whole("query, key and value", 3), *wide), model)
    lightning += linear("self_attn.output_gate", wide, model) + norm("self_attn.norm", *wide)
    lightning += linear("self_attn.out_proj", model, wide)
    number, width = int(view.integer("num_local_experts")), int(view.integer("intermediate_size"))
    forward = router("block_sparse_moe.gate", number, hidden)
    forward += experts("block_sparse_moe.experts", number, hidden, width)
    shared = int(view.optional_integer("shared_intermediate_size", default=0, lowest=0) or 0)
    if shared:
        forward += mlp("shared_mlp", hidden, shared) + linear("coefficient", whole("one", 1), model)
    around = norms(("input_layernorm", "post_attention_layernorm"), model)
    mixers = {0: lightning, 1: attention(heads, hidden)}
    where = f"{view.path}attn_type_list"
    return Decoder(
        Frame(), tuple(mixers[check_integer(kind, where, 0, 1)] + forward + around for kind in kinds)
    )


lineage(
    "minimax",
    layers=Recipe({**ATTENTION, LINEAR: _lightning, "mlp": nothing}, every(2, FULL, LINEAR)),
    tensors=minimax_tensors,
)
lineage(
    "minimax_m1",
    reads=CustomType("MiniMaxAI/MiniMax-M1-80k modeling_minimax_m1.py"),
    layers=minimax_text_01_layers,
    tensors=minimax_text_tensors,
)
lineage(
    "minimax_text_01",
    reads=CustomType("MiniMaxAI/MiniMax-Text-01 modeling_minimax_text_01.py"),
    layers=minimax_text_01_layers,
    tensors=minimax_text_tensors,
)
lineage(
    "minimax_m2",
    block=Plain(
        qkv_bias="attention_bias",
        qk_norm="full_divided",
        moe=Moe(
            experts="block_sparse_moe.experts",
            gate="block_sparse_moe.gate",
            count=("num_local_experts",),
            width=("intermediate_size",),
            gate_dtype="float32",
            correction="block_sparse_moe.e_score_correction_bias",
            correction_if="use_routing_bias",
        ),
    ),
    prediction=Prediction(MODULE_KEYS, vllm=(), unknown=NO_MODULE),
)
