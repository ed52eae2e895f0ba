"""ERNIE 4.5, dense and with experts, and with experts of its own for what it sees.

Sources: huggingface/transformers 5.23.0 models/{ernie4_5,ernie4_5_moe,ernie4_5_vl_moe}; vllm-project/vllm
0.32 vllm/model_executor/models/ernie45_moe.py, 0.33 ernie45_vl_moe.py, ernie45_vl.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import plain_decoder
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import FLOAT32, Moe, shared_by_count
from kvplan.architectures.blocks.parts import (
    LAYER,
    Tensors,
    attention,
    even,
    experts,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, Plain, heads_of, hidden_size
from kvplan.architectures.blocks.tower import (
    VISION,
    Raw,
    encoder_layer,
    placed,
    repeated,
    tower_layers,
    vision_view,
)
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.prediction import Forward, Joins, Prediction
from kvplan.architectures.registry import Decoder, lineage
from kvplan.weights.inventory import Placed


def _interval(view: ConfigView, index: int) -> bool:
    """ERNIE: every moe_layer_interval-th layer between moe_layer_start_index and moe_layer_end_index."""
    every = view.optional_integer("moe_layer_interval", default=1) or 1
    first = view.optional_integer("moe_layer_start_index", default=1, lowest=0) or 0
    last = view.optional_integer("moe_layer_end_index", default=-1, lowest=-1)
    end = int(view.num_layers()) - 1 if last is None or last == -1 else int(last)
    return (index + 1) % every == 0 and first <= index <= end


lineage("ernie4_5", block=Plain(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"))
lineage(
    "ernie4_5_moe",
    block=Plain(
        frame=Frame(head_bias="use_bias"),
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        moe=Moe(
            count=("moe_num_experts",),
            gate_dtype=FLOAT32,
            layer_is_sparse=_interval,
            correction="mlp.gate.moe_statics.e_score_correction_bias",
            shared=shared_by_count("moe_num_shared_experts"),
            shared_bias="use_bias",
        ),
    ),
    prediction=Prediction(
        forward=Forward.DENSE,
        joins=Joins(("mtp_emb_norm", "mtp_hidden_norm"), ("mtp_linear_proj",)),
        path="model.mtp_block.{i}",
    ),
)


def _two_widths(view: ConfigView) -> tuple[int, int]:
    widths = view.sequence("moe_intermediate_size") or (1536, 512)  # the class's own
    if len(widths) != 2:
        raise view.refuse("moe_intermediate_size", "is not a width for text and one for images")
    text, seen = (check_integer(width, f"{view.path}moe_intermediate_size") for width in widths)
    return text, seen


def _count(view: ConfigView) -> int:
    """As many experts for text as for images; some configs list both numbers."""
    found, origin = view.find("moe_num_experts")
    if not isinstance(found, list):
        return int(view.integer("moe_num_experts"))
    if len(found) != 2 or found[0] != found[1]:
        raise view.refuse("moe_num_experts", "is not one number for text and images")
    return int(check_integer(found[0], origin))


def _both_experts(view: ConfigView) -> Tensors:
    """Experts for text, as many narrower ones for images, and shared ones of the width of text's."""
    hidden, count = hidden_size(view), _count(view)
    text, seen = _two_widths(view)
    made = vector(
        "mlp.moe_statics.e_score_correction_bias",
        whole("text and images", 2),
        whole("num_experts", count),
        dtype="float32",
    )
    for name, width in (("text_moe", text), ("vision_moe", seen)):
        made += router(f"mlp.{name}.gate", count, hidden, dtype="float32")
        made += experts(f"mlp.{name}.experts", count, hidden, width)
    shared = int(view.optional_integer("moe_num_shared_experts", default=0, lowest=0) or 0)
    return made + (mlp("mlp.shared_experts", hidden, shared * text) if shared else ())


def ernie_vl_tensors(view: ConfigView) -> Decoder:
    """mlp_layer_types says which layers have experts; without it every layer but the first."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = view.sequence("mlp_layer_types") or ["dense"] + ["sparse"] * (count - 1)
    if len(words) != count or not set(words) <= {"dense", "sparse"}:
        raise view.refuse("mlp_layer_types", "is not dense or sparse for each layer")
    bias = view.flag("use_bias")
    around = norms(TWO_NORMS, whole("hidden_size", hidden))
    own = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias) + around
    dense = own + mlp("mlp", hidden, int(view.integer("intermediate_size")), bias=bias)
    sparse = own + _both_experts(view) if "sparse" in words else ()
    return Decoder(Frame(), tuple(sparse if word == "sparse" else dense for word in words))


def _ernie_vl(raw: Raw, view: ConfigView) -> list[Placed]:
    """A vision transformer, and a resampler that joins patches of a frame and frames of a pair.

    vLLM divides the resampler's matrices by their outputs (gather_output).
    """
    vision, path = vision_view(raw), "model.resampler_model"
    hidden, patch = int(vision.integer("hidden_size")), int(vision.integer("patch_size"))
    layer = encoder_layer(
        hidden,
        int(vision.integer("num_heads")),
        int(vision.integer("intermediate_size")),
        names=("attn.qkv", "attn.qkv", "attn.qkv", "attn.proj"),
        norm_names=("norm1", "norm2"),
    )
    model = whole(VISION, hidden)
    pixels = whole("channels × patch_size²", int(vision.integer("in_channels")) * patch**2)
    made = vector("vision_tower.patch_embed.proj", model, pixels)
    made += repeated("vision_tower.blocks", layer, tower_layers(vision, "depth"))
    made += norm("vision_tower.ln", model, kind=LAYER)
    wide = hidden * int(vision.integer("spatial_merge_size")) ** 2
    frames = whole("frames joined", wide * int(vision.integer("temporal_merge_size")))
    out, joined = even("joined width", wide), whole("joined width", wide)
    for name, into in (("spatial_linear", joined), ("temporal_linear", frames)):
        made += linear(f"{path}.{name}.fc1", out, into, bias=True)
        made += linear(f"{path}.{name}.fc2", out, joined, bias=True)
        made += norm(f"{path}.{name}.ln", joined, kind=LAYER)
    text = hidden_size(view)
    made += linear(f"{path}.mlp", even("hidden_size", text), joined, bias=True)
    return placed(made + norm(f"{path}.after_norm", whole("hidden_size", text)))


lineage("ernie4_5_vl_moe_text", layers=plain_decoder, tensors=ernie_vl_tensors)
lineage("ernie4_5_vl_moe", tower=_ernie_vl)
