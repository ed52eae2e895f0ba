"""MiniMax-M3, RecurrentGemma and Llama 3.2 Vision.

Source: vllm-project/vllm 0.32 vllm/models/minimax_m3/nvidia/model.py; the others, which vLLM has no classes
for any more, from transformers 5.23.0 models/{recurrent_gemma,mllama}/modeling_*.py, with matrices
divided by heads and widths as engines divide every decoder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages.layers.recipe import index_list
from kvplan.architectures.lineages.tensors.frame import Frame
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    Heads,
    Tensors,
    attention,
    even,
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
from kvplan.architectures.lineages.tensors.plain import heads_of, hidden_size
from kvplan.architectures.lineages.tensors.registry import TOWERS, Decoder, decoder
from kvplan.architectures.lineages.tensors.tower_parts import (
    placed,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.weights.inventory import Dim, Placed, Split

TWO = ("input_layernorm", "post_attention_layernorm")


@decoder("minimax_m3", "minimax_m3_text", "minimax_m3_vl_text")
def minimax_m3(view: ConfigView) -> Decoder:
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
    around = norms(TWO, model)
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


@decoder("recurrent_gemma")
def recurrent_gemma(view: ConfigView) -> Decoder:
    """RG-LRU blocks with gates in blocks of a head each, and attention; perceptrons of half the width."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    heads = heads_of(view)
    lru = int(view.optional_integer("lru_width") or hidden)
    wide, number = even("lru_width", lru), even("num_attention_heads", heads.count)
    block = whole("block width", lru // heads.count)
    path = "temporal_block"
    recurrent = linear(f"{path}.linear_y", wide, model, bias=True)
    recurrent += linear(f"{path}.linear_x", wide, model, bias=True)
    recurrent += linear(f"{path}.linear_out", model, wide, bias=True)
    recurrent += vector(f"{path}.conv_1d", wide, keyed(view, "conv1d_width"))
    recurrent += vector(f"{path}.conv_1d.bias", wide) + vector(f"{path}.rg_lru.recurrent_param", wide)
    for gate in ("input_gate", "recurrent_gate"):
        recurrent += vector(f"{path}.rg_lru.{gate}_weight", number, block, block)
        recurrent += vector(f"{path}.rg_lru.{gate}_bias", number, block)
    mixers = {
        "recurrent": recurrent,
        "attention": attention(heads, hidden, qkv_bias=bool(view.get("attention_bias")), o_bias=True),
    }
    rest = mlp("mlp_block", hidden, int(view.integer("intermediate_size")) // 2, bias=True)
    rest += norms(("temporal_pre_norm", "channel_pre_norm"), model)
    words = view.sequence("block_types") or ["recurrent", "recurrent", "attention"]
    kinds = [str(words[index % len(words)]) for index in range(int(view.num_layers()))]
    for kind in kinds:
        if kind not in mixers:
            raise view.refuse("block_types", f"unknown layer type {kind[:40]!r}")
    return Decoder(Frame(final_norm="model.final_norm"), tuple(mixers[kind] + rest for kind in kinds))


@decoder("mllama_text_model")
def mllama(view: ConfigView) -> Decoder:
    """Llama's layers; those of cross_attention_layers read the image, with norms and two gates.

    The embedding has eight rows more than the output head.
    """
    hidden, count = hidden_size(view), int(view.num_layers())
    heads = _heads(view)
    given = view.sequence("cross_attention_layers")
    if given is None:
        raise view.missing("cross_attention_layers")
    forward = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    forward += norms(TWO, whole("hidden_size", hidden))
    cross = attention(heads, hidden, qk_norm="head")
    for gate in ("cross_attn_attn_gate", "cross_attn_mlp_gate"):
        cross += vector(gate, whole("one", 1))
    own = attention(heads, hidden)
    more = vector("model.embed_tokens.image", whole("image tokens", 8), whole("hidden_size", hidden))
    return Decoder(
        Frame(tied=False, extra=lambda _: placed(more)),
        tuple((cross if index in given else own) + forward for index in range(count)),
    )


def _heads(view: ConfigView) -> Heads:
    count = int(view.integer("num_attention_heads"))
    width = hidden_size(view) // count
    return Heads(count, int(view.optional_integer("num_key_value_heads") or count), width, width)


def _mllama_tower(raw: Mapping[str, Any], view: ConfigView) -> list[Placed]:
    """Tiles of patches, a local and a global transformer (with gates), then one projection."""
    vision, path = vision_view(raw), "vision_model"
    hidden, heads = int(vision.integer("hidden_size")), int(vision.integer("attention_heads"))
    patch, tiles = int(vision.integer("patch_size")), int(vision.integer("max_num_tiles"))
    model, one = whole("vision hidden_size", hidden), whole("one", 1)
    positions = whole("positions", (int(vision.integer("image_size")) // patch) ** 2 + 1)
    ratios = vision.sequence("supported_aspect_ratios")
    if ratios is None:
        raise vision.missing("supported_aspect_ratios")
    kinds, tile = whole("aspect ratios and none", len(ratios) + 1), whole("max_num_tiles", tiles)
    made = vector(f"{path}.class_embedding", model)
    made += vector(
        f"{path}.patch_embedding", model, keyed(vision, "num_channels"), whole("patch_size²", patch**2)
    )
    place = f"{path}.gated_positional_embedding"
    made += vector(f"{place}.gate", one) + vector(f"{place}.embedding", positions, model)
    made += vector(f"{place}.tile_embedding", kinds, tile, positions, model)
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        made += vector(f"{path}.{name}.gate", one)
        made += vector(f"{path}.{name}.embedding", kinds, tile, model)
    made += norm(f"{path}.layernorm_pre", model, kind=LAYER)
    made += norm(f"{path}.layernorm_post", model, kind=LAYER)
    layer = _tile_layer(hidden, heads, int(vision.integer("intermediate_size")))
    gated = layer + vector("gate_attn", one) + vector("gate_ffn", one)
    made += repeated(f"{path}.transformer.layers", layer, tower_layers(vision))
    made += repeated(f"{path}.global_transformer.layers", gated, tower_layers(vision, "num_global_layers"))
    text = even("hidden_size", hidden_size(view))
    return placed(made + linear("multi_modal_projector", text, keyed(vision, "vision_output_dim"), bias=True))


def _tile_layer(hidden: int, heads: int, inner: int) -> Tensors:
    """Attention without biases, a perceptron with them."""
    model, wide = whole("vision hidden_size", hidden), even("vision intermediate_size", inner)
    made = attention(Heads(heads, heads, hidden // heads, hidden // heads), hidden)
    made += linear("mlp.fc1", wide, model, bias=True) + linear("mlp.fc2", model, wide, bias=True)
    return made + norms(TWO, model, LAYER)


TOWERS["mllama"] = _mllama_tower
