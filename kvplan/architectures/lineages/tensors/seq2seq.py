"""Encoder-decoder models: BART's and T5's kin.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py, against which tests/conformance hold
every rule; matrices are divided by heads and widths as engines divide every decoder's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.config.view import MAX_LAYERS, ConfigView
from kvplan.architectures.lineages.tensors.frame import blocks
from kvplan.architectures.lineages.tensors.parts import (
    LAYER,
    Tensors,
    embedding,
    even,
    linear,
    norm,
    vector,
    whole,
)
from kvplan.architectures.lineages.tensors.registry import WHOLE, WholeRule
from kvplan.architectures.lineages.tensors.tower_parts import encoder_layer, placed, repeated
from kvplan.record import record
from kvplan.weights.inventory import Block, Placed, Role, Tensor

Whole = tuple[Sequence[Placed], tuple[Block, ...]]
FAIRSEQ_NORMS = ("self_attn_layer_norm", "final_layer_norm")


@record()
class Bart:
    """What stands around the layers of one of BART's kin.

    positions: rows of the learnt positions beside max_position_embeddings; None where they are computed.
    embed_norm, final_norm: a norm behind the embeddings, one behind the layers, in both halves.
    """

    positions: int | None = 0
    embed_norm: bool = False
    final_norm: bool = True

    def __call__(self, part: TextPart) -> Whole:
        view = part.view
        hidden = int(view.integer("d_model", "hidden_size"))
        model = whole("d_model", hidden)
        made: Tensors = self.tables(view, hidden)
        layers: dict[str, Tensors] = {}
        for half in ("encoder", "decoder"):
            path = f"model.{half}"
            if self.positions is not None:
                rows = int(view.integer("max_position_embeddings")) + self.positions
                made += vector(f"{path}.embed_positions", whole("positions", rows), model)
            for name, there in (("layernorm_embedding", self.embed_norm), ("layer_norm", self.final_norm)):
                made += norm(f"{path}.{name}", model, kind=LAYER) if there else ()
            layers[half] = encoder_layer(
                hidden,
                int(view.integer(f"{half}_attention_heads")),
                int(view.integer(f"{half}_ffn_dim")),
                mlp_names=("", "fc1", "fc2"),
                norm_names=FAIRSEQ_NORMS,
            )
        made += repeated("model.encoder.layers", layers["encoder"], view.num_layers("encoder_layers"))
        layer = layers["decoder"] + _cross(hidden, int(view.integer("decoder_attention_heads")))
        return placed(made), blocks("model.decoder.layers", [layer] * view.num_layers("decoder_layers"))

    def tables(self, view: ConfigView, hidden: int) -> Tensors:
        """The embedding of both halves; untied, each half has its own beside it, and the head too."""
        rows = int(view.integer("vocab_size"))
        made: Tensors = (embedding("model.shared", rows, hidden),)
        if view.get("share_encoder_decoder_embeddings", default=True) is False:
            rows = int(view.integer("decoder_vocab_size", "vocab_size"))
            made += (embedding("model.decoder.embed_tokens", rows, hidden),)
        if view.get("tie_word_embeddings", default=True) is False:
            halves = [
                embedding(f"model.{half}.embed_tokens", rows, hidden) for half in ("encoder", "decoder")
            ]
            made += (*halves, embedding("lm_head", rows, hidden, Role.HEAD))
        return made


def _cross(hidden: int, heads: int) -> Tensors:
    model, both = whole("d_model", hidden), (even("heads", heads), whole("head_dim", hidden // heads))
    made: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        made += linear(f"encoder_attn.{name}", both, model, bias=True)
    made += linear("encoder_attn.out_proj", model, both, bias=True)
    return made + norm("encoder_attn_layer_norm", model, kind=LAYER)


def _t5(part: TextPart, *, everywhere: bool = False) -> Whole:
    """Relative positions in the first layer of both halves (everywhere: in each); a head unless it is tied.

    Published checkpoints of T5 1.1 and Flan-T5 store that head.
    """
    view = part.view
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


def _longt5(part: TextPart) -> Whole:
    """T5 with local attention in the encoder. Raises KvplanError for the one with global tokens."""
    if part.view.get("encoder_attention_type", default="local") != "local":
        raise part.view.refuse("encoder_attention_type", "the tensors of global tokens are not known")
    return _t5(part)


BART = Bart(positions=2, embed_norm=True, final_norm=False)
KIN: dict[str, WholeRule] = {
    "bart": BART,
    "plbart": BART,
    "mvp": BART,
    "mbart": Bart(positions=2, embed_norm=True),
    "marian": Bart(final_norm=False),
    "pegasus": Bart(),
    "blenderbot": Bart(),
    "blenderbot-small": Bart(embed_norm=True, final_norm=False),
    "m2m_100": Bart(positions=None),
    "t5": _t5,
    "mt5": _t5,
    "longt5": _longt5,
    "umt5": partial(_t5, everywhere=True),
}
WHOLE.update(KIN)
