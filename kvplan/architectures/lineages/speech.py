"""Speech and music: decoders that attend over what an audio or text encoder made.

Source: huggingface/transformers 5.23.0 models/<type>/.
"""

from __future__ import annotations

from kvplan.architectures.blocks.cross import AUDIO, TEXT, bart_like_layers, per_head, stack
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import EncoderRule, lineage
from kvplan.families import CrossAttention, FullAttention
from kvplan.model import Layer


def moonshine_layers(view: ConfigView) -> list[Layer]:
    """decoder_num_* keys; heads are cached before they are padded to pad_head_dim_to_multiple_of."""
    heads = view.integer("decoder_num_attention_heads")
    kv = view.optional_integer("decoder_num_key_value_heads")
    width = per_head(view, heads, "hidden_size")
    return stack(view.num_layers("decoder_num_hidden_layers"), FullAttention(kv or heads, width))


def decoder_keys_layers(view: ConfigView) -> list[Layer]:
    """A decoder with the usual key names; cross attention has the same heads."""
    heads = view.integer("num_attention_heads")
    kv = view.optional_integer("num_key_value_heads") or heads
    width = view.optional_integer("head_dim") or per_head(view, heads, "hidden_size")
    return stack(view.num_layers(), FullAttention(kv, width))


def dia_decoder_layers(view: ConfigView) -> list[Layer]:
    """Self attention with grouped heads; cross attention with heads and width of its own."""
    own = FullAttention(view.integer("num_key_value_heads"), view.integer("head_dim"))
    cross = CrossAttention(view.integer("cross_num_key_value_heads"), view.integer("cross_head_dim"))
    return stack(view.num_layers(), own, cross)


lineage(
    "speech_to_text",
    "seamless_m4t",
    layers=bart_like_layers,
    encoder=EncoderRule(AUDIO, "max_source_positions"),
)
lineage("speecht5", "seamless_m4t_v2", layers=bart_like_layers, encoder=EncoderRule(AUDIO))
lineage("moonshine", layers=moonshine_layers, encoder=EncoderRule(AUDIO))
lineage("moonshine_streaming", "cohere_asr", layers=decoder_keys_layers, encoder=EncoderRule(AUDIO))
lineage("canary", "speech-encoder-decoder", encoder=EncoderRule(AUDIO))
lineage("canary_decoder", "musicgen_decoder", "musicgen_melody_decoder", layers=decoder_keys_layers)
lineage("musicgen", "dia", encoder=EncoderRule(TEXT))
lineage("dia_decoder", layers=dia_decoder_layers)
