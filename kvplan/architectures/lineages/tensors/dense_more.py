"""More dense decoders by model type, and those that the library serves and no engine has a class for.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py, against which tests/weights
hold every row; where vllm-project/vllm 0.32 has the class, its file has the same tensors.
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.decoder import head_dim, num_heads
from kvplan.architectures.lineages.tensors.dense_table import JOINT_MLP, LLAMA, all_heads
from kvplan.architectures.lineages.tensors.frame import Frame, at
from kvplan.architectures.lineages.tensors.older_table import NEOX_MLP, OLDER
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    AttentionNames,
    Heads,
    Tensors,
    attention,
    embedding,
    even,
    fused,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.plain import TWO_NORMS, Plain, heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import DECODERS, Decoder, decoder
from kvplan.weights.inventory import Place, Placed, Role

NONE = "none"
"""A norm without weight."""
BIAS = "attention_bias"
QK_LAYERNORM = AttentionNames(query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm")
OUT_PROJ = AttentionNames(output="self_attn.out_proj")
FAIRSEQ_NORMS = ("self_attn_layer_norm", "final_layer_norm")
ONE_NORM = ("input_layernorm",)


def sinks(view: ConfigView) -> Tensors:
    """One attention sink for every head."""
    return vector("self_attn.sinks", even("num_attention_heads", int(num_heads(view))))


def _activation(view: ConfigView) -> Tensors:
    """xIELU's two learnt numbers."""
    one = whole("one", 1)
    return vector("mlp.act_fn.alpha_p", one) + vector("mlp.act_fn.alpha_n", one)


def _sub_norms(view: ConfigView) -> Tensors:
    inner = whole("intermediate_size", int(view.integer("intermediate_size")))
    made = norm("self_attn.attn_sub_norm", whole("hidden_size", hidden_size(view)))
    return made + norm("mlp.ffn_sub_norm", inner)


def _lambdas(view: ConfigView) -> Tensors:
    width = whole("head_dim", int(head_dim(view)))
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    return sum((vector(f"self_attn.{name}", width) for name in names), ())


def _post_norms(view: ConfigView) -> tuple[str, ...]:
    return (*TWO_NORMS, "post_norm1", "post_norm2") if view.flag("use_post_norm") else TWO_NORMS


def _persimmon_norms(view: ConfigView) -> Tensors:
    if not view.flag("qk_layernorm", default=True):
        return ()
    width = whole("head_dim", int(head_dim(view)))
    return norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), width, LAYER)


def _four_times(view: ConfigView) -> int:
    return int(view.optional_integer("n_inner", "intermediate_size") or 4 * hidden_size(view))


def _fairseq(path: str, final: str, beside: int | None, positions: str = "") -> Frame:
    """Embeddings as fairseq has them; learnt positions begin after ``beside`` rows of their own."""
    return Frame(
        layers=f"{path}.layers",
        embed=f"{path}.embed_tokens",
        final_norm=f"{path}.{final}",
        norm=LAYER,
        positions=None if beside is None else (f"{path}.embed_positions", positions, beside),
        everywhere=True,
    )


def fairseq(frame: Frame, *, width: tuple[str, ...]) -> Plain:
    """Multi-head attention and a plain perceptron, both with biases, under fairseq's names."""
    return Plain(
        frame=frame,
        norm=LAYER,
        norms=FAIRSEQ_NORMS,
        names=OUT_PROJ,
        heads=all_heads,
        qkv_bias=True,
        o_bias=True,
        mlp="",
        mlp_bias=True,
        gated=False,
        mlp_names=("", "fc1", "fc2"),
        width=width,
    )


