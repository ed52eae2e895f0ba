"""The role of a config's class: generate with an encoder, generate alone, or only encode."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.blocks.cross import with_cross, without_cross
from kvplan.architectures.config.class_names import (
    class_facts,
    class_names,
    first_architecture,
    generates,
    text_parts,
)
from kvplan.architectures.config.plain import LAYERS
from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.config.view import LARGEST, check_integer
from kvplan.architectures.lineages import lineage_of
from kvplan.families import NoCache
from kvplan.model import Encoder, Layer
from kvplan.record import record

# Types that attend in both directions unless the config or the class makes them a decoder.
BOTH_WAYS = frozenset(
    {
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "megatron-bert",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
# Wrappers whose decoder is any model: its layers get cross attention where its own rule gives none.
COMPOSITES = frozenset({"encoder-decoder", "speech-encoder-decoder", "vision-encoder-decoder"})
# The conditioning text is put before the codes instead of being attended to (musicgen_melody).
PREPENDED = frozenset({"musicgen_melody"})
# Classes of encoder-decoder types that hold the encoder alone.
_ENCODER_CLASSES = ("EncoderModel", "ForAudioClassification", "ForTokenClassification", "Encoder")
# Tokens that a patch encoder puts before its patches (class token, distillation token).
_OWN_TOKENS = {"vit": 1, "beit": 1, "dinov2": 1, "deit": 2}
_ALONE_CLASSES = ("ForCausalLM", "LMHeadModel")


@record()
class Role:
    """The decoder's part in the whole: its encoder, or why there is no cache."""

    encoder: Encoder | None = None
    no_cache: str | None = None


def role_of(part: TextPart) -> Role:
    """Decide from ``architectures``; without it, the type's natural class counts.

    An encoder-decoder type with a ``…ForCausalLM`` class stands alone: no encoder, no cross cache.
    """
    top, architecture = part.top, first_architecture(part.top.raw)
    reason = _no_cache(part, architecture)
    if reason is not None:
        return Role(no_cache=reason)
    for level in part.levels:
        if lineage_of(level.model_type).encoder is not None:
            alone = _stands_alone(
                level.model_type, top.model_type, architecture, level.raw.get("is_encoder_decoder")
            )
            return Role() if alone else Role(encoder=_encoder(part, level.model_type))
    return Role()


def shaped(part: TextPart, layers: list[Layer], role: Role) -> list[Layer]:
    """The layers as this role has them: without cross attention, with it added, or without a cache."""
    if role.no_cache is not None:
        return [Layer((NoCache(),))] * len(layers)
    types = {level.model_type for level in part.levels}
    if role.encoder is None or types & PREPENDED:
        return without_cross(layers)
    return with_cross(layers) if types & COMPOSITES or _class_is_seq2seq(types) else layers


def _class_is_seq2seq(types: set[str]) -> bool:
    return any(lineage_of(name).encoder for name in types) and not types & {"mllama", "mllama_text_model"}


def _stands_alone(model_type: str, top_type: str, architecture: str | None, stated: object) -> bool:
    if model_type.startswith("mllama"):
        return False
    if architecture is not None and (top_type == model_type or not generates(top_type)):
        return architecture in class_names(model_type, "causal_lm") or architecture.endswith(_ALONE_CLASSES)
    if isinstance(stated, bool):
        return not stated
    facts = class_facts(model_type) or {}
    for table in ("derived", "defaults"):
        if "is_encoder_decoder" in facts.get(table, {}):
            return not facts[table]["is_encoder_decoder"]
    return True


def _encoder(part: TextPart, model_type: str) -> Encoder:
    rule = lineage_of(model_type).encoder
    assert rule is not None
    length: int | None = None
    if rule.length is not None:
        length = part.view.optional_integer(rule.length, highest=LARGEST)
    elif model_type == "vision-encoder-decoder":
        length = _patches(part.top.raw.get("encoder"))
    return Encoder(rule.input, None if length is None else int(length))


def _patches(encoder: object) -> int | None:
    """(image_size // patch_size)² patches and the class's own tokens, where the file states both sizes."""
    if not isinstance(encoder, Mapping):
        return None
    model_type, image, patch = (encoder.get(key) for key in ("model_type", "image_size", "patch_size"))
    own = _OWN_TOKENS.get(model_type) if isinstance(model_type, str) else None
    if own is None or not (isinstance(image, int) and isinstance(patch, int)):
        return None
    side = check_integer(image, "encoder.image_size") // check_integer(patch, "encoder.patch_size")
    return side * side + own if side * side <= LARGEST else None


def _no_cache(part: TextPart, architecture: str | None) -> str | None:
    model_type, top = part.view.model_type, part.top.model_type
    known = lineage_of(model_type)
    if known.no_cache:
        return known.no_cache
    if len(part.levels) > 1:
        return None
    if architecture is not None and lineage_of(top).encoder and architecture.endswith(_ENCODER_CLASSES):
        return f"{architecture} is the encoder alone: it reads its input once and keeps nothing"
    if model_type in BOTH_WAYS:
        decoder = part.view.flag("is_decoder") or (
            architecture is not None
            and (
                architecture in class_names(model_type, "causal_lm")
                or architecture.endswith((*_ALONE_CLASSES, "Decoder"))
            )
        )
        return None if decoder else f"{architecture or model_type} is an encoder: it reads its input once"
    if not part.known or known.layers is not None or generates(model_type):
        return None
    if class_facts(model_type) is not None and model_type not in text_parts():
        return f"transformers builds no class of {model_type} that generates text with a cache"
    return None


def layer_count(part: TextPart) -> int:
    """How many layers a model without a cache has, for the record; 0 where its keys are others."""
    value = part.view.get(*LAYERS)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 4096 else 0
