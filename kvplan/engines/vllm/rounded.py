"""What the weights take beyond their own bytes under vLLM: torch's allocator rounds them up."""

from __future__ import annotations

from kvplan.dtypes import Packing
from kvplan.engines.base import parse_version
from kvplan.engines.budget.lines import exact
from kvplan.engines.budget.parts import NVIDIA
from kvplan.engines.vllm.multimodal import text_only
from kvplan.model import Model
from kvplan.results import BudgetLine
from kvplan.settings import Serving
from kvplan.units import MIB
from kvplan.weights.allocated import rounded_up
from kvplan.weights.facts import WeightSources
from kvplan.weights.ranks import Parallel

TOWERS_LEFT = (0, 15)
"""Since then an encoder that serves nothing is not loaded (interfaces.py, _mark_tower_model)."""
_ROUNDED = "weights, rounded up"
_LOADED_WHOLE, _MAX_SPLIT = (0, 21), 20 * MIB


def rounded_lines(
    model: Model,
    settings: Serving,
    version: str,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
) -> tuple[BudgetLine, ...]:
    """What torch's allocator gives beyond the tensors, one line a stage; none where somebody read the figure,
    or where some of the weights lie in the CPU's memory.

    Since 0.21 vLLM loads with max_split_size_mb at 20, on NVIDIA's GPUs (v1/worker/gpu_worker.py, load_model,
    _scoped_allocator_max_split; vllm-project/vllm#41268): a larger tensor has whole steps of 2 MiB. The log's
    ``Model loading took`` has it: of 40 unquantised starts of 0.11 to 0.31 36 print the sum to 0.01 GiB.
    """
    inventory, gpu = sources.inventory, settings.gpu
    if inventory is None or sources.stated_bytes is not None or settings.cpu_offload_gb or gpu is None:
        return ()
    whole = gpu.vendor == NVIDIA and parse_version(version) >= _LOADED_WHOLE
    left = parse_version(version) >= TOWERS_LEFT and text_only(model, settings)
    amounts = rounded_up(inventory, parallel, dtype, max_split=_MAX_SPLIT if whole else None, towers=not left)
    how = "whole steps of 2 MiB while weights are loaded" if whole else "what is left of torch's segments"
    return tuple(exact(_ROUNDED, amount, f"torch's allocator: {how}") for amount in amounts)
