"""Which tensors a config's model has: ``inventory_of(raw)`` → Inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.architectures.blocks.frame import blocks
from kvplan.architectures.config.class_names import class_facts
from kvplan.architectures.config.text_part import TextPart, find_text_part
from kvplan.architectures.lineages import lineage_of, lineages
from kvplan.architectures.registry import Decoder, DecoderRule
from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.record import Json
from kvplan.weights.inventory import Block, Inventory

if TYPE_CHECKING:
    from kvplan.architectures import draft_tensors
    from kvplan.architectures import quantised as formats
    from kvplan.architectures.config import drafts as drafts_rules
    from kvplan.architectures.config import read
    from kvplan.weights import quantisation as stored
    from kvplan.weights.quantisation import Quantisation
else:
    draft_tensors, formats = later("kvplan.architectures", "draft_tensors quantised")
    drafts_rules, read = later("kvplan.architectures.config", "drafts read")
    stored = later("kvplan.weights", "quantisation")

NO_INVENTORY = frozenset(
    (
        "no-weights unknown-model-type missing-key bad-config unknown-quantization unknown-layer-type"
        " foreign-weights"
    ).split()
)
"""Errors of `inventory_of` that say that nobody knows the tensors."""


def known_decoders() -> list[str]:
    """Every model type whose tensors are known."""
    return sorted(name for name, known in lineages().items() if known.tensors or known.whole)


def inventory_of(raw: Json, *, hf_quant_config: Json | None = None) -> Inventory:
    """The tensors of the model that a config describes; hf_quant_config is ModelOpt's file beside it.

    Raises KvplanError: no-weights (no rule for this model type), missing-key, bad-config,
    unknown-quantization.
    """
    part = find_text_part(raw)
    quantisation = _quantisation(part, hf_quant_config)
    whole = lineage_of(part.top.model_type).whole
    if whole is not None:
        ends, layers = whole(part.view)
        return _stored(Inventory(tuple(ends), layers, dtype=part.stated_dtype), quantisation)
    made = _rule(part)(part.view)
    ends = made.frame.ends(part.view, _wrapper_ties(part))
    for level in part.levels[:-1] or (part.levels if _beside(part) else ()):
        tower = lineage_of(level.model_type).tower
        if tower is None:
            raise _unknown(level.model_type, "what stands beside its text decoder is not known")
        ends += tower(level.raw, part.view)
    layers = blocks(made.frame.layers, made.layers)
    drafts = _drafts(part, made)
    return _stored(Inventory(tuple(ends), layers, drafts, part.stated_dtype), quantisation)


def _quantisation(part: TextPart, hf_quant_config: Json | None) -> Quantisation | None:
    keys = ("quantization_config", "compression_config")
    if hf_quant_config is None and not any(level.raw.get(key) for level in part.levels for key in keys):
        return None
    return formats.quantisation_of(part, hf_quant_config)


def _stored(made: Inventory, quantisation: Quantisation | None) -> Inventory:
    """The tensors as the checkpoint stores them."""
    return made if quantisation is None else stored.quantised(made, quantisation)


def _drafts(part: TextPart, made: Decoder) -> tuple[Block, ...]:
    """The prediction layers' tensors: as many and as built as the cache's rule says."""
    if part.prediction is None or not drafts_rules.how_many(part):
        return ()
    layers = read.own_layers(part)
    drafts = drafts_rules.drafts_of(part, layers)
    return draft_tensors.draft_blocks(part.view, made, layers, drafts) if drafts else ()


def _wrapper_ties(part: TextPart) -> bool | None:
    """The wrapper's tie_word_embeddings, given or its class's default; None for a text-only config.

    Source: vllm-project/vllm vllm/config/vllm.py with_hf_config (0.32).
    """
    if len(part.levels) < 2:
        return None
    given = part.top.raw.get("tie_word_embeddings")
    if given is None:
        given = (class_facts(part.top.model_type) or {}).get("defaults", {}).get("tie_word_embeddings")
    return given if isinstance(given, bool) else None


_OTHER_INPUT = ("vision_config", "visual", "img_processor", "audio_config", "vision_tower", "mm_vision_tower")


def _beside(part: TextPart) -> list[str]:
    """Other inputs named by a config without a text part of its own."""
    return [key for key in _OTHER_INPUT if part.levels[-1].raw.get(key) and len(part.levels) == 1]


def _rule(part: TextPart) -> DecoderRule:
    beside = _beside(part)
    if beside and lineage_of(part.model_type).tower is None:
        raise _unknown(part.model_type, f"what its {beside[0]} adds is not known")
    for name in (part.model_type, part.view.model_type):
        rule = lineage_of(name).tensors
        if rule is not None:
            return rule
    raise _unknown(part.model_type, "its tensors are not known")


COUNT_THEM = (
    "count them, with transformers and torch: kvplan cards new CONFIG --count, or --weights-from transformers"
)


def _unknown(model_type: str, why: str) -> KvplanError:
    counts = (COUNT_THEM,) if class_facts(model_type) is not None else ()
    return KvplanError(
        "no-weights",
        f"the weights of {model_type[:80]!r} cannot be derived from its config: {why}",
        help=(
            "put the checkpoint's model.safetensors.index.json or its safetensors files beside the config",
            *counts,
            "give the weights of one GPU yourself: --weights 15GiB",
        ),
    )
