"""T5 and its kin, T5Gemma.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py; matrices are divided by heads and
widths as engines divide every decoder's.
"""

from __future__ import annotations

from functools import partial

from kvplan.architectures.blocks.cross import AUDIO, IMAGE, TEXT, stack
from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import blocks
from kvplan.architectures.blocks.parts import Tensors, embedding, even, linear, norm, vector, whole
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, every, every_key
from kvplan.architectures.blocks.tower import placed, repeated
from kvplan.architectures.config.view import MAX_LAYERS, ConfigView
from kvplan.architectures.registry import EncoderRule, Whole, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.weights.inventory import Role, Tensor


def t5_like_layers(view: ConfigView) -> list[Layer]:
    """num_decoder_layers (without one: num_layers) × num_heads × d_kv; d_kv is not d_model // num_heads."""
    part = FullAttention(view.integer("num_heads"), view.integer("d_kv"))
    return stack(view.num_layers("num_decoder_layers", "num_layers"), part)


def _t5(view: ConfigView, *, everywhere: bool = False) -> Whole:
    """Relative positions in the first layer of both halves (everywhere: in each); a head unless it is tied.

    Published checkpoints of T5 1.1 and Flan-T5 store that head.
    """
    hidden = int(view.integer("d_model", "hidden_size"))
    heads = int(view.integer("num_heads", "num_attention_heads"))
    width = int(view.integer("d_kv", "head_dim"))
    model, inner = whole("d_model", hidden), even("d_ff", int(view.integer("d_ff")))
    both = (even("num_heads", heads), whole("d_kv", width))
    buckets = int(view.optional_integer("relative_attention_num_buckets", default=32) or 32)
    bias = vector(
        "SelfAttention.relative_attention_bias", whole("relative_attention_num_buckets", buckets), both[0]
    )

    def attends(name: str) -> Tensors:
        made: Tensors = ()
        for side in "qkv":
            made += linear(f"{name}.{side}", both, model)
        return made + linear(f"{name}.o", model, both)

    gated = str(view.get("feed_forward_proj", default="relu")).startswith("gated")
    forward: Tensors = ()
    for name in ("wi_0", "wi_1") if gated else ("wi",):
        forward += linear(f"DenseReluDense.{name}", inner, model)
    forward += linear("DenseReluDense.wo", model, inner)
    first, second = norm("layer.0.layer_norm", model), norm("layer.1.layer_norm", model)
    own = bias if everywhere else ()
    encoder = attends("SelfAttention") + forward + first + second + own
    vocabulary = int(view.integer("vocab_size"))
    made: Tensors = (embedding("shared", vocabulary, hidden),)
    made += repeated("encoder.block", encoder, view.num_layers("num_layers", "num_hidden_layers"))
    if not everywhere:
        made += tuple(
            Tensor(f"{half}.block.0.{one.name}", one.rows) for half in ("encoder", "decoder") for one in bias
        )
    made += norm("encoder.final_layer_norm", model) + norm("decoder.final_layer_norm", model)
    if view.get("tie_word_embeddings", default=True) is False:
        made += (embedding("lm_head", vocabulary, hidden, Role.HEAD),)
    layer = attends("SelfAttention") + attends("EncDecAttention") + forward + own
    layer += first + second + norm("layer.2.layer_norm", model)
    own_count = view.optional_integer("num_decoder_layers", highest=MAX_LAYERS)
    count = own_count or view.num_layers("num_layers", "num_hidden_layers")
    return placed(made), blocks("decoder.block", [layer] * int(count))


def _longt5(view: ConfigView) -> Whole:
    """T5 with local attention in the encoder. Raises KvplanError for the one with global tokens."""
    if view.get("encoder_attention_type", default="local") != "local":
        raise view.refuse("encoder_attention_type", "the tensors of global tokens are not known")
    return _t5(view)


lineage("t5", "mt5", layers=t5_like_layers, whole=_t5, encoder=EncoderRule(TEXT))
lineage("umt5", layers=t5_like_layers, whole=partial(_t5, everywhere=True), encoder=EncoderRule(TEXT))
lineage("longt5", layers=t5_like_layers, whole=_longt5, encoder=EncoderRule(TEXT))
lineage("switch_transformers", "udop", layers=t5_like_layers, encoder=EncoderRule(TEXT))
lineage("pop2piano", layers=t5_like_layers, encoder=EncoderRule(AUDIO))
lineage("pix2struct", encoder=EncoderRule(IMAGE))
lineage("pix2struct_text_model", layers=t5_like_layers)
lineage("t5gemma", "t5gemma2", encoder=EncoderRule(TEXT))
lineage("t5_gemma_module", layers=Recipe(ATTENTION, every(2, SLIDING, FULL)))
lineage(
    "t5gemma2_decoder",
    "t5gemma2_text",
    layers=Recipe(ATTENTION, every_key("sliding_window_pattern", 6, SLIDING, FULL)),
)
