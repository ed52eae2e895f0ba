"""Encoder-decoder models: the decoder's self attention, and K and V of the encoder's output beside it.

The rules give both parts of every decoder layer; read_config takes the cross attention away again where
the decoder stands alone (``BartForCausalLM``). Key names are those of transformers 5.23.0,
src/transformers/models/<type>/configuration_<type>.py.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.lineages.layers.decoder import ATTENTION
from kvplan.architectures.lineages.layers.recipe import FULL, SLIDING, Recipe, every, every_key
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import CrossAttention, FullAttention, Kind, SlidingWindow
from kvplan.model import EncoderInput, Layer
from kvplan.record import record


def with_cross(layers: list[Layer]) -> list[Layer]:
    """Each layer with cross attention of the same heads, where it has none yet (T5Gemma, composites)."""
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            seen[layer] = _crossed(layer)
    return [seen[layer] for layer in layers]


def _crossed(layer: Layer) -> Layer:
    if any(part.kind is Kind.CROSS for part in layer.parts):
        return layer
    for part in layer.parts:
        if isinstance(part, (FullAttention, SlidingWindow)):
            return Layer((*layer.parts, CrossAttention(part.num_kv_heads, part.head_dim)))
    return layer


def without_cross(layers: list[Layer]) -> list[Layer]:
    """The layers of a decoder that stands alone: no cross attention, no cache for it."""
    seen: dict[Layer, Layer] = {}
    for layer in layers:
        if layer not in seen:
            kept = tuple(part for part in layer.parts if part.kind is not Kind.CROSS)
            seen[layer] = Layer(kept) if kept else layer
    return [seen[layer] for layer in layers]


def _stack(count: int, part: FullAttention, cross: CrossAttention | None = None) -> list[Layer]:
    beside = cross or CrossAttention(part.num_kv_heads, part.head_dim)
    return [Layer((part, beside))] * count


def _per_head(view: ConfigView, heads: int, *widths: str) -> int:
    return derived(int(view.integer(*widths)) // int(heads) or 1, f"{widths[0]} // decoder heads")


@rule(
    "bart",
    "bigbird_pegasus",
    "blenderbot",
    "blenderbot-small",
    "fsmt",
    "led",
    "m2m_100",
    "marian",
    "mbart",
    "mvp",
    "nllb-moe",
    "pegasus",
    "pegasus_x",
    "plbart",
    "speech_to_text",
    "whisper",
    "speecht5",
    "seamless_m4t",
    "seamless_m4t_v2",
    "pp_formulanet_text",
    "trocr",
)
def bart_like(view: ConfigView) -> list[Layer]:
    """decoder_layers × decoder_attention_heads × (d_model // decoder_attention_heads).

    ``num_hidden_layers`` and ``num_attention_heads`` are other names of the ENCODER's numbers here (of the
    decoder's in seamless and trocr): the aliases of the class decide.
    """
    heads = view.integer("decoder_attention_heads")
    width = _per_head(view, heads, "d_model", "hidden_size")
    return _stack(view.num_layers("decoder_layers"), FullAttention(heads, width))


@rule("t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano", "udop", "pix2struct_text_model")
def t5_like(view: ConfigView) -> list[Layer]:
    """num_decoder_layers (without one: num_layers) × num_heads × d_kv; d_kv is not d_model // num_heads."""
    part = FullAttention(view.integer("num_heads"), view.integer("d_kv"))
    return _stack(view.num_layers("num_decoder_layers", "num_layers"), part)


@rule("prophetnet", "xlm-prophetnet")
def prophetnet(view: ConfigView) -> list[Layer]:
    """num_decoder_layers × num_decoder_attention_heads; the n-gram streams do not enlarge the cache."""
    heads = view.integer("num_decoder_attention_heads")
    return _stack(
        view.num_layers("num_decoder_layers"), FullAttention(heads, _per_head(view, heads, "hidden_size"))
    )


@rule("moonshine")
def moonshine(view: ConfigView) -> list[Layer]:
    """decoder_num_* keys; heads are cached before they are padded to pad_head_dim_to_multiple_of."""
    heads = view.integer("decoder_num_attention_heads")
    kv = view.optional_integer("decoder_num_key_value_heads")
    width = _per_head(view, heads, "hidden_size")
    return _stack(view.num_layers("decoder_num_hidden_layers"), FullAttention(kv or heads, width))


@rule("moonshine_streaming", "cohere_asr", "canary_decoder", "musicgen_decoder", "musicgen_melody_decoder")
def decoder_keys(view: ConfigView) -> list[Layer]:
    """A decoder with the usual key names; cross attention has the same heads."""
    heads = view.integer("num_attention_heads")
    kv = view.optional_integer("num_key_value_heads") or heads
    width = view.optional_integer("head_dim") or _per_head(view, heads, "hidden_size")
    return _stack(view.num_layers(), FullAttention(kv, width))


@rule("dia_decoder")
def dia_decoder(view: ConfigView) -> list[Layer]:
    """Self attention with grouped heads; cross attention with heads and width of its own."""
    own = FullAttention(view.integer("num_key_value_heads"), view.integer("head_dim"))
    cross = CrossAttention(view.integer("cross_num_key_value_heads"), view.integer("cross_head_dim"))
    return _stack(view.num_layers(), own, cross)


rule("t5_gemma_module")(Recipe(ATTENTION, every(2, SLIDING, FULL)))
rule("t5gemma2_decoder", "t5gemma2_text")(
    Recipe(ATTENTION, every_key("sliding_window_pattern", 6, SLIDING, FULL))
)


_MLLAMA_CROSS = range(3, 40, 5)  # what the class takes without a list


@rule("mllama_text_model")
def mllama(view: ConfigView) -> list[Layer]:
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
    width = _per_head(view, heads, "hidden_size")
    own, image = Layer((FullAttention(kv, width),)), Layer((CrossAttention(kv, width),))
    return [image if index in crossed else own for index in range(count)]


@record()
class EncoderRule:
    """What the encoder of a type reads. ``length``: the config key that fixes the encoder's positions."""

    input: EncoderInput
    length: str | None = None


_TEXT, _AUDIO, _IMAGE = EncoderInput.TEXT, EncoderInput.AUDIO, EncoderInput.IMAGE

# By the type at the top of the file. Every type here is an encoder-decoder by nature, but mllama: its
# cross-attention layers belong to a decoder that runs without images as well.
ENCODERS: dict[str, EncoderRule] = {
    **dict.fromkeys(
        (
            "bart",
            "bigbird_pegasus",
            "blenderbot",
            "blenderbot-small",
            "fsmt",
            "m2m_100",
            "marian",
            "mbart",
            "mvp",
            "nllb-moe",
            "pegasus",
            "pegasus_x",
            "plbart",
            "t5",
            "mt5",
            "umt5",
            "longt5",
            "switch_transformers",
            "udop",
            "prophetnet",
            "t5gemma",
            "t5gemma2",
            "encoder-decoder",
            "rag",
            "musicgen",
            "dia",
            "florence2",
        ),
        EncoderRule(_TEXT),
    ),
    "led": EncoderRule(_TEXT, "max_encoder_position_embeddings"),
    "whisper": EncoderRule(_AUDIO, "max_source_positions"),
    "speech_to_text": EncoderRule(_AUDIO, "max_source_positions"),
    "seamless_m4t": EncoderRule(_AUDIO, "max_source_positions"),
    **dict.fromkeys(
        (
            "seamless_m4t_v2",
            "speecht5",
            "pop2piano",
            "moonshine",
            "moonshine_streaming",
            "cohere_asr",
            "canary",
            "speech-encoder-decoder",
        ),
        EncoderRule(_AUDIO),
    ),
    **dict.fromkeys(
        ("vision-encoder-decoder", "nougat", "pix2struct", "pp_formulanet", "trocr"), EncoderRule(_IMAGE)
    ),
    "mllama": EncoderRule(_IMAGE),
    "mllama_text_model": EncoderRule(_IMAGE),
}

# Wrappers whose decoder is any model: its layers get cross attention where its own rule gives none.
COMPOSITES = frozenset({"encoder-decoder", "speech-encoder-decoder", "vision-encoder-decoder"})
# The conditioning text is put before the codes instead of being attended to (musicgen_melody).
PREPENDED = frozenset({"musicgen_melody"})
