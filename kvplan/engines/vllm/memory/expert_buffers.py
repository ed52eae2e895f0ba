"""Buffers of experts beside the weights: of the load balancer (--enable-eplb), and of kernels that have one a
layer (--moe-backend flashinfer_b12x).

vllm-project/vllm 0.20 … 0.33: vllm/distributed/eplb/eplb_state.py (add_model): a buffer like the experts of
one layer, through which others are taken over, and the load of every expert in the last window_size steps.
vllm/model_executor/layers/fused_moe/experts/flashinfer_b12x_moe.py (_ensure_wrapper): a B12xMoEWrapper of
each layer, made for max_num_tokens before the first pass and kept for CUDA graphs.
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.dtypes import Packing
from kvplan.engines.vllm.options import VllmOptions
from kvplan.results import BudgetLine, exact
from kvplan.settings import Serving
from kvplan.weights.inventory import Block, Inventory, Role, Split
from kvplan.weights.ranks import Parallel, stage_layers, tensor_bytes

_WINDOW = 1000
"""EPLBConfig.window_size, which no option of a plan changes."""
_LOAD_BYTES = 4
B12X = "flashinfer_b12x"
_MOST_MILLI = 1_500
"""Of a wrapper's rows: its own figures are not published. One start (vllm-project/vllm#49476, 0.25.1, 40
layers, a batch of 8,192) has 11.5 GiB less than with Marlin; the rows alone are 10.0."""


def buffer_lines(
    settings: Serving, inventory: Inventory, parallel: Parallel, dtype: Packing, shape: Shape, tokens: int
) -> tuple[tuple[BudgetLine, ...], ...]:
    """The lines of every stage."""
    stages: list[tuple[BudgetLine, ...]] = []
    own, start = VllmOptions.of(settings), 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        sparse = [one for one in inventory.layers[start : start + count] if _experts(one)]
        start += count
        found = []
        if own.enable_eplb and sparse:
            found.append(_balancer(sparse, parallel, dtype))
        if own.moe_backend == B12X and sparse:
            found.append(_wrappers(len(sparse), shape, tokens))
        stages.append(tuple(found))
    return tuple(stages)


def _balancer(sparse: list[Block], parallel: Parallel, dtype: Packing) -> BudgetLine:
    """experts of one layer + (window_size + 1) · layers with experts · experts · 4 bytes."""
    first = (one for one in sparse[0].tensors if one.role is Role.EXPERT)
    buffer = sum(tensor_bytes(one, parallel, dtype) for one in first)
    load = (_WINDOW + 1) * sum(_experts(one) + parallel.redundant_experts for one in sparse) * _LOAD_BYTES
    return exact("expert balancer", buffer + load, "one layer's experts, and their load (EPLB)")


def _wrappers(layers: int, shape: Shape, tokens: int) -> BudgetLine:
    """layers with experts · batch · experts of a token · hidden · element bytes; from none to half as much
    again."""
    hidden = shape.expert_hidden or shape.hidden_size
    rows = layers * tokens * shape.experts_per_token * hidden * shape.element_bytes
    how = "a wrapper of each layer for the whole batch (flashinfer_b12x); what it keeps is not published"
    return BudgetLine("b12x workspaces", rows, 0, rows * _MOST_MILLI // 1000, how)


def _experts(block: Block) -> int:
    """The experts of a layer; 0 where it has none."""
    dims = (dim for one in block.tensors if one.role is Role.EXPERT for dim in one.stack)
    return max((dim.value for dim in dims if dim.split is Split.EXPERTS), default=0)
