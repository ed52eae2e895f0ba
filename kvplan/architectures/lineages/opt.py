"""OPT, XGLM and BioGPT: decoders as fairseq names them.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/opt.py; huggingface/transformers 5.23.0
models/{xglm,biogpt}.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import LAYER, AttentionNames, linear, whole
from kvplan.architectures.blocks.plain import FAIRSEQ_NORMS, OUT_PROJ, Plain, unshared_heads
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.weights.inventory import Place, Placed


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
        heads=unshared_heads,
        qkv_bias=True,
        o_bias=True,
        mlp="",
        mlp_bias=True,
        gated=False,
        mlp_names=("", "fc1", "fc2"),
        width=width,
    )


def _opt_projections(view: ConfigView) -> list[Placed]:
    """project_in and project_out where the embedding is narrower than the model."""
    narrow, wide = view.integer("word_embed_proj_dim", "hidden_size"), view.integer("hidden_size")
    if narrow == wide:
        return []
    model, table = whole("hidden_size", int(wide)), whole("word_embed_proj_dim", int(narrow))
    made = linear("model.decoder.project_in", model, table)
    return at(Place.EVERY, made + linear("model.decoder.project_out", table, model))


OPT = Frame(
    layers="model.decoder.layers",
    embed="model.decoder.embed_tokens",
    final_norm="model.decoder.final_layer_norm",
    norm=LAYER,
    positions=("model.decoder.embed_positions", "max_position_embeddings", 2),
    everywhere=True,
    embed_width=("word_embed_proj_dim", "hidden_size"),
    final_norm_if=lambda view: (
        view.flag("do_layer_norm_before", default=True) and not view.flag("_remove_final_layer_norm")
    ),
    extra=_opt_projections,
)


lineage(
    "opt",
    block=Plain(
        frame=OPT,
        norm=LAYER,
        norms=("self_attn_layer_norm", "final_layer_norm"),
        names=AttentionNames(output="self_attn.out_proj"),
        heads=unshared_heads,
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        mlp="",
        mlp_bias="enable_bias",
        gated=False,
        mlp_names=("", "fc1", "fc2"),
        width=("ffn_dim",),
    ),
)
lineage(
    "xglm", layers=plain_decoder, tensors=fairseq(_fairseq("model", "layer_norm", None), width=("ffn_dim",))
)
lineage(
    "biogpt",
    layers=plain_decoder,
    tensors=fairseq(
        _fairseq("biogpt", "layer_norm", 2, "max_position_embeddings"), width=("intermediate_size",)
    ),
)
