"""Gemma 3n: per-layer embeddings, layers that read another layer's cache.

Sources: huggingface/transformers 5.23.0 models/gemma3n; vllm-project/vllm 0.32
vllm/model_executor/models/gemma3n.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    Tensors,
    attention,
    embedding,
    even,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import FOUR_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Parts, Recipe, every
from kvplan.architectures.config.view import ConfigView, check_integer
from kvplan.architectures.media.rule import Rule
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import SharedKv
from kvplan.weights.inventory import Place, Placed


def last_layers_share(view: ConfigView, kinds: list[str]) -> Mapping[int, Parts]:
    """The last num_kv_shared_layers layers hold nothing.

    Each kind among them needs an earlier layer of that kind, else the library refuses the config.
    """
    count = view.optional_integer("num_kv_shared_layers", default=0, lowest=0) or 0
    if count == 0:
        return {}
    own = kinds[: max(len(kinds) - count, 0)]
    lacking = sorted(set(kinds) - set(own))
    # A draft model in which every layer reads the target's cache has no layer of its own.
    if lacking and own:
        raise view.refuse("num_kv_shared_layers", f"no layer of kind {lacking[0]!r} keeps a cache to share")
    return {index: (SharedKv(),) for index in range(len(own), len(kinds))}


def _by_layer(view: ConfigView) -> int:
    """Width of the per-layer embeddings, 0 for none."""
    return int(view.optional_integer("hidden_size_per_layer_input", default=0, lowest=0) or 0)


def by_layer_tensors(view: ConfigView, hidden: int) -> Tensors:
    """The gate and the projection with which a layer reads its own embedding."""
    narrow = _by_layer(view)
    if not narrow:
        return ()
    model, own = whole("hidden_size", hidden), whole("hidden_size_per_layer_input", narrow)
    made = linear("per_layer_input_gate", own, model) + linear("per_layer_projection", model, own)
    return made + norm("post_per_layer_input_norm", model)


def by_layer_ends(view: ConfigView) -> list[Placed]:
    narrow = _by_layer(view)
    if not narrow:
        return []
    together = narrow * int(view.num_layers())
    rows = int(view.optional_integer("vocab_size_per_layer_input") or view.integer("vocab_size"))
    out = (even("num_hidden_layers × hidden_size_per_layer_input", together),)
    made = linear("model.per_layer_model_projection", out, whole("hidden_size", hidden_size(view)))
    made += norm("model.per_layer_projection_norm", whole("hidden_size_per_layer_input", narrow))
    table = embedding("model.embed_tokens_per_layer", rows, together)
    return at(Place.EVERY, (table, *made))


def gemma3n_tensors(view: ConfigView) -> Decoder:
    """Gemma 3n: alternating updates, a low-rank residual, per-layer embeddings, widths by layer."""
    hidden, count = hidden_size(view), int(view.num_layers())
    model, inputs = whole("hidden_size", hidden), int(view.integer("altup_num_inputs"))
    altup, rank = whole("altup_num_inputs", inputs), keyed(view, "laurel_rank")
    widths = view.get("intermediate_size")
    if isinstance(widths, list) and len(widths) != count:
        raise view.refuse("intermediate_size", f"{len(widths)} entries for {count} layers")
    shared = int(view.optional_integer("num_kv_shared_layers", default=0, lowest=0) or 0)
    bias = view.flag("attention_bias")
    made: dict[tuple[int, bool], Tensors] = {}
    layers = []
    for index in range(count):
        width = check_integer(widths[index] if isinstance(widths, list) else widths, "intermediate_size")
        shares = shared > 0 and index >= count - shared
        if (width, shares) not in made:
            layer = attention(heads_of(view), hidden, qkv_bias=bias, o_bias=bias, qk_norm="head")
            if shares:
                layer = tuple(
                    tensor for tensor in layer if not tensor.name.startswith(("self_attn.k_", "self_attn.v_"))
                )
            layer += mlp("mlp", hidden, width) + norms(FOUR_NORMS, model)
            layer += vector("altup.correct_output_scale", model)
            layer += vector("altup.correction_coefs", altup, altup)
            layer += vector("altup.prediction_coefs", whole("altup_num_inputs²", inputs * inputs), altup)
            layer += vector("altup.modality_router", altup, model) + norm("altup.router_norm", model)
            layer += linear("laurel.linear_left", rank, model) + linear("laurel.linear_right", model, rank)
            layer += norm("laurel.post_laurel_norm", model) + by_layer_tensors(view, hidden)
            made[width, shares] = layer
        layers.append(made[width, shares])
    return Decoder(Frame(everywhere=True, extra=_gemma3n_ends), tuple(layers))


def _gemma3n_ends(view: ConfigView) -> list[Placed]:
    model, more = whole("hidden_size", hidden_size(view)), int(view.integer("altup_num_inputs")) - 1
    made = list(by_layer_ends(view))
    for name in ("altup_projections", "altup_unembed_projections"):
        for index in range(more):
            out = even("hidden_size", hidden_size(view))
            made += at(Place.EVERY, linear(f"model.{name}.{index}", out, model))
    return made


lineage(
    "gemma3n",
    media=Rule(
        "fixed",
        audio="fixed_audio",
        tokens=("vision_soft_tokens_per_image", 256),
        audio_tokens=("audio_soft_tokens_per_image", 188),
        needs_size=False,
        source="every image, and every audio, takes the same",
    ),
)
lineage(
    "gemma3n_text",
    layers=Recipe(ATTENTION, every(5, SLIDING, FULL), sharing=last_layers_share),
    tensors=gemma3n_tensors,
)
