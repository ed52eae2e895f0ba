"""Muse Glimmer and Spark: windows counted from the end, output gates, a tower.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/muse_glimmer.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import LAYER, attention, even, linear, mlp, norms, vector, whole
from kvplan.architectures.blocks.plain import FOUR_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, by_index
from kvplan.architectures.blocks.tower import (
    Raw,
    encoder_layer,
    placed,
    repeated,
    tower_layers,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Placed


def muse_glimmer_tensors(view: ConfigView) -> Decoder:
    """Attention with an output gate, norms without weight on query and key, four norms around."""
    hidden = hidden_size(view)
    heads, model = heads_of(view), whole("hidden_size", hidden)
    layer = attention(heads, hidden)
    if view.flag("use_attn_output_gate", default=True):
        gate = (even("num_attention_heads", heads.count), whole("head_dim", heads.width))
        layer += linear("self_attn.gate_proj", gate, model)
    layer += mlp("mlp", hidden, int(view.integer("intermediate_size"))) + norms(FOUR_NORMS, model)
    return Decoder(Frame(everywhere=True), (layer,) * int(view.num_layers()))


def _muse(raw: Raw, view: ConfigView) -> list[Placed]:
    """A tower whose attention is divided and whose perceptrons, adapter and projection are whole."""
    vision = vision_view(raw)
    hidden, path = int(vision.integer("hidden_size")), "vision_encoder"
    model, patch = whole("vision hidden_size", hidden), int(vision.integer("patch_size"))
    frames = int(vision.optional_integer("patch_temporal") or 2)
    rows = int(vision.integer("pos_emb_height")) * int(vision.integer("pos_emb_width"))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_attention_heads")),
        int(vision.integer("intermediate_size")),
        names=("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj"),
        mlp_names=("", "mlp.c_fc", "mlp.c_proj"),
        norm_names=("ln_1", "ln_2"),
        divided=False,
    )
    made = vector(f"{path}.positional_embedding_vlm", whole("positions", rows), model)
    made += linear(
        f"{path}.conv1_linear", model, whole("channels × frames × patch_size²", 3 * frames * patch**2)
    )
    made += norms((f"{path}.ln_pre", f"{path}.ln_post"), model, LAYER)
    made += repeated(f"{path}.transformer", layer, tower_layers(vision))
    top = wrapper_view(raw)
    out = int(top.optional_integer("out_hidden_size") or 6144)
    inner = int(top.optional_integer("projector_hidden_size") or 4096)
    wide, middle = whole("out_hidden_size", out), whole("projector_hidden_size", inner)
    made += linear("vision_adapter.c_fc", middle, wide) + linear("vision_adapter.c_proj", middle, middle)
    return placed(made + linear("vision_projection", whole("hidden_size", hidden_size(view)), middle))


lineage("muse_glimmer", tower=_muse)
lineage(
    "muse_glimmer_text",
    layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if (n - 1 - i) % 4 else FULL)),
    tensors=muse_glimmer_tensors,
)
lineage(
    "muse_spark_text", layers=Recipe(ATTENTION, by_index(lambda i, n: SLIDING if (n - 1 - i) % 4 else FULL))
)
