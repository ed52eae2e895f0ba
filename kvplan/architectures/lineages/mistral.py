"""Mistral, Ministral, Mixtral, Mistral 4 and Large 4, Pixtral, Voxtral.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/mistral3.py, pixtral.py, mixtral.py,
lightonocr.py; huggingface/transformers 5.23.0 models/{mistral,ministral,mistral4,mistral_large4}.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.blocks.decoder import ATTENTION, one_kind, plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.latent import (
    DSA,
    MLA,
    PLAIN_ROUTED,
    both_norms,
    dense_forward,
    indexer_types,
    latent,
    mla_attention,
    without_indexer,
)
from kvplan.architectures.blocks.moe import Moe
from kvplan.architectures.blocks.parts import linear, norm, whole
from kvplan.architectures.blocks.plain import BIAS, EVERYWHERE, LLAMA, Plain, hidden_size
from kvplan.architectures.blocks.recipe import (
    FULL,
    INDEXED,
    SLIDING,
    Parts,
    Recipe,
    all_of,
    index_list,
    rope_layers,
)
from kvplan.architectures.blocks.tower import (
    Raw,
    pixtral,
    placed,
    two_layer_projector,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import SharedKv, SparseIndexer
from kvplan.weights.inventory import Placed


def _mistral_large4_sharing(view: ConfigView, kinds: list[str]) -> Mapping[int, Parts]:
    """Layers that read an earlier layer's latent hold nothing, or index keys only."""
    count = len(kinds)
    types = indexer_types(view, count)
    sources = index_list(view, "kv_source_layers")
    if sources is not None and len(sources) != count:
        raise view.refuse("kv_source_layers", f"{len(sources)} entries for {count} layers")
    rope = rope_layers(view, count)
    shared: dict[int, Parts] = {
        index: latent(view if rope[index] else view.with_values({"qk_rope_head_dim": 0}))
        for index in without_indexer(view, kinds, types)
    }
    for index, source in enumerate(sources or range(count)):
        if source != index:
            own = () if types[index] == "shared" else (SparseIndexer(view.integer("index_head_dim")),)
            shared[index] = (SharedKv(), *own)
    return shared


def _without_rope(view: ConfigView, kinds: list[str]) -> Mapping[int, Mapping[str, object]]:
    """Layers without rotary positions keep the latent only."""
    rope = rope_layers(view, len(kinds))
    return {index: {"qk_rope_head_dim": 0} for index in range(len(kinds)) if not rope[index]}


def _ministral(view: ConfigView, count: int) -> list[str]:
    return [FULL if view.get("sliding_window") is None else SLIDING] * count


def mistral4_tensors(view: ConfigView) -> Decoder:
    """DeepSeek's layers, experts in all of them, a router without correction."""
    mixer = mla_attention(view, bias=view.flag(BIAS)) + both_norms(view)
    made = {True: mixer + PLAIN_ROUTED.tensors(view), False: mixer + dense_forward(view)}
    sparse = [PLAIN_ROUTED.layer_is_sparse(view, index) for index in range(int(view.num_layers()))]
    return Decoder(Frame(), tuple(made[one] for one in sparse))


def _mistral3(raw: Raw, view: ConfigView) -> list[Placed]:
    """Pixtral, a merger of spatial_merge_size² patches, two projections."""
    vision = vision_view(raw)
    top, hidden = wrapper_view(raw), int(vision.integer("hidden_size"))
    merge = int(top.optional_integer("spatial_merge_size") or 2)
    model, path = whole("vision hidden_size", hidden), "multi_modal_projector"
    made = pixtral(vision) + norm(f"{path}.norm", model)
    made += linear(f"{path}.patch_merger.merging_layer", model, (whole("merged patches", merge**2), model))
    bias = top.flag("multimodal_projector_bias")
    return placed(made + two_layer_projector(view, hidden, hidden_size(view), bias=bias))


_PIXTRAL = Rule("rows", merge=("spatial_merge_size", 1), source="Pixtral: longest_edge is image_size")


lineage("mistral", block=LLAMA)
lineage("ministral", layers=Recipe(ATTENTION, _ministral), block=LLAMA)
lineage(
    "ministral3",
    block=LLAMA,
    tower=lambda raw, view: _mistral3(raw, view) if raw.get("vision_config") else [],
)
lineage(
    "mistral3",
    tower=_mistral3,
    media=Rule("rows", merge=("spatial_merge_size", 2), source="longest_edge is image_size"),
)
lineage("mistral4", layers=Recipe(MLA, one_kind), tensors=mistral4_tensors)
lineage(
    "mixtral",
    block=Plain(
        frame=EVERYWHERE,
        moe=Moe(
            experts="block_sparse_moe.experts",
            gate="block_sparse_moe.gate",
            count=("num_local_experts",),
            width=("intermediate_size",),
        ),
    ),
)
lineage(
    "mistral_large4_text",
    layers=Recipe(DSA, all_of(INDEXED), sharing=_mistral_large4_sharing, overrides=_without_rope),
)
lineage("pixtral", media=_PIXTRAL)
lineage("voxtral", media=Rule(audio="chunks", source="375 tokens for every started 30 s"))
lineage("voxtral_realtime_text", layers=plain_decoder)
lineage("lighton_ocr", tower=_mistral3)
