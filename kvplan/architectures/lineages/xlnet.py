"""Early decoders with ways of their own: XLNet, XLM, GPT-1, CTRL, Reformer, CPM-Ant.

Source: huggingface/transformers 5.23.0 models/<type>/.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import num_heads, uniform
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    LAYER,
    AttentionNames,
    Heads,
    Tensors,
    attention,
    embedding,
    even,
    linear,
    mlp,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import Plain, hidden_size, unshared_heads
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.gpt import GPT2_ROW
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, HiddenMemory, NoCache, PromptTokens
from kvplan.model import Layer
from kvplan.record import replace
from kvplan.weights.inventory import Place, Placed, Role


def cpmant_layers(view: ConfigView) -> list[Layer]:
    """prompt_length learned tokens stand before every request."""
    heads, width = num_heads(view), view.integer("dim_head")
    prompt = view.integer("prompt_length", lowest=0)
    part = FullAttention(heads, width)
    return uniform(view, part, PromptTokens(prompt, heads, width)) if prompt else uniform(view, part)


def xlnet_layers(view: ConfigView) -> list[Layer]:
    """Hidden states of mem_len tokens; without mem_len all are kept (modeling_xlnet.py, cache_mem)."""
    memory = view.optional_integer("mem_len", lowest=0) or None
    return [Layer((HiddenMemory(view.integer("hidden_size"), memory),))] * view.num_layers()


READS_AGAIN = "keeps no cache: the class reads the whole prompt again at every step"
"""Measured with transformers 5.23.0."""


def without_cache_layers(view: ConfigView) -> list[Layer]:
    return [Layer((NoCache(),))] * view.num_layers()


def reformer_layers(view: ConfigView) -> list[Layer]:
    raise view.refuse(
        "model_type",
        "the cache of hidden states and hash buckets follows the tokens' values and has no formula",
    )


def _cpm_ends(view: ConfigView) -> list[Placed]:
    """Segments, and buckets of distances within and between segments."""
    model = whole("hidden_size", hidden_size(view))
    kinds = int(view.integer("segment_types"))
    made = vector("cpmant.segment_embedding", whole("segment_types", kinds), model)
    buckets = int(view.integer("position_bias_num_buckets")) + kinds * kinds
    heads = even("num_attention_heads", int(num_heads(view)))
    made += vector("cpmant.position_bias.relative_attention_bias", whole("buckets", buckets), heads)
    table = int(view.integer("prompt_types")) * int(view.integer("prompt_length"))
    made += vector("cpmant.input_embedding.prompts", whole("prompt_types × prompt_length", table), model)
    return at(Place.EVERY, made)


def cpmant_tensors(view: ConfigView) -> Decoder:
    """The embedding has rows for prompts beside the vocabulary; the head is stored beside it."""
    hidden = hidden_size(view)
    count, width = int(num_heads(view)), int(view.integer("dim_head"))
    path = "self_att.self_attention"
    names = AttentionNames(
        f"{path}.project_q", f"{path}.project_k", f"{path}.project_v", f"{path}.attention_out"
    )
    layer = attention(Heads(count, count, width, width), hidden, names=names)
    layer += mlp("ffn.ffn", hidden, int(view.integer("dim_ff")), names=("w_in.w_0", "w_in.w_1", "w_out"))
    layer += norms(
        ("self_att.layernorm_before_attention", "ffn.layernorm_before_ffn"), whole("hidden_size", hidden)
    )
    frame = Frame(
        layers="cpmant.encoder.layers",
        embed="cpmant.input_embedding",
        final_norm="cpmant.encoder.output_layernorm",
        tied=False,
        extra=_cpm_ends,
    )
    return Decoder(frame, (layer,) * int(view.num_layers()))


def _xlnet_ends(view: ConfigView) -> list[Placed]:
    rows = embedding("lm_loss", int(view.integer("vocab_size")), 1, Role.HEAD).rows[0]
    made = vector("transformer.mask_emb", whole("d_model", hidden_size(view))) + vector("lm_loss.bias", rows)
    return at(Place.EVERY, made)


def xlnet_tensors(view: ConfigView) -> Decoder:
    """Relative attention: five projections, three biases and two segments a head."""
    hidden, heads = hidden_size(view), even("n_head", int(num_heads(view)))
    model, width = whole("d_model", hidden), whole("d_head", hidden // heads.value)
    layer: Tensors = ()
    for name in ("q", "k", "v", "o", "r"):
        layer += linear(f"rel_attn.{name}", (heads, width), model)
    for name in ("r_r_bias", "r_s_bias", "r_w_bias"):
        layer += vector(f"rel_attn.{name}", heads, width)
    layer += vector("rel_attn.seg_embed", whole("segments", 2), heads, width)
    layer += norms(("rel_attn.layer_norm", "ff.layer_norm"), model, LAYER)
    layer += mlp(
        "ff", hidden, int(view.integer("d_inner")), gated=False, bias=True, names=("", "layer_1", "layer_2")
    )
    frame = Frame(
        layers="transformer.layer",
        embed="transformer.word_embedding",
        final_norm_if=False,
        head="lm_loss",
        extra=_xlnet_ends,
    )
    return Decoder(frame, (layer,) * int(view.num_layers("n_layer", "num_hidden_layers")))


lineage("xlnet", layers=xlnet_layers, tensors=xlnet_tensors)
lineage("xlm", layers=without_cache_layers, no_cache=f"xlm {READS_AGAIN}")
lineage("reformer", layers=reformer_layers)
lineage(
    "ctrl",
    block=Plain(
        frame=Frame(
            layers="transformer.h",
            embed="transformer.w",
            final_norm="transformer.layernorm",
            norm=LAYER,
            head_bias=True,
            everywhere=True,
        ),
        norm=LAYER,
        norms=("layernorm1", "layernorm2"),
        names=AttentionNames(
            "multi_head_attention.Wq",
            "multi_head_attention.Wk",
            "multi_head_attention.Wv",
            "multi_head_attention.dense",
        ),
        heads=unshared_heads,
        qkv_bias=True,
        o_bias=True,
        mlp="ffn",
        mlp_bias=True,
        gated=False,
        mlp_names=("", "0", "2"),
        width=("dff",),
    ),
)
lineage(
    "openai-gpt",
    layers=without_cache_layers,
    block=replace(
        GPT2_ROW,
        frame=replace(
            GPT2_ROW.frame,
            embed="transformer.tokens_embed",
            positions=("transformer.positions_embed", "n_positions", 0),
            final_norm_if=False,
            tied="tie_word_embeddings",
        ),
    ),
    no_cache=f"openai-gpt {READS_AGAIN}",
)
lineage("cpmant", layers=cpmant_layers, tensors=cpmant_tensors)
