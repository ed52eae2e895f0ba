"""Granite: dense, with experts, beside Mamba-2 (Granite 4), and Bamba.

Sources: huggingface/transformers 5.23.0
models/{granite,granitemoe,granitemoeshared,granitemoehybrid,bamba}; vllm-project/vllm 0.32
vllm/model_executor/models/granite*.py, bamba.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, full, plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import MIXTRAL_KEYS, Moe, shared_by_width
from kvplan.architectures.blocks.parts import Tensors, attention, mlp, norms, whole
from kvplan.architectures.blocks.plain import BIAS, LLAMA, TWO_NORMS, Plain, heads_of, hidden_size, sinks
from kvplan.architectures.blocks.recipe import FULL, LINEAR, SLIDING, Recipe, all_of, by_index, index_list
from kvplan.architectures.blocks.state_space import BLOCK_TYPE_KEYS, bamba_mixer, mamba2_parts, mamba_hidden
from kvplan.architectures.blocks.words import ATTENTION_WORDS, by_word, layer_words
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.record import replace


def _bamba(view: ConfigView, count: int) -> list[str]:
    attention = set(index_list(view, "attn_layer_indices") or ())
    return [FULL if index in attention else LINEAR for index in range(count)]


GRANITE_MOE = Moe(
    experts="block_sparse_moe.experts",
    gate="block_sparse_moe.gate",
    count=("num_local_experts",),
    width=("intermediate_size",),
)


def granite_tensors(view: ConfigView) -> Decoder:
    """Mamba-2 or attention, then experts and a shared perceptron."""
    hidden = hidden_size(view)
    words = layer_words(view, "layers_block_type", "layer_types")
    if words is None:
        raise view.missing("layer_types")
    beside = shared_by_width("shared_intermediate_size")(view)
    forward: Tensors = ()
    if view.optional_integer("num_local_experts", default=0, lowest=0):
        forward += GRANITE_MOE.tensors(view)
    if beside:
        names = ("input_linear", "input_linear", "output_linear")
        forward += mlp("shared_mlp", hidden, beside, names=names)
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    bias = view.flag("attention_bias")

    def make(word: str) -> Tensors:
        mixer = (
            attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
            if word in ATTENTION_WORDS
            else bamba_mixer(view, mamba_hidden(view))
        )
        return mixer + forward + around

    return Decoder(Frame(everywhere=True), by_word(words, make))


def bamba_tensors(view: ConfigView) -> Decoder:
    """Mamba-2, attention at attn_layer_indices, a perceptron in every layer."""
    hidden, count = hidden_size(view), int(view.num_layers())
    attends = set(view.sequence("attn_layer_indices") or ())
    words = ["attention" if index in attends else "mamba" for index in range(count)]
    forward = mlp("feed_forward", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    around = norms(("input_layernorm", "pre_ff_layernorm"), whole("hidden_size", hidden))
    bias = view.flag("attention_bias")

    def make(word: str) -> Tensors:
        mixer = (
            attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias)
            if word == "attention"
            else bamba_mixer(view, mamba_hidden(view))
        )
        return mixer + forward + around

    return Decoder(Frame(final_norm="model.final_layernorm"), by_word(words, make))


GRANITE_SHARED = replace(
    MIXTRAL_KEYS,
    experts="block_sparse_moe.experts",
    gate="block_sparse_moe.router",
    shared=shared_by_width("shared_intermediate_size"),
    shared_path="shared_mlp",
    shared_names=("input_linear", "input_linear", "output_linear"),
)


lineage(
    "bamba",
    layers=Recipe({FULL: full, LINEAR: mamba2_parts}, _bamba, keys=BLOCK_TYPE_KEYS),
    tensors=bamba_tensors,
)
lineage("granite", block=LLAMA)
lineage("granite4_vision_text", "granite_docling_text", layers=plain_decoder)
lineage(
    "granite_swa",
    layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if i % 4 else FULL)),
    block=Plain(qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", more=sinks),
)
lineage("granitemoe", "granitemoeshared", block=Plain(qkv_bias=BIAS, o_bias=BIAS, moe=GRANITE_SHARED))
lineage(
    "granitemoe_swa",
    layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if i % 4 else FULL)),
    block=Plain(qkv_bias=BIAS, o_bias=BIAS, moe=GRANITE_SHARED, more=sinks),
)
lineage(
    "granitemoehybrid",
    layers=Recipe({**ATTENTION, LINEAR: mamba2_parts}, all_of(LINEAR), keys=BLOCK_TYPE_KEYS),
    tensors=granite_tensors,
)
