"""Llama, Llama 4, Llama 3.2 Vision (mllama), and LLaVA, which put a tower beside it.

Sources: vllm-project/vllm 0.32 vllm/model_executor/models/llama.py, llama4.py, mllama4.py, llava.py,
llava_next.py, llava_onevision.py; huggingface/transformers 5.23.0 models/mllama.
"""

from __future__ import annotations

from kvplan.architectures.blocks.cross import IMAGE, per_head
from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import Moe, shared_by_width
from kvplan.architectures.blocks.parts import (
    LAYER,
    Heads,
    Tensors,
    attention,
    even,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import LLAMA, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import CHUNKED, FULL, Recipe, rope_layers
from kvplan.architectures.blocks.tower import (
    Raw,
    clip_layers,
    encoder_layer,
    pixtral,
    placed,
    repeated,
    siglip,
    tower_layers,
    two_layer_projector,
    vision_view,
    wrapper_view,
)
from kvplan.architectures.blocks.words import by_word
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import Decoder, EncoderRule, lineage
from kvplan.errors import KvplanError
from kvplan.families import CrossAttention, FullAttention
from kvplan.model import Layer
from kvplan.record import Json
from kvplan.weights.inventory import Placed, Split

_MLLAMA_CROSS = range(3, 40, 5)  # what the class takes without a list


def mllama_layers(view: ConfigView) -> list[Layer]:
    """Llama 3.2 Vision: cross_attention_layers keep K and V of the image tokens, nothing of a text prompt.

    They are counted in num_hidden_layers; an index beyond it is ignored. Heads and width are those of the
    self attention (models/mllama/modeling_mllama.py).
    """
    count = view.num_layers()
    where = f"{view.path}cross_attention_layers"
    given = view.sequence("cross_attention_layers")
    crossed = {check_integer(index, where, 0) for index in (_MLLAMA_CROSS if given is None else given)}
    heads = view.integer("num_attention_heads")
    kv = view.optional_integer("num_key_value_heads") or heads
    width = per_head(view, heads, "hidden_size")
    own, image = Layer((FullAttention(kv, width),)), Layer((CrossAttention(kv, width),))
    return [image if index in crossed else own for index in range(count)]


def _llama4(view: ConfigView, count: int) -> list[str]:
    return [CHUNKED if rope else FULL for rope in rope_layers(view, count)]


def mllama_tensors(view: ConfigView) -> Decoder:
    """Llama's layers; those of cross_attention_layers read the image, with norms and two gates.

    The embedding has eight rows more than the output head.
    """
    hidden, count = hidden_size(view), int(view.num_layers())
    heads = _heads(view)
    given = view.sequence("cross_attention_layers")
    if given is None:
        raise view.missing("cross_attention_layers")
    forward = mlp("mlp", hidden, int(view.integer("intermediate_size")))
    forward += norms(TWO_NORMS, whole("hidden_size", hidden))
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


def _mllama_tower(raw: Json, view: ConfigView) -> list[Placed]:
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
    return made + norms(TWO_NORMS, model, LAYER)


LLAMA4_MOE = Moe(
    experts="feed_forward.experts",
    gate="feed_forward.router",
    count=("num_local_experts",),
    width=("intermediate_size",),
    shared=shared_by_width("intermediate_size"),
    shared_path="feed_forward.shared_expert",
    shared_split=Split.SHARED_EXPERT,
)


def llama4_tensors(view: ConfigView) -> Decoder:
    """Every interleave_moe_layer_step-th layer has experts and a shared one, the others a perceptron."""
    hidden, count = hidden_size(view), int(view.num_layers())
    step = view.optional_integer("interleave_moe_layer_step", default=1, lowest=0) or 0
    mixer = attention(heads_of(view), hidden) + norms(TWO_NORMS, whole("hidden_size", hidden))

    def make(word: str) -> Tensors:
        if word == "experts":
            return mixer + LLAMA4_MOE.tensors(view)
        return mixer + mlp("feed_forward", hidden, int(view.integer("intermediate_size_mlp")))

    words = ["experts" if step and (index + 1) % step == 0 else "dense" for index in range(count)]
    return Decoder(Frame(), by_word(words, make))


def _feature_layers(raw: Raw, count: int) -> int:
    """How many tower layers vision_feature_layer needs: -2 leaves the last one out."""
    chosen = raw.get("vision_feature_layer")
    if isinstance(chosen, bool) or not isinstance(chosen, int):
        return count
    return max(0, min(count, count + 1 + chosen if chosen < 0 else chosen))


def _llava(raw: Raw, view: ConfigView) -> list[Placed]:
    """CLIP, SigLIP or Pixtral, then two projections; the layers after the chosen features are not loaded."""
    vision = vision_view(raw)
    hidden = int(vision.integer("hidden_size"))
    if vision.model_type == "pixtral":
        made = pixtral(vision)
    elif vision.model_type == "clip_vision_model":
        made = clip_layers(vision, _feature_layers(raw, tower_layers(vision)))
    elif vision.model_type == "siglip_vision_model":
        made = siglip(vision, _feature_layers(raw, tower_layers(vision)))
    else:
        raise _unknown_tower(vision.model_type)
    bias = wrapper_view(raw).flag("multimodal_projector_bias", default=True)
    return placed(made + two_layer_projector(view, hidden, hidden_size(view), bias=bias))


def _unknown_tower(model_type: str) -> KvplanError:
    return KvplanError(
        "no-weights",
        f"the weights of the vision tower {model_type[:80]!r} cannot be derived from its config",
        help=(
            "put the checkpoint's model.safetensors.index.json or its safetensors files beside the config",
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )


def _llama4_tower(raw: Raw, view: ConfigView) -> list[Placed]:
    """A vision transformer with a class token, an adapter after pixel shuffling, one projection."""
    vision = vision_view(raw)
    hidden, path = int(vision.integer("hidden_size")), "vision_model"
    model, patch = whole("vision hidden_size", hidden), int(vision.integer("patch_size"))
    rows = (int(vision.integer("image_size")) // patch) ** 2 + 1
    inner = int(vision.integer("intermediate_size"))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_attention_heads")),
        inner,
        names=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        norm_names=("input_layernorm", "post_attention_layernorm"),
    )
    made = vector(f"{path}.class_embedding", model)
    made += vector(f"{path}.positional_embedding_vlm", whole("positions", rows), model)
    channels = int(vision.optional_integer("num_channels") or 3)
    flat = whole("channels × patch_size²", channels * patch**2)
    made += linear(f"{path}.patch_embedding.linear", even("vision hidden_size", hidden), flat)
    made += norms((f"{path}.layernorm_pre", f"{path}.layernorm_post"), model, LAYER)
    made += repeated(f"{path}.model.layers", layer, tower_layers(vision))
    ratio = vision.divisor("pixel_shuffle_ratio", 0.5)
    narrow = even("projector_input_dim", int(vision.integer("projector_input_dim")))
    shuffled = whole("shuffled width", int(hidden / ratio**2))
    made += linear(f"{path}.vision_adapter.mlp.fc1", narrow, shuffled)
    out = keyed(vision, "projector_output_dim")
    made += linear(f"{path}.vision_adapter.mlp.fc2", out, narrow)
    text, seen = (even("hidden_size", hidden_size(view)), keyed(vision, "vision_output_dim"))
    return placed(made + linear("multi_modal_projector.linear_1", text, seen))


def _newline(raw: Raw, view: ConfigView) -> list[Placed]:
    """LLaVA's tower and projections, and one embedding for the end of a row of tiles."""
    return _llava(raw, view) + placed(vector("image_newline", whole("hidden_size", hidden_size(view))))


lineage("llama", block=LLAMA)
lineage(
    "llama4",
    tower=_llama4_tower,
    media=Rule(
        "scale_tiles",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 448),
        tiles=16,
        source="meta-llama/Llama-4-Scout-17B-16E-Instruct preprocessor_config.json: up to 16 tiles",
    ),
)
lineage("llama4_text", layers=Recipe(ATTENTION, _llama4), tensors=llama4_tensors)
lineage(
    "mllama",
    tower=_mllama_tower,
    encoder=EncoderRule(IMAGE),
    media=Rule(
        "cross_tiles",
        patch=("vision_config.patch_size", 14),
        tile=("vision_config.image_size", 448),
        tokens=("vision_config.max_num_tiles", 4),
        needs_size=False,
        source="cross attention over max_num_tiles tiles of every image",
    ),
)
lineage("mllama_text_model", layers=mllama_layers, tensors=mllama_tensors, encoder=EncoderRule(IMAGE))
lineage("llava", tower=_llava, media=Rule("one_tile", needs_size=False, source="crop_size is image_size"))
lineage("llava_next", tower=_newline, media=Rule("anyres", source="image_grid_pinpoints of the config"))
lineage("llava_onevision", tower=_newline)
