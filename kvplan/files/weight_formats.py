"""The weight formats in which a model exists: its own, and those of its known quantised checkpoints.

Which checkpoints a model has, and in which formats, is written down for the models with cards
(``model_cards/checkpoints.json``), so that one is read only where it is asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from kvplan.architectures.weights import sources_of
from kvplan.errors import KvplanError
from kvplan.files.cards.checkpoints import OTHERS, checkpoints_of, rank_of
from kvplan.files.cards.find import load_card
from kvplan.files.cards.index import FOLDER, newer_cards
from kvplan.files.datafiles import data_dir
from kvplan.files.folders import is_file
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record
from kvplan.weights.inventory import Role, Tensor

_WORD = regex(r"(nvfp4|mxfp4|mxfp8|fp8|int8|int4|bitsandbytes)")


FILE = "checkpoints.json"
Listed = tuple[str, str, int]
"""Id, label and bits of a checkpoint."""


@record()
class WeightFormat:
    """A checkpoint. label: ``bfloat16``, ``fp8``, ``nvfp4``; bits: of one number of most matrices; published:
    it is the one that was asked for."""

    id: str
    label: str
    bits: int
    published: bool = False
    asked: Model | None = None

    @property
    def model(self) -> Model:
        """Read when it is asked for."""
        return load_card(self.id) if self.asked is None else self.asked


def weight_formats(model: Model) -> list[WeightFormat]:
    """The model itself first, then its `other_formats`."""
    return [WeightFormat(model.id, *form_of(model), published=True, asked=model), *other_formats(model)]


def other_formats(model: Model) -> list[WeightFormat]:
    """The known quantised checkpoints of a model, its own maker's before others', the most bits first; of
    those who make neither the model nor GPUs or engines only formats that nobody before them has."""
    if not model.source.startswith("card:"):
        return []
    kept = None if newer_cards() is not None else _kept().get(model.id)
    return [WeightFormat(*one) for one in (listed_formats(model.id) if kept is None else kept)]


@cache
def _kept() -> Mapping[str, Sequence[Listed]]:
    """`listed_formats` of the models that have cards, as `scripts.make_cards` wrote them down."""
    path = data_dir(FOLDER) / FILE
    found: dict[str, Sequence[Listed]] = json.loads(path.read_text("utf-8")) if is_file(path) else {}
    return found


def listed_formats(name: str) -> list[Listed]:
    """`other_formats` of a name, worked out from the checkpoints themselves."""
    others: list[tuple[int, Listed]] = []
    labels: set[str] = set()
    for one in checkpoints_of(name):
        label, bits = form_of(one)
        rank = rank_of(one, name)
        if label not in labels or rank < OTHERS:
            others.append((rank, (one.id, label, bits)))
        labels.add(label)
    others.sort(key=lambda pair: (pair[0], -pair[1][2]))
    return [one for _, one in others]


def formats_text(names: Iterable[str]) -> str:
    """The content of ``checkpoints.json``, a name a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(listed_formats(name))}" for name in sorted(names)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


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
