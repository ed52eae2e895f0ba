"""Memory of the expert load balancer (--enable-eplb) beside the weights.

vllm-project/vllm 0.20 … 0.33 vllm/distributed/eplb/eplb_state.py (add_model): a buffer like the experts of
one layer, through which others are taken over, and the load of every expert in the last window_size steps.
"""

from __future__ import annotations

from kvplan.dtypes import Packing
from kvplan.engines.vllm.options import VllmOptions
from kvplan.results import BudgetLine, exact
from kvplan.settings import Serving
from kvplan.weights.inventory import Block, Inventory, Role, Split
from kvplan.weights.ranks import Parallel, stage_layers, tensor_bytes

_WINDOW = 1000
"""EPLBConfig.window_size, which no option of a plan changes."""
_LOAD_BYTES = 4


def balance_lines(
    settings: Serving, inventory: Inventory, parallel: Parallel, dtype: Packing
) -> tuple[BudgetLine, ...]:
    """experts of one layer + (window_size + 1) · layers with experts · experts · 4 bytes, of every stage;
    none without the balancer."""
    if not VllmOptions.of(settings).enable_eplb:
        return ()
    lines, start = [], 0
    for count in stage_layers(len(inventory.layers), parallel.pipeline_parallel_size):
        sparse = [one for one in inventory.layers[start : start + count] if _experts(one)]
        start += count
        buffer = sum(tensor_bytes(one, parallel, dtype) for one in (sparse[0].tensors if sparse else ())
                     if one.role is Role.EXPERT)  # fmt: skip
        load = (_WINDOW + 1) * sum(_experts(one) + parallel.redundant_experts for one in sparse) * _LOAD_BYTES
        lines.append(exact("expert balancer", buffer + load, "one layer's experts, and their load (EPLB)"))
    return tuple(lines)


def _experts(block: Block) -> int:
    """The experts of a layer; 0 where it has none."""
    dims = (dim for one in block.tensors if one.role is Role.EXPERT for dim in one.stack)
    return max((dim.value for dim in dims if dim.split is Split.EXPERTS), default=0)
