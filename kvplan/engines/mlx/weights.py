"""Weights as mlx_lm.convert stores them: matrices in so many bits, with a scale and a bias for each group.

ml-explore/mlx-lm 0.32.2 mlx_lm/utils.py (quantize_model, defaults_for_mode) and mlx 0.32.4
(mlx.core.quantize): linear layers, embeddings and experts whose width is a whole number of groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvplan.architectures.config.view import split_quant, unquantised
from kvplan.architectures.inventory import NO_INVENTORY, inventory_of
from kvplan.dtypes import Packing
from kvplan.engines.mlx.models import type_of
from kvplan.engines.traits import usual_build
from kvplan.errors import KvplanError, RefusedError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record
from kvplan.units import ceil_div
from kvplan.weights.inventory import Inventory, Role, Tensor
from kvplan.weights.parts import TOWER_NAME

MATRICES = (Role.LINEAR, Role.EXPERT, Role.HEAD, Role.EMBEDDING)


@record()
class Build:
    """How a matrix is stored: bits of a number (0: as trained), numbers of a group, bytes of a group's scale
    (and bias: 0 stands for both in the model's element type). experts: of experts, where that is another."""

    bits: int
    group: int = 64
    scale_bytes: int = 0
    experts: Build | None = None

    def bytes_of(self, elements: int, columns: int, element: Packing) -> int:
        """Of a matrix with rows of so many numbers, which stays as trained where they are no whole groups."""
        if not self.bits or not columns or columns % self.group:
            return elements * element.bytes
        beside = self.scale_bytes or 2 * element.bytes
        return ceil_div(elements * self.bits, 8) + elements // self.group * beside


_MXFP4 = Build(4, 32, 1)
BUILDS: Mapping[str, Build] = {
    "bf16": Build(0),
    "8bit": Build(8),
    "6bit": Build(6),
    "5bit": Build(5),
    "4bit": Build(4),
    "3bit": Build(3),
    "2bit": Build(2),
    "mxfp8": Build(8, 32, 1),
    "mxfp4-q8": Build(8, experts=_MXFP4),
    "mxfp4-q4": Build(4, experts=_MXFP4),
    "nvfp4": Build(4, 16, 1),
    "mxfp4": _MXFP4,
}
"""Word after ``-q`` and in the names of mlx-community → the build, in mlx_lm.convert's own groups."""
_EXPERTS_ONLY = Build(0, experts=_MXFP4)
"""A checkpoint whose experts were published in MXFP4: mlx-lm leaves the rest as trained (load_model)."""
_BY_NAME = regex(r"(mxfp4-q[48]|mxfp[48]|nvfp4|(?<![\d.])[234568]-?bit|bf16|fp16)", re.IGNORECASE)
_LOADED = ("", "mlx", "mxfp4")
"""Methods of a model's own checkpoint of which it is known what MLX holds."""
_MADE_WHOLE = frozenset({"deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"})
"""Types whose FP8 checkpoints are taken apart to bfloat16 as they load (deepseek_v3.py, sanitize)."""
_EIGHT_BITS: Mapping[str, tuple[str, ...]] = {
    "granite": ("self_attn.o_proj", "mlp.down_proj", "lm_head"),
    "granitemoe": ("self_attn.o_proj", "experts.down_proj", "lm_head"),
}
"""Type → the ends of the paths of matrices that keep 8 bits in builds of fewer (granite.py,
quant_predicate). Routers do too, in several classes: they are counted as trained."""


def build_word(model: Model, quantization: str | None) -> str:
    """The build: as asked, as its name says, else the usual one. Raises KvplanError(bad-setting) for a word
    that is none, RefusedError(no-weights) where nobody says how many bits there are."""
    if quantization is not None:
        word = quantization.lower().replace("-bit", "bit")
        word = {"float16": "bf16", "fp16": "bf16", "bfloat16": "bf16"}.get(word, word)
        if word not in BUILDS:
            raise KvplanError(
                "bad-setting", f"MLX has no build {quantization!r} that is known here",
                help="one of " + ", ".join(BUILDS),
            )  # fmt: skip
        return word
    if model.quantization == "mlx":
        named = _BY_NAME.search(model.id.rpartition("/")[2])
        if named is None:
            raise RefusedError(
                "no-weights", f"the name of {model.id} does not say its bits", help="--weights 15GiB"
            )
        word = named[1].lower().replace("-bit", "bit")
        return "bf16" if word == "fp16" else word
    own = model.quantization or ""
    if own not in _LOADED and not (own == "fp8" and type_of(model) in _MADE_WHOLE):
        raise RefusedError(
            "no-weights",
            f"how MLX holds a checkpoint in {own} is not known here",
            help=("-q 4bit: as mlx-community's build of it", "--weights 15GiB"),
        )
    return usual_build("mlx", model) or "bf16"


def weights_of(model: Model, quantization: str | None, element: Packing) -> tuple[int, int, str]:
    """(bytes of the decoder, of encoders beside it, the build's word). Raises KvplanError(bad-setting),
    RefusedError(no-weights)."""
    own = None if quantization is not None else _stated(model)
    if own is not None:
        return _summed(model, own, element)
    word = build_word(model, quantization)
    eight = _EIGHT_BITS.get(type_of(model), ()) if 0 < BUILDS[word].bits < 8 else ()
    build = _EXPERTS_ONLY if word == "mxfp4" and model.quantization == "mxfp4" else BUILDS[word]
    return _summed(model, Stated(word, build, dict.fromkeys(eight, BUILDS["8bit"])), element)


def _summed(model: Model, how: Stated, element: Packing) -> tuple[int, int, str]:
    """As `weights_of`."""
    decoder = encoders = 0
    for path, tensor in _inventory(model).tensors():
        if TOWER_NAME.search(path):
            encoders += tensor.elements * element.bytes
        else:
            decoder += _bytes(tensor, how.of(path), element)
    return decoder, encoders, how.words


@record()
class Stated:
    """How each matrix is stored: as ``build``, or as ``others`` has it by the end of its path."""

    words: str
    build: Build
    others: Mapping[str, Build]

    def of(self, path: str) -> Build:
        """The build of the matrix at a path."""
        return next((one for end, one in self.others.items() if path.endswith(end)), self.build)


def _stated(model: Model) -> Stated | None:
    """The ``quantization`` of a config that mlx_lm.convert wrote: of all, and of modules by their paths."""
    found = (model.config or {}).get("quantization")
    if model.quantization != "mlx" or not isinstance(found, Mapping):
        return None
    build = _of_entry(found)
    if build is None:
        return None
    named = {path: _of_entry(entry) for path, entry in found.items() if isinstance(entry, Mapping)}
    whole = {path: Build(0) for path, entry in found.items() if entry is False}
    others = {path: one for path, one in named.items() if one is not None}
    return Stated(f"{build.bits} bits, groups of {build.group}", build, {**others, **whole})


def _of_entry(entry: Mapping[str, object]) -> Build | None:
    bits, group, mode = entry.get("bits"), entry.get("group_size"), entry.get("mode", "affine")
    if not isinstance(bits, int) or not isinstance(group, int) or not 0 < bits <= 8 or group < 1:
        return None
    return Build(bits, group, 0 if mode == "affine" else 1)


def _inventory(model: Model) -> Inventory:
    """The tensors as trained. Raises RefusedError(no-weights)."""
    if not model.config:
        raise RefusedError("no-weights", f"the tensors of {model.id} are not known", help="--weights 15GiB")
    try:
        return inventory_of(unquantised(split_quant(model.config)[0]))
    except KvplanError as error:
        if error.code not in NO_INVENTORY:
            raise
        raise RefusedError("no-weights", error.message, help="--weights 15GiB") from error


def _bytes(tensor: Tensor, build: Build, element: Packing) -> int:
    columns = 1
    for dim in tensor.columns:
        columns *= dim.value
    if tensor.role not in MATRICES or not tensor.columns:
        return tensor.elements * element.bytes
    own = build.experts if tensor.role is Role.EXPERT and build.experts is not None else build
    return own.bytes_of(tensor.elements, columns, element)
