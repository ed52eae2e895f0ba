"""Whisper.

Source: vllm-project/vllm 0.32 vllm/model_executor/models/whisper.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.blocks.cross import AUDIO, bart_like_layers
from kvplan.architectures.blocks.frame import blocks
from kvplan.architectures.blocks.parts import LAYER, Tensors, even, keyed, linear, norm, vector, whole
from kvplan.architectures.blocks.tower import encoder_layer, placed, repeated, tower_layers
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import EncoderRule, lineage
from kvplan.weights.inventory import Block, Placed, Role, Tensor


def _attention(path: str, hidden: int, heads: int) -> Tensors:
    """Query, key (no bias of its own, but a fused one is stored), value and output."""
    model, both = whole("d_model", hidden), (even("heads", heads), whole("head_dim", hidden // heads))
    made: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        made += linear(f"{path}.{name}", both, model, bias=True)
    return made + linear(f"{path}.out_proj", model, both, bias=True)


def _whisper(view: ConfigView) -> tuple[Sequence[Placed], tuple[Block, ...]]:
    hidden, model = (
        int(view.integer("d_model", "hidden_size")),
        whole("d_model", int(view.integer("d_model", "hidden_size"))),
    )
    names = ("self_attn_layer_norm", "final_layer_norm")
    encoder = encoder_layer(
        hidden,
        int(view.integer("encoder_attention_heads")),
        int(view.integer("encoder_ffn_dim")),
        mlp_names=("", "fc1", "fc2"),
        norm_names=names,
    )
    mels = keyed(view, "num_mel_bins")
    made = vector("model.encoder.conv1", model, mels, whole("kernel", 3)) + vector(
        "model.encoder.conv1.bias", model
    )
    made += vector("model.encoder.conv2", model, model, whole("kernel", 3)) + vector(
        "model.encoder.conv2.bias", model
    )
    sources = keyed(view, "max_source_positions")
    targets = keyed(view, "max_target_positions")
    made += vector("model.encoder.embed_positions", sources, model)
    made += repeated("model.encoder.layers", encoder, tower_layers(view, "encoder_layers"))
    made += norm("model.encoder.layer_norm", model, kind=LAYER)
    rows = keyed(view, "vocab_size")
    made += (Tensor("model.decoder.embed_tokens", (rows,), (model,), (), Role.EMBEDDING),)
    made += vector("model.decoder.embed_positions", targets, model)
    made += norm("model.decoder.layer_norm", model, kind=LAYER)
    heads, wide = int(view.integer("decoder_attention_heads")), int(view.integer("decoder_ffn_dim"))
    layer = encoder_layer(hidden, heads, wide, mlp_names=("", "fc1", "fc2"), norm_names=names)
    layer += _attention("encoder_attn", hidden, heads)
    layer += norm("encoder_attn_layer_norm", model, kind=LAYER)
    count = tower_layers(view, "decoder_layers", "num_hidden_layers")
    return placed(made), blocks("model.decoder.layers", [layer] * count)


lineage(
    "whisper",
    layers=bart_like_layers,
    whole=_whisper,
    encoder=EncoderRule(AUDIO, "max_source_positions"),
    media=Rule(audio="encoder_window", source="one window of 30 s, max_source_positions"),
)
