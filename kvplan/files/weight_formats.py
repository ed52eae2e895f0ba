"""The weight formats in which a model exists: its own, and those of its known quantised checkpoints."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kvplan.architectures.weights import sources_of
from kvplan.errors import KvplanError
from kvplan.files.cards.checkpoints import OTHERS, checkpoints_of, rank_of
from kvplan.model import Model
from kvplan.weights.inventory import Role, Tensor

_WORD = re.compile(r"(nvfp4|mxfp4|mxfp8|fp8|int8|int4|bitsandbytes)")


class WeightFormat(NamedTuple):
    """A checkpoint. label: ``bfloat16``, ``fp8``, ``nvfp4``; bits: of one number of most matrices; published:
    it is the one that was asked for."""

    model: Model
    label: str
    bits: int
    published: bool


def weight_formats(model: Model) -> list[WeightFormat]:
    """The model itself first, then its known quantised checkpoints, its own maker's before others', the most
    bits first; of those who make neither the model nor GPUs or engines only formats that nobody before them
    has."""
    others: list[tuple[int, WeightFormat]] = []
    labels: set[str] = set()
    for one in checkpoints_of(model) if model.source.startswith("card:") else ():
        label, bits = form_of(one)
        rank = rank_of(one, model)
        if label not in labels or rank < OTHERS:
            others.append((rank, WeightFormat(one, label, bits, published=False)))
        labels.add(label)
    others.sort(key=lambda pair: (pair[0], -pair[1].bits))
    return [WeightFormat(model, *form_of(model), published=True), *(one for _, one in others)]


@lru_cache(maxsize=512)
def form_of(model: Model) -> tuple[str, int]:
    """The format of most of the matrices' numbers, embeddings aside, and its bits."""
    plain = (model.dtype or "bfloat16", 16)
    try:
        inventory = sources_of(model).inventory
    except KvplanError:
        inventory = None
    if inventory is None:
        return (model.quantization, 8 if "8" in model.quantization else 4) if model.quantization else plain
    blocks: dict[tuple[Tensor, ...], int] = {}
    for block in inventory.layers:  # a layer is counted once, and as often as there are its like
        blocks[block.tensors] = blocks.get(block.tensors, 0) + 1
    every = [(entry.times, entry.tensor) for entry in inventory.ends]
    every += [(times, tensor) for tensors, times in blocks.items() for tensor in tensors]
    numbers: dict[tuple[str, int], int] = {}
    for times, tensor in every:
        if tensor.role is not Role.EMBEDDING:
            key = plain if tensor.form is None else (tensor.form.name, tensor.form.bits)
            numbers[key] = numbers.get(key, 0) + times * tensor.elements
    name, bits = max(numbers, key=lambda key: numbers[key], default=plain)
    word = _WORD.match(name)
    return (word[1] if word else name), bits
