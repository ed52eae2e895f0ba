"""Cohere's Command models, Compass, Aya Vision and Command A Vision.

Sources: huggingface/transformers 5.23.0 models/{cohere,cohere2,cohere2_moe,cohere_compass};
vllm-project/vllm 0.32 vllm/model_executor/models/commandr.py, aya_vision.py, cohere2_vision.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe, by_types_or, shared_by_count
from kvplan.architectures.blocks.parts import LAYER, even, linear, norm, whole
from kvplan.architectures.blocks.plain import BIAS, EVERYWHERE, ONE_NORM, Plain, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, all_of, every_key
from kvplan.architectures.blocks.tower import (
    FACTOR,
    Raw,
    placed,
    siglip_with_head,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.view import MAX_FACTOR, ConfigView
from kvplan.architectures.registry import lineage
from kvplan.weights.inventory import Placed


def _cohere2_moe(view: ConfigView, count: int) -> list[str]:
    dense = min(view.optional_integer("first_k_dense_replace", default=0, lowest=0) or 0, count)
    first = every_key("prefix_dense_sliding_window_pattern", 1, SLIDING, FULL)(view, dense)
    return first + every_key("sliding_window_pattern", 4, SLIDING, FULL)(view, count - dense)


def _shuffled(raw: Raw, view: ConfigView) -> list[Placed]:
    """SigLIP, factor² patches side by side, a gated pair of projections (Aya Vision: a norm before)."""
    vision, top = vision_view(raw), wrapper_view(raw)
    factor = int(top.optional_integer("downsample_factor", highest=MAX_FACTOR) or FACTOR)
    wide = whole("patches side by side", int(vision.integer("hidden_size")) * factor**2)
    usual = hidden_size(view) if top.model_type == "aya_vision" else 36_864
    between = int(top.optional_integer("alignment_intermediate_size") or usual)
    path = "multi_modal_projector"
    made = siglip_with_head(vision)
    if top.model_type == "aya_vision":
        made += norm(f"{path}.layernorm", wide, kind=LAYER)
    made += linear(f"{path}.linear_1", even("projector width", between), wide, bias=True)
    half = even("projector width / 2", between // 2)
    return placed(made + linear(f"{path}.linear_2", whole("hidden_size", hidden_size(view)), half, bias=True))


lineage(
    "cohere",
    block=Plain(
        frame=Frame(everywhere=True, tied=True),
        norms=("input_layernorm",),
        qk_norm="per_head",
        qk_norm_if="use_qk_norm",
    ),
)
lineage(
    "cohere2",
    layers=Recipe(ATTENTION, every_key("sliding_window_pattern", 4, SLIDING, FULL)),
    block=Plain(frame=Frame(everywhere=True, tied=True), norms=("input_layernorm",)),
)
lineage(
    "cohere2_moe",
    layers=Recipe(ATTENTION, _cohere2_moe),
    block=Plain(
        frame=EVERYWHERE,
        norms=ONE_NORM,
        qkv_bias=BIAS,
        o_bias=BIAS,
        width=("prefix_dense_intermediate_size",),
        moe=Moe(
            layer_is_sparse=by_types_or(0),
            width=("intermediate_size",),
            shared=shared_by_count("num_shared_experts", width="intermediate_size"),
        ),
    ),
)
lineage(
    "cohere_compass_text",
    layers=Recipe(ATTENTION, all_of(FULL)),
    block=Plain(frame=Frame(everywhere=True), norms=ONE_NORM, qkv_bias=BIAS, o_bias=BIAS),
)
lineage("aya_vision", "cohere2_vision", tower=_shuffled)
