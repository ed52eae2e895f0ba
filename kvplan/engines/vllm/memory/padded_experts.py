"""Experts on AMD's GPUs, which Triton reads faster where their rows do not begin 512 bytes apart.

vllm-project/vllm model_executor/layers/fused_moe/unquantized_fused_moe_method.py, _maybe_pad_weight
(VLLM_ROCM_MOE_PADDING, on by default): 256 bytes after every row of w13 (gate and up) and of w2 (down) whose
bytes divide by 512, of experts that are not quantised; until 0.24 a later copy undid it
(fused_moe/oracle/unquantized.py). Without AITER, which is off unless asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from kvplan.engines.budget.parts import AMD
from kvplan.engines.vllm.options import EXPANDABLE, VllmOptions
from kvplan.engines.vllm.versions import rules_of
from kvplan.named import NamedTuple
from kvplan.results import BudgetLine
from kvplan.settings import Serving
from kvplan.weights.inventory import Inventory, Role, Tensor
from kvplan.weights.ranks import Parallel, on_rank, stage_layers

PADDED = "padding of experts"
_APART, _PADDING = 512, 256
_MORE = 3
"""The high end: a third of the holes more."""
_W2, _W13 = "down_proj", ("gate_proj", "up_proj")


class _Matrix(NamedTuple):
    """rows of all experts of a rank, bytes of a row."""

    rows: int
    width: int

    @property
    def padding(self) -> int:
        return 0 if self.width % _APART else self.rows * _PADDING

    @property
    def bytes(self) -> int:
        return self.rows * self.width


def padded_lines(
    settings: Serving, release: tuple[int, ...], inventory: Inventory, parallel: Parallel, element: int
) -> tuple[BudgetLine, ...]:
    """Padding and what it leaves in the allocator, one line a stage; none where nothing is padded. element:
    bytes of the model's dtype."""
    gpu, rules = settings.gpu, rules_of(release)
    if (
        gpu is None
        or gpu.vendor.lower() != AMD
        or not rules.rocm_padded_experts
        or parallel.redundant_experts
    ):
        return ()
    # Since 0.27 everything that a start took is counted.
    counted = rules.consumed_counts and VllmOptions.of(settings).pytorch_alloc_conf != EXPANDABLE
    source = "256 bytes a row (VLLM_ROCM_MOE_PADDING), and holes in what the rows lay in before"
    lines, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        kinds = Counter(block.tensors for block in inventory.layers[start : start + count])
        start += count
        padding = holes = 0
        for tensors, layers in kinds.items():
            experts = {
                tensor.name: _matrix(tensor, parallel, element)
                for tensor in tensors
                if tensor.role is Role.EXPERT and tensor.form is None
            }
            padding += layers * sum(matrix.padding for matrix in experts.values())
            holes += layers * _holes(experts) if counted else 0
        lines.append(BudgetLine(PADDED, padding + holes, padding, padding + holes + holes // _MORE, source))
    return tuple(lines) if any(line.bytes for line in lines) else ()


def _matrix(tensor: Tensor, parallel: Parallel, element: int) -> _Matrix:
    rows, columns = (
        prod(on_rank(dim, parallel) for dim in dims)
        for dims in ((*tensor.stack, *tensor.rows), tensor.columns)
    )
    return _Matrix(rows, columns * element)


def _holes(experts: Mapping[str, _Matrix]) -> int:
    """w13 − padded w2 of one layer, where both are padded: w2 is made in the block that w13 has just left,
    and no later layer's matrix fits into what is left of it (c10/cuda/CUDACachingAllocator.cpp,
    get_free_block; empty_cache gives whole blocks back). Qwen3-30B-A3B on an MI300X (0.28, four starts of one
    machine): 23.6 GiB less cache than without either; 20.3 so."""
    found = 0
    for name, w2 in experts.items():
        module = name.removesuffix(_W2)
        first = [experts[module + other] for other in _W13 if module + other in experts]
        if module != name and w2.padding and all(matrix.padding for matrix in first):
            found += max(0, sum(matrix.bytes for matrix in first) - w2.bytes - w2.padding)
    return found
