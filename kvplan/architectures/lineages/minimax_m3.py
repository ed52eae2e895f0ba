"""MiniMax-M3: an indexer beside grouped-query attention.

Sources: huggingface/transformers 5.23.0 models/minimax_m3_vl; vllm-project/vllm 0.32
vllm/models/minimax_m3/nvidia/model.py, 0.33 vllm/models/minimax_m3/common/vision_tower.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import (
    LAYER,
    Tensors,
    attention,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, Parts, Recipe, index_list
from kvplan.architectures.blocks.tower import (
    VISION,
    Raw,
    encoder_layer,
    placed,
    repeated,
    tower_layers,
    two_layer_projector,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.config.custom_types import VLLM_CONFIGS, copy_of, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import FINAL_NORMS, MODULE_KEYS, MTP_PATH, Joins, Prediction, Project
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, SparseIndexer
from kvplan.weights.inventory import Dim, Placed, Split


def _gqa_indexed(view: ConfigView) -> Parts:
    sparse = view.inner("sparse_attention_config")
    width = sparse.optional_integer("sparse_index_dim") or view.integer("index_head_dim")
    return (FullAttention(num_kv_heads(view), head_dim(view)), SparseIndexer(width))


def _minimax_m3(view: ConfigView, count: int) -> list[str]:
    frequency = index_list(view.inner("sparse_attention_config"), "sparse_attention_freq")
    if frequency is None:
        return [FULL] * count
    if len(frequency) != count:
        raise view.refuse(
            "sparse_attention_config.sparse_attention_freq", f"{len(frequency)} entries for {count} layers"
        )
    return ["minimax_m3_sparse" if sparse else FULL for sparse in frequency]


def minimax_m3_tensors(view: ConfigView) -> Decoder:
    """Grouped attention, in sparse layers with an indexer beside it; dense perceptrons, then experts."""
    hidden, count = hidden_size(view), int(view.num_layers())
    heads, model = heads_of(view), whole("hidden_size", hidden)
    sparse = view.inner("sparse_attention_config")
    plain = attention(heads, hidden, qk_norm="head")
    index = _index(sparse, model)
    number, width = int(view.integer("num_local_experts")), int(view.integer("intermediate_size"))
    moe = router(
        "block_sparse_moe.gate",
        number,
        hidden,
        dtype="float32",
        correction="block_sparse_moe.e_score_correction_bias" if view.flag("use_routing_bias") else None,
    )
    moe += experts("block_sparse_moe.experts", number, hidden, width)
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)
    if shared:
        moe += mlp("block_sparse_moe.shared_experts", hidden, width * shared)
    dense = mlp("mlp", hidden, int(view.integer("dense_intermediate_size")))
    indexed = _frequency(sparse, "sparse_attention_freq", count)
    routed = _frequency(view, "moe_layer_freq", count)
    around = norms(TWO_NORMS, model)
    return Decoder(
        Frame(),
        tuple(
            plain + (index if indexed[place] else ()) + (moe if routed[place] else dense) + around
            for place in range(count)
        ),
    )


def _index(sparse: ConfigView, model: Dim) -> Tensors:
    """Index queries divided as the KV heads, one index key for all."""
    count = Dim("sparse_num_index_heads", int(sparse.integer("sparse_num_index_heads")), Split.HEADS_KEPT)
    width = keyed(sparse, "sparse_index_dim")
    made = linear("self_attn.index_q_proj", (count, width), model)
    made += linear("self_attn.index_k_proj", width, model)
    return made + norm("self_attn.index_q_norm", width) + norm("self_attn.index_k_norm", width)


def _frequency(view: ConfigView, key: str, count: int) -> list[int]:
    """One entry a layer. Raises KvplanError(missing-key | bad-config)."""
    found = index_list(view, key)
    if found is None:
        raise view.missing(key)
    if len(found) != count:
        raise view.refuse(key, f"{len(found)} entries for {count} layers")
    return list(found)


_MINIMAX_M3 = Prediction(MODULE_KEYS, joins=Joins(FINAL_NORMS, project=Project.REPLICATED), path=MTP_PATH)


def _seen(raw: Raw, view: ConfigView) -> list[Placed]:
    """CLIP's layers over patches of two frames, no norm behind; a projector, and a merger of its outputs."""
    vision, wrapper, path = vision_view(raw), wrapper_view(raw), "vision_tower.vision_model"
    joined = vision.inner("img_token_compression_config")
    hidden, text = int(vision.integer("hidden_size")), hidden_size(view)
    model, frames = whole(VISION, hidden), int(joined.integer("temporal_patch_size"))
    patch = int(vision.integer("patch_size"))
    pixels = whole("channels × frames × patch_size²", int(vision.integer("num_channels")) * frames * patch**2)
    made = vector(f"{path}.embeddings.patch_embedding", model, pixels)
    made += norm(f"{path}.pre_layrnorm", model, kind=LAYER)
    heads, inner = int(vision.integer("num_attention_heads")), int(vision.integer("intermediate_size"))
    made += repeated(f"{path}.encoder.layers", encoder_layer(hidden, heads, inner), tower_layers(vision))
    between = int(wrapper.optional_integer("projector_hidden_size") or text)
    bias = wrapper.flag("multimodal_projector_bias")
    made += two_layer_projector(view, hidden, between, bias=bias)
    merged = text * int(joined.integer("spatial_merge_size")) ** 2
    return placed(made + two_layer_projector(view, merged, between, bias=bias, path="patch_merge_mlp"))


lineage("minimax_m3_vl", tower=_seen)
lineage(
    "minimax_m3",
    reads=copy_of("minimax_m3_vl_text", VLLM_CONFIGS + "minimax_m3.py"),
    tensors=minimax_m3_tensors,
    prediction=_MINIMAX_M3,
)
lineage(
    "minimax_m3_text",
    reads=copy_of("minimax_m3_vl_text", VLLM_CONFIGS + "minimax_m3.py"),
    tensors=minimax_m3_tensors,
    prediction=_MINIMAX_M3,
)
lineage(
    "minimax_m3_vl_text",
    layers=Recipe({**ATTENTION, "minimax_m3_sparse": _gqa_indexed}, _minimax_m3),
    tensors=minimax_m3_tensors,
    prediction=_MINIMAX_M3,
)
lineage(
    "minimax_m3_vl_moe",
    reads=wrapper_of(VLLM_CONFIGS + "minimax_m3.py", text_type="minimax_m3_text"),
    tower=_seen,
)
