"""The weight formats in which a model exists: its own, and those of its card's quantised checkpoints."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kvplan.architectures.checkpoint_names import is_of, stored_like
from kvplan.architectures.weights import sources_of
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card, weight_variants
from kvplan.model import Model

_WORD = re.compile(r"(nvfp4|mxfp4|mxfp8|fp8|int8|int4|bitsandbytes)")


class WeightFormat(NamedTuple):
    """A checkpoint. label: ``bfloat16``, ``fp8``, ``nvfp4``; bits: of one number of most matrices; published:
    it is the one that was asked for."""

    model: Model
    label: str
    bits: int
    published: bool


def weight_formats(model: Model) -> list[WeightFormat]:
    """The model itself first, then the quantised checkpoints of its card."""
    own = form_of(model)
    found = [WeightFormat(model, *own, published=True)]
    if model.source.startswith("card:"):
        others = (_of_this_model(model, other) for other in weight_variants(model.id))
        found += [WeightFormat(one, *form_of(one), published=False) for one in others if one is not None]
    return found


def _of_this_model(model: Model, other: Model) -> Model | None:
    """A quantised checkpoint of the card; where it is another model of the same sizes, the build that its
    maker would have of this one (``Qwen3-235B-A22B-FP8`` → ``Qwen3-235B-A22B-Thinking-2507-FP8``), known by
    its name alone. None where there is no such name."""
    if is_of(model.id, other.id):
        return other
    name = stored_like(model.id, other.id)
    try:
        build = None if name is None else load_card(name)
    except KvplanError:
        return None
    return build if build is not None and build.quantization == other.quantization else None


@lru_cache(maxsize=512)
def form_of(model: Model) -> tuple[str, int]:
    """The format of most of the matrices' numbers, and its bits."""
    plain = (model.dtype or "bfloat16", 16)
    try:
        inventory = sources_of(model).inventory
    except KvplanError:
        inventory = None
    if inventory is None:
        return (model.quantization, 8 if "8" in model.quantization else 4) if model.quantization else plain
    numbers: dict[tuple[str, int], int] = {}
    for _, tensor in inventory.tensors():
        key = plain if tensor.form is None else (tensor.form.name, tensor.form.bits)
        numbers[key] = numbers.get(key, 0) + tensor.elements
    name, bits = max(numbers, key=lambda key: numbers[key], default=plain)
    word = _WORD.match(name)
    return (word[1] if word else name), bits
