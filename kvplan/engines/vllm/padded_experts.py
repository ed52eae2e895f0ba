"""Experts on AMD's GPUs, which Triton reads faster where their rows do not begin 512 bytes apart.

vllm-project/vllm model_executor/layers/fused_moe/unquantized_fused_moe_method.py, _maybe_pad_weight
(VLLM_ROCM_MOE_PADDING, on by default): 256 bytes after every row of w13 (gate and up) and of w2 (down) whose
bytes divide by 512, of experts that are not quantised; until 0.24 a later copy undid it
(fused_moe/oracle/unquantized.py). Without AITER, which is off unless asked for.

Each layer's padded w2 is made in the block that w13 has just left, and what is left of that block no later
layer's matrix fits into: since 0.27, which counts all that a start took, w13 − padded w2 of every layer stays
(c10/cuda/CUDACachingAllocator.cpp, get_free_block; empty_cache gives whole blocks back). Qwen3-30B-A3B on an
MI300X (0.28, four starts of one machine): 23.6 GiB less cache than without either; 20.3 so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvplan.dtypes import Packing
from kvplan.engines.base import parse_version
from kvplan.engines.vllm.options import EXPANDABLE
from kvplan.model import Model
from kvplan.results import BudgetLine
from kvplan.settings import Serving
from kvplan.weights.facts import WeightSources
from kvplan.weights.inventory import Dim, Inventory, Role, Tensor
from kvplan.weights.ranks import Parallel, on_rank
from kvplan.weights.stages import held

PADDED = "padding of experts"
AMD = "amd"
_SINCE, _HOLES = (0, 25), (0, 27)
_APART, _PADDING = 512, 256
_MORE = 3
"""The high end: a third of the holes more."""


def padded_lines(
    model: Model,
    settings: Serving,
    version: str,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
) -> tuple[BudgetLine, ...]:
    """Padding and what it leaves in the allocator, one line a stage; none where nothing is padded."""
    release, gpu, inventory = parse_version(version), settings.gpu, sources.inventory
    if gpu is None or gpu.vendor.lower() != AMD or release < _SINCE or inventory is None:
        return ()
    if sources.stated_bytes is not None or parallel.redundant_experts:
        return ()
    holes = release >= _HOLES and dict(settings.engine_options).get("pytorch_alloc_conf") != EXPANDABLE
    lines = []
    for padding, left in _stages(inventory, parallel, dtype.bytes):
        kept = left if holes else 0
        source = "256 bytes a row (VLLM_ROCM_MOE_PADDING), and holes in what the rows lay in before"
        lines.append(BudgetLine(PADDED, padding + kept, padding, padding + kept + kept // _MORE, source))
    return tuple(lines) if any(line.bytes for line in lines) else ()


def _stages(inventory: Inventory, parallel: Parallel, element: int) -> Iterable[tuple[int, int]]:
    """(padding, holes) of the fullest rank of each stage, bytes."""
    for tensors in held(inventory, parallel.pipeline_parallel_size):
        experts = {
            tensor: layers
            for tensor, layers in tensors.items()
            if tensor.role is Role.EXPERT and tensor.form is None and tensor.stack and tensor.columns
        }
        padding = sum(
            rows * _PADDING * layers
            for tensor, layers in experts.items()
            for rows, width in (_matrix(tensor, parallel, element),)
            if width % _APART == 0
        )
        yield padding, _holes(experts, parallel, element)


def _holes(experts: Mapping[Tensor, int], parallel: Parallel, element: int) -> int:
    """w13 − padded w2 of each layer, where both are padded."""
    downs = {tensor: layers for tensor, layers in experts.items() if tensor.name.endswith("down_proj")}
    found = 0
    for down, layers in downs.items():
        rows, width = _matrix(down, parallel, element)
        whole = down.name.removesuffix("down_proj")
        first = [tensor for tensor in experts if tensor.name in (f"{whole}gate_proj", f"{whole}up_proj")]
        sizes = [_matrix(tensor, parallel, element) for tensor in first]
        if width % _APART == 0 and all(each % _APART == 0 for _, each in sizes):
            found += max(0, sum(count * each for count, each in sizes) - rows * (width + _PADDING)) * layers
    return found


def _matrix(tensor: Tensor, parallel: Parallel, element: int) -> tuple[int, int]:
    """(rows of all experts of a rank, bytes of a row)."""
    rows = _product((*tensor.stack, *tensor.rows), parallel)
    return rows, _product(tensor.columns, parallel) * element


def _product(dims: Iterable[Dim], parallel: Parallel) -> int:
    found = 1
    for dim in dims:
        found *= on_rank(dim, parallel)
    return found
