"""BART and its kin, ProphetNet, and pairs of any encoder with any decoder.

Source: huggingface/transformers 5.23.0 models/<type>/modeling_<type>.py; matrices are divided by heads and
widths as engines divide every decoder's.
"""

from __future__ import annotations

from kvplan.architectures.blocks.cross import IMAGE, TEXT, bart_like_layers, per_head, stack
from kvplan.architectures.blocks.frame import blocks
from kvplan.architectures.blocks.parts import LAYER, Tensors, embedding, even, linear, norm, vector, whole
from kvplan.architectures.blocks.plain import FAIRSEQ_NORMS
from kvplan.architectures.blocks.tower import encoder_layer, placed, repeated
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import EncoderRule, Whole, lineage
from kvplan.families import FullAttention
from kvplan.model import Layer
from kvplan.record import record
from kvplan.weights.inventory import Role


def prophetnet_layers(view: ConfigView) -> list[Layer]:
    """num_decoder_layers × num_decoder_attention_heads; the n-gram streams do not enlarge the cache."""
    heads = view.integer("num_decoder_attention_heads")
    return stack(
        view.num_layers("num_decoder_layers"), FullAttention(heads, per_head(view, heads, "hidden_size"))
    )


def _cross(hidden: int, heads: int) -> Tensors:
    model, both = whole("d_model", hidden), (even("heads", heads), whole("head_dim", hidden // heads))
    made: Tensors = ()
    for name in ("q_proj", "k_proj", "v_proj"):
        made += linear(f"encoder_attn.{name}", both, model, bias=True)
    made += linear("encoder_attn.out_proj", model, both, bias=True)
    return made + norm("encoder_attn_layer_norm", model, kind=LAYER)


@record()
class Bart:
    """Tensors outside the layers of a model of BART's kind.

    positions: rows of the learnt positions beside max_position_embeddings; None where they are computed.
    embed_norm, final_norm: a norm behind the embeddings, one behind the layers, in both halves.
    """

    positions: int | None = 0
    embed_norm: bool = False
    final_norm: bool = True

    def __call__(self, view: ConfigView) -> Whole:
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


BART = Bart(positions=2, embed_norm=True, final_norm=False)


lineage("bart", "mvp", "plbart", layers=bart_like_layers, whole=BART, encoder=EncoderRule(TEXT))
lineage(
    "bigbird_pegasus", "fsmt", "nllb-moe", "pegasus_x", layers=bart_like_layers, encoder=EncoderRule(TEXT)
)
lineage("blenderbot", "pegasus", layers=bart_like_layers, whole=Bart(), encoder=EncoderRule(TEXT))
lineage(
    "blenderbot-small",
    layers=bart_like_layers,
    whole=Bart(embed_norm=True, final_norm=False),
    encoder=EncoderRule(TEXT),
)
lineage("m2m_100", layers=bart_like_layers, whole=Bart(positions=None), encoder=EncoderRule(TEXT))
lineage("marian", layers=bart_like_layers, whole=Bart(final_norm=False), encoder=EncoderRule(TEXT))
lineage("mbart", layers=bart_like_layers, whole=Bart(positions=2, embed_norm=True), encoder=EncoderRule(TEXT))
lineage("led", layers=bart_like_layers, encoder=EncoderRule(TEXT, "max_encoder_position_embeddings"))
lineage("prophetnet", layers=prophetnet_layers, encoder=EncoderRule(TEXT))
lineage("xlm-prophetnet", layers=prophetnet_layers)
lineage("encoder-decoder", "rag", "florence2", encoder=EncoderRule(TEXT))
lineage("vision-encoder-decoder", "nougat", "pp_formulanet", encoder=EncoderRule(IMAGE))
lineage("trocr", layers=bart_like_layers, encoder=EncoderRule(IMAGE))
