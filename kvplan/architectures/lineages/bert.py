"""BERT's kin as decoders, ModernBERT's decoder and NeoMME.

Source: huggingface/transformers 5.23.0 models/<type>/.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import (
    ATTENTION,
    head_dim,
    num_kv_heads,
    plain_decoder,
    window,
    with_window,
)
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    LAYER,
    AttentionNames,
    attention,
    embedding,
    linear,
    mlp,
    norm,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import BIAS, hidden_size, unshared_heads
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe, by_index
from kvplan.architectures.config.roles import BOTH_WAYS
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import SlidingWindow
from kvplan.weights.inventory import Place, Placed


def _half_local_attention(view: ConfigView) -> Parts:
    """local_attention spans both sides; a saved file also states the half, as sliding_window: it counts."""
    size = (
        window(view)
        if view.given("sliding_window")
        else derived(window(view, "local_attention") // 2, "local_attention // 2")
    )
    if size < 1:
        raise view.refuse("local_attention", "leaves no window")
    return (SlidingWindow(num_kv_heads(view), head_dim(view), size),)


def _modernbert_decoder(view: ConfigView, count: int) -> list[str]:
    period = view.optional_integer("global_attn_every_n_layers", default=3) or 3
    return [SLIDING if index % period else FULL for index in range(count)]


def _neomme_windows(view: ConfigView, kinds: list[str]) -> dict[int, dict[str, object]]:
    """Every other windowed layer has the long window (models/neomme)."""
    windowed = [index for index, kind in enumerate(kinds) if kind == SLIDING]
    long = view.integer("default_long_sliding_window")
    return {index: {"sliding_window": long} for index in windowed[1::2]}


def _modernbert_ends(view: ConfigView) -> list[Placed]:
    model = whole("hidden_size", hidden_size(view))
    kind = LAYER if view.flag("norm_bias") else "rms"
    made = norm("model.embeddings.norm", model, kind=kind)
    made += linear("lm_head.dense", model, model, bias=view.flag("classifier_bias"))
    made += norm("lm_head.norm", model, kind=kind)
    if view.flag("decoder_bias", default=True):
        made += vector("decoder.bias", embedding("decoder", int(view.integer("vocab_size")), 1).rows[0])
    return at(Place.EVERY, made)


def modernbert_tensors(view: ConfigView) -> Decoder:
    """Gate and up in one matrix; the first layer has no norm before its attention."""
    hidden = hidden_size(view)
    model, kind = whole("hidden_size", hidden), LAYER if view.flag("norm_bias") else "rms"
    names = AttentionNames("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.Wo")
    bias = view.flag(BIAS)
    layer = attention(unshared_heads(view), hidden, names=names, qkv_bias=bias, o_bias=bias)
    layer += mlp(
        "mlp",
        hidden,
        int(view.integer("intermediate_size")),
        bias=view.flag("mlp_bias"),
        names=("Wi", "Wi", "Wo"),
    )
    layer += norm("mlp_norm", model, kind=kind)
    rest = layer + norm("attn_norm", model, kind=kind)
    frame = Frame(
        embed="model.embeddings.tok_embeddings",
        final_norm="model.final_norm",
        norm=kind,
        head="decoder",
        extra=_modernbert_ends,
    )
    return Decoder(frame, (layer,) + (rest,) * (int(view.num_layers()) - 1))


lineage(*sorted(BOTH_WAYS), layers=plain_decoder)
lineage(
    "modernbert-decoder",
    layers=Recipe(with_window(_half_local_attention), _modernbert_decoder),
    tensors=modernbert_tensors,
)
lineage(
    "neomme",
    layers=Recipe(
        ATTENTION,
        by_index(lambda i, n: FULL if (i + 1) % 6 == 0 or i == n - 1 else SLIDING),
        overrides=_neomme_windows,
    ),
)
