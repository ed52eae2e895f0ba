"""The tensors of a checkpoint as stored, one by one, and each GPU's part of them.

The headers say how many bytes there are; how they are divided follows from the inventory of the config
where there is one (kvplan.weights.ranks), else from the names of the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod

from kvplan.dtypes import Packing
from kvplan.later import regex
from kvplan.record import Json, record
from kvplan.units import ceil_div
from kvplan.weights.inventory import Inventory, Place, Placed, Role, Tensor
from kvplan.weights.parts import TOWER_NAME
from kvplan.weights.ranks import ALONE, Parallel, lies_on, stage_layers, tensor_bytes

FLOATS = ("F64", "F32", "F16", "BF16")
DTYPE_BITS = {
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "C64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "F16": 16,
    "BF16": 16,
    "I16": 16,
    "U16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
"""Bits of one number by safetensors' names (huggingface/safetensors safetensors/src/tensor.rs)."""
LAYER_NAME = regex(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,5})\.")
DRAFT_NAME = regex(r"(?:^|\.)(?:mtp|nextn|eagle)(?:_[a-z_]+)?[.\d]")
EXPERT_NAME = regex(r"\.experts(?:\.|_)")
DROPPED_NAME = regex(r"(?:rotary_emb\.inv_freq|\.masked_bias|\.attn\.bias|position_ids)$")
_SCALE = regex(r"scale|zero_point|qzeros|\.scales$|g_idx|absmax|quant_map|quant_state|amax")


@record()
class Stored:
    """One tensor of a checkpoint: name, safetensors dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return ceil_div(self.elements * DTYPE_BITS[self.dtype], 8)

    def loaded_bytes(self, dtype: Packing) -> int:
        """Bytes once loaded: 16- and 32-bit weights take the served dtype, what is quantised stays."""
        if self.dtype in FLOATS and not _SCALE.search(self.name):
            return dtype.bytes_for(self.elements)
        return self.bytes


@record(eq=False)
class Checkpoint:
    """All tensors of a checkpoint. ``where``: the directory, or the hub's repository. ``source``: how they
    are known."""

    tensors: tuple[Stored, ...]
    where: str
    source: str = "safetensors headers"

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)

    def bytes_by_dtype(self) -> dict[str, int]:
        """Stored bytes by safetensors dtype, largest first."""
        sums: dict[str, int] = {}
        for tensor in self.tensors:
            sums[tensor.dtype] = sums.get(tensor.dtype, 0) + tensor.bytes
        return dict(sorted(sums.items(), key=lambda entry: -entry[1]))


Key = tuple[str, int]
"""("layer", index) or ("end", 0), with experts and heads told apart by the first word."""


def parts_of(
    checkpoint: Checkpoint, layers: int, *, tied: bool, dtype: Packing
) -> tuple[dict[Key, int], int]:
    """Loaded bytes by part of the model, and the bytes of draft layers (multi-token prediction).

    Left out: a head that is tied to the embedding, and buffers that no engine loads.
    """
    sums: dict[Key, int] = {}
    drafts = 0
    for tensor in checkpoint.tensors:
        if DROPPED_NAME.search(tensor.name):
            continue
        size = tensor.loaded_bytes(dtype)
        layer = LAYER_NAME.search(tensor.name)
        tower = TOWER_NAME.search(tensor.name)
        if DRAFT_NAME.search(tensor.name) or (layer and not tower and int(layer[1]) >= layers):
            drafts += size
            continue
        if layer and not tower:
            key = ("experts" if EXPERT_NAME.search(tensor.name) else "layer", int(layer[1]))
        else:
            kind = end_kind(tensor.name)
            if kind == "head" and tied:
                continue
            key = ("tower" if tower else kind, 0)
        sums[key] = sums.get(key, 0) + size
    return sums, drafts


_HEAD = regex(r"(?:^|\.)(?:lm_head|embed_out|output_layer|output|head)\.(?:weight|bias|q\w+|scales)")
_EMBED = regex(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|wte|embed_in|tok_embeddings|embeddings?|embed|shared)\.(?:weight|q\w+)$"
)


def end_kind(name: str) -> str:
    """``embedding``, ``head`` or ``rest`` for a tensor outside the layers."""
    if _HEAD.search(name):
        return "head"
    return "embedding" if _EMBED.search(name) else "rest"


def stage_bytes(
    checkpoint: Checkpoint, inventory: Inventory, parallel: Parallel, dtype: Packing
) -> tuple[tuple[int, ...], int]:
    """Bytes on the fullest rank of each stage, and the drafts' (on a GPU that has all).

    Each part (a layer, its experts, the embedding, the head, a tower) has the checkpoint's bytes and is
    divided as the inventory's tensors of that part are: stored × on rank / whole. Where the inventory and
    the checkpoint agree, this is the inventory's own figure.
    """
    tied = not any(entry.tensor.role is Role.HEAD for entry in inventory.ends)
    sums, drafts = parts_of(checkpoint, len(inventory.layers), tied=tied, dtype=dtype)
    stages = parallel.pipeline_parallel_size
    totals = []
    start = 0
    for stage, count in enumerate(stage_layers(len(inventory.layers), stages)):
        total = 0
        groups: dict[str, list[Placed]] = {}
        for entry in inventory.ends:
            groups.setdefault(_end_of(entry.tensor), []).append(entry)
        for kind, entries in groups.items():
            present = [entry for entry in entries if lies_on(entry.place, stage, stages)]
            total += _share(sums.get((kind, 0)), entries, present, parallel, dtype)
        for index in range(start, start + count):
            tensors = [Placed(Place.EVERY, tensor) for tensor in inventory.layers[index].tensors]
            for kind, experts in (("experts", True), ("layer", False)):
                chosen = [entry for entry in tensors if (entry.tensor.role is Role.EXPERT) is experts]
                total += _share(sums.get((kind, index)), chosen, chosen, parallel, dtype)
        totals.append(total)
        start += count
    return tuple(totals), drafts


def _end_of(tensor: Tensor) -> str:
    if tensor.role is Role.EMBEDDING and end_kind(f"{tensor.name}.weight") == "embedding":
        return "embedding"
    if tensor.role is Role.HEAD:
        return "head"
    return "tower" if TOWER_NAME.search(f"{tensor.name}.") else "rest"


def _share(
    stored: int | None, whole: Iterable[Placed], present: Iterable[Placed], parallel: Parallel, dtype: Packing
) -> int:
    """stored × (what is present, on the rank) / (the whole); the rank's own figure where they agree."""
    complete = sum(entry.times * _stored_size(entry.tensor, dtype) for entry in whole)
    rank = sum(entry.times * tensor_bytes(entry.tensor, parallel, dtype) for entry in present)
    if stored is None or complete == 0 or stored == complete:
        return rank
    return ceil_div(stored * rank, complete)