DENSE: dict[str, Plain] = {
    "arcee": Plain(qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False),
    "cwm": LLAMA,
    "iquestcoder": LLAMA,
    "ministral": LLAMA,
    "glm4": Plain(
        qkv_bias=BIAS,
        mlp_names=JOINT_MLP,
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
    ),
    "ernie4_5": Plain(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
    "apertus": Plain(
        norms=("attention_layernorm", "feedforward_layernorm"),
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_bias="mlp_bias",
        gated=False,
        qk_norm="head",
        more=_activation,
    ),
    "bitnet": Plain(qkv_bias=BIAS, o_bias=BIAS, more=_sub_norms),
    "vaultgemma": Plain(norms=("input_layernorm", "pre_feedforward_layernorm"), qkv_bias=BIAS, o_bias=BIAS),
    "hunyuan_v1_dense": Plain(
        names=QK_LAYERNORM, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", qk_norm="head"
    ),
    "granite_swa": Plain(qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", more=sinks),
    "hyperclovax": Plain(norms=_post_norms, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias"),
    "jais2": Plain(
        frame=Frame(norm=LAYER), norm=LAYER, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False
    ),
    "nemotron": Plain(
        frame=Frame(norm=LAYER), norm=LAYER, qkv_bias=BIAS, o_bias=BIAS, mlp_bias="mlp_bias", gated=False
    ),
    "nanochat": Plain(
        frame=Frame(norm=NONE),
        norm=NONE,
        qkv_bias=BIAS,
        o_bias=BIAS,
        gated=False,
        mlp_names=("", "fc1", "fc2"),
    ),
    "olmo": Plain(frame=Frame(norm=NONE), norm=NONE, qkv_bias=BIAS, o_bias=BIAS),
    "persimmon": Plain(
        frame=Frame(final_norm="model.final_layernorm", norm=LAYER),
        norm=LAYER,
        names=fused("self_attn", "query_key_value", "dense"),
        heads=all_heads,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        mlp_names=NEOX_MLP,
        more=_persimmon_norms,
    ),
    "diffllama": Plain(qkv_bias=BIAS, o_bias=BIAS, more=_lambdas),
    "cohere_compass_text": Plain(frame=Frame(everywhere=True), norms=ONE_NORM, qkv_bias=BIAS, o_bias=BIAS),
    "codegen": replace(OLDER["gptj"], names=fused("attn", "qkv_proj", "out_proj")),
    "gpt-sw3": replace(OLDER["gpt2"], frame=replace(OLDER["gpt2"].frame, tied="tie_word_embeddings")),
    "gpt_neo": replace(
        OLDER["gpt2"],
        frame=replace(
            OLDER["gpt2"].frame,
            tied="tie_word_embeddings",
            positions=("transformer.wpe", "max_position_embeddings", 0),
        ),
        names=AttentionNames(
            "attn.attention.q_proj",
            "attn.attention.k_proj",
            "attn.attention.v_proj",
            "attn.attention.out_proj",
        ),
        qkv_bias=False,
        width_of=_four_times,
    ),
    "openai-gpt": replace(
        OLDER["gpt2"],
        frame=replace(
            OLDER["gpt2"].frame,
            embed="transformer.tokens_embed",
            positions=("transformer.positions_embed", "n_positions", 0),
            final_norm_if=False,
            tied="tie_word_embeddings",
        ),
    ),
    "ctrl": Plain(
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
        heads=all_heads,
        qkv_bias=True,
        o_bias=True,
        mlp="ffn",
        mlp_bias=True,
        gated=False,
        mlp_names=("", "0", "2"),
        width=("dff",),
    ),
    "biogpt": fairseq(
        _fairseq("biogpt", "layer_norm", 2, "max_position_embeddings"), width=("intermediate_size",)
    ),
    "xglm": fairseq(_fairseq("model", "layer_norm", None), width=("ffn_dim",)),
}
DECODERS.update(DENSE)


@decoder("helium")
def helium(view: ConfigView) -> Decoder:
    """Llama's layers; the output projection is hidden_size × hidden_size, whatever the heads make."""
    hidden, heads, bias = hidden_size(view), heads_of(view), view.flag(BIAS)
    layer = attention(heads, hidden, qkv_bias=bias)
    layer = tuple(tensor for tensor in layer if not tensor.name.startswith("self_attn.o_proj"))
    layer += linear("self_attn.o_proj", whole("hidden_size", hidden), even("hidden_size", hidden))
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=view.flag("mlp_bias"))
    layer += norms(TWO_NORMS, whole("hidden_size", hidden))
    return Decoder(Frame(), (layer,) * int(view.num_layers()))


@decoder("gpt_neox_japanese")
def gpt_neox_japanese(view: ConfigView) -> Decoder:
    """No biases but one behind the last layer's attention."""
    hidden = hidden_size(view)
    inner = int(view.get("intermediate_multiple_size", default=4) * hidden)
    layer = attention(all_heads(view), hidden, names=fused("attention", "query_key_value", "dense"))
    layer += mlp("mlp", hidden, inner, gated=False, names=NEOX_MLP)
    layer += norms(TWO_NORMS, whole("hidden_size", hidden), LAYER)
    last = layer + vector("attention.dense_bias", whole("hidden_size", hidden))
    frame = Frame(
        layers="gpt_neox_japanese.layers",
        embed="gpt_neox_japanese.embed_in",
        final_norm="gpt_neox_japanese.final_layer_norm",
        norm=LAYER,
        head="embed_out",
    )
    return Decoder(frame, (layer,) * (int(view.num_layers()) - 1) + (last,))


def _modernbert_ends(view: ConfigView) -> list[Placed]:
    model = whole("hidden_size", hidden_size(view))
    kind = LAYER if view.flag("norm_bias") else "rms"
    made = norm("model.embeddings.norm", model, kind=kind)
    made += linear("lm_head.dense", model, model, bias=view.flag("classifier_bias"))
    made += norm("lm_head.norm", model, kind=kind)
    if view.flag("decoder_bias", default=True):
        made += vector("decoder.bias", embedding("decoder", int(view.integer("vocab_size")), 1).rows[0])
    return at(Place.EVERY, made)


@decoder("modernbert-decoder")
def modernbert(view: ConfigView) -> Decoder:
    """Gate and up in one matrix; the first layer has no norm before its attention."""
    hidden = hidden_size(view)
    model, kind = whole("hidden_size", hidden), LAYER if view.flag("norm_bias") else "rms"
    names = AttentionNames("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.Wo")
    bias = view.flag(BIAS)
    layer = attention(all_heads(view), hidden, names=names, qkv_bias=bias, o_bias=bias)
    layer += mlp(
        "mlp",
        hidden,
        int(view.integer("intermediate_size")),
        bias=view.flag("mlp_bias"),
        names=("Wi", "Wi", "Wo"),
    )
    layer += norm("mlp_norm", model, kind=kind)
    rest = layer + norm("attn_norm", model, kind=kind)
    frame = Frame(
        embed="model.embeddings.tok_embeddings",
        final_norm="model.final_norm",
        norm=kind,
        head="decoder",
        extra=_modernbert_ends,
    )
    return Decoder(frame, (layer,) + (rest,) * (int(view.num_layers()) - 1))


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


@decoder("cpmant")
def cpmant(view: ConfigView) -> Decoder:
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


@decoder("xlnet")
def xlnet(view: ConfigView) -> Decoder:
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
