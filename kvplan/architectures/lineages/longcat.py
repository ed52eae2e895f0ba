"""LongCat-Flash: two attentions and perceptrons a layer, experts without weights.

Sources: huggingface/transformers 5.23.0 models/longcat_flash; vllm-project/vllm 0.32
vllm/model_executor/models/longcat_flash.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import one_kind
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.latent import MLA, mla_attention
from kvplan.architectures.blocks.parts import Tensors, embedding, experts, mlp, norms, router, vector, whole
from kvplan.architectures.blocks.plain import BIAS, hidden_size
from kvplan.architectures.blocks.recipe import Recipe
from kvplan.architectures.config.custom_types import copy_of
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import FINAL_NORMS, Forward, Joins, Prediction, Project
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Place, Placed


def _longcat_layers(view: ConfigView) -> int:
    """Two attention blocks, each with a cache of its own, in every layer."""
    doubled = view.optional_integer("num_hidden_layers") if view.given("num_hidden_layers") else None
    if doubled is not None:
        return derived(doubled // 2 * 2, "num_hidden_layers (two attention blocks a layer)")
    return derived(2 * view.num_layers("num_layers"), "2 * num_layers (two attention blocks a layer)")


def longcat_flash_tensors(view: ConfigView) -> Decoder:
    """Two attentions and two perceptrons a layer; experts beside them, some of which have no weights."""
    hidden = hidden_size(view)
    model, width = whole("hidden_size", hidden), int(view.integer("ffn_hidden_size", "intermediate_size"))
    layer: Tensors = ()
    for place in "01":
        layer += mla_attention(view, bias=view.flag(BIAS), path=f"self_attn.{place}")
        layer += mlp(f"mlps.{place}", hidden, width)
        layer += norms((f"input_layernorm.{place}", f"post_attention_layernorm.{place}"), model)
    count = int(view.integer("n_routed_experts"))
    named = count + int(view.optional_integer("zero_expert_num", default=0, lowest=0) or 0)
    layer += router(
        "mlp.router.classifier",
        named,
        hidden,
        bias=view.flag("router_bias"),
        dtype="float32",
        correction="mlp.router.e_score_correction_bias",
    )
    layer += experts(
        "mlp.experts", count, hidden, int(view.integer("expert_ffn_hidden_size", "moe_intermediate_size"))
    )
    frame = Frame(extra=_ngram_embeddings)
    return Decoder(frame, (layer,) * int(view.num_layers("num_layers", "num_hidden_layers")))


def _ngram_embeddings(view: ConfigView) -> list[Placed]:
    """Tables of the n-grams of 2 to emb_neighbor_num tokens, emb_split_num each, and their projections.

    vllm-project/vllm 0.33 vllm/model_executor/models/longcat_flash_ngram.py (NgramEmbedding): the tables'
    sizes are m + 1, m + 3 … for m = ngram_vocab_size_ratio × vocab_size, side by side in one.
    """
    if not view.get("ngram_vocab_size_ratio"):
        return []
    hidden = hidden_size(view)
    ratio = view.number("ngram_vocab_size_ratio", default=1, lowest=1e-3, highest=1e4)
    tables = int(view.integer("emb_split_num")) * (int(view.integer("emb_neighbor_num", lowest=2)) - 1)
    rows = sum(int(ratio * view.integer("vocab_size") + 2 * index + 1) for index in range(tables))
    width = hidden // tables
    path = "model.ngram_embeddings"
    made = (embedding(f"{path}.embedders", rows, width),)
    shape = (whole("tables", tables), whole("width of a table", width), whole("hidden_size", hidden))
    return at(Place.FIRST, made + vector(f"{path}.post_projs", *shape))


_PREDICTION = Prediction(
    default=1,
    most=1,
    without=(".1.",),
    forward=Forward.DENSE,
    joins=Joins(FINAL_NORMS, project=Project.REPLICATED),
    path="model.mtp.layers.{i}",
)
lineage(
    "longcat_flash",
    layers=Recipe(MLA, one_kind, count=_longcat_layers),
    tensors=longcat_flash_tensors,
    prediction=_PREDICTION,
)
lineage(
    "longcat_flash_ngram",
    reads=copy_of(
        "longcat_flash", "vllm-project/vllm 0.33 vllm/model_executor/models/longcat_flash_ngram.py"
    ),
    prediction=_PREDICTION,
)