@lru_cache(maxsize=1024)
def stored_total(inventory: Inventory, dtype: Packing) -> int:
    """Bytes of a checkpoint of this inventory, drafts left out."""
    ends = sum(entry.times * _stored_size(entry.tensor, dtype) for entry in inventory.ends)
    return ends + sum(_stored_size(tensor, dtype) for block in inventory.layers for tensor in block.tensors)


def _stored_size(tensor: Tensor, dtype: Packing) -> int:
    """Bytes of a tensor as a checkpoint has it: neither padded nor kept in another element type."""
    if tensor.form is None:
        return dtype.bytes_for(tensor.elements)
    return tensor_bytes(tensor, ALONE, dtype)


def has_drafts(names: Iterable[str], layers: int) -> bool:
    """Whether a list of tensor names has draft layers beyond the model's own."""
    for name in names:
        layer = LAYER_NAME.search(name)
        if DRAFT_NAME.search(name) or (layer and not TOWER_NAME.search(name) and int(layer[1]) >= layers):
            return True
    return False


FOREIGN = {"mlx": "MLX's format, which MLX alone loads", "exl": "ExLlama's format, which ExLlama alone loads"}
"""A method's name → the format in words."""
FOREIGN_WEIGHTS = "foreign-weights"
"""The error of such a checkpoint: whatever its files hold, none of the engines loads them."""
_OF_MLX = ("bits", "group_size")
_OF_GPTQ = frozenset(("quant_algo", "desc_act", "sym", "damp_percent", "static_groups", "zero_point"))
"""Keys of files that are older than `quant_method`, of other programs."""


def foreign_method(config: Json) -> str | None:
    """The method of a config of such a checkpoint, None for any other.

    MLX writes no method: bits and group_size, a mode, and what differs by the module's path (a table or
    a yes or no). Source: ml-explore/mlx-lm mlx_lm/utils.py, quantize_model (0.30.1).
    """
    for key in ("quantization_config", "quantization"):
        stated = config.get(key)
        if not isinstance(stated, Mapping):
            continue
        method = stated.get("quant_method")
        if isinstance(method, str) and method:
            return "exl" if method.lower().startswith("exl") else method if method in FOREIGN else None
        if all(type(stated.get(name)) is int for name in _OF_MLX) and not _OF_GPTQ.intersection(stated):
            return "mlx"
    return None
