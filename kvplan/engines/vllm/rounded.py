"""What the weights take beyond their own bytes under vLLM: torch's allocator rounds them up."""

from __future__ import annotations

from kvplan.dtypes import Packing
from kvplan.engines.base import parse_version
from kvplan.engines.budget.lines import exact
from kvplan.engines.budget.parts import NVIDIA
from kvplan.engines.vllm.beside import layer_embeddings, with_shared_keys
from kvplan.engines.vllm.compressed_pass import made_beside
from kvplan.engines.vllm.multimodal import text_only
from kvplan.model import Model
from kvplan.results import BudgetLine
from kvplan.settings import EAGLE_LIKE, Serving
from kvplan.units import MIB, gib
from kvplan.weights.allocated import rounded_up
from kvplan.weights.facts import WeightSources
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import Parallel, stage_layers, tensor_bytes

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
    tokens: int,
) -> tuple[BudgetLine, ...]:
    """What torch's allocator gives beyond the tensors, and what is made beside them for a batch of so many
    tokens (`kvplan.engines.vllm.beside`, of DeepSeek-V4 `compressed_pass.made_beside`), one line a stage;
    none where somebody read the figure, or where some of the weights lie in the CPU's memory.

    Since 0.21 vLLM loads with max_split_size_mb at 20, on NVIDIA's GPUs (v1/worker/gpu_worker.py, load_model,
    _scoped_allocator_max_split; vllm-project/vllm#41268): a larger tensor has whole steps of 2 MiB. The log's
    ``Model loading took`` has it: of 40 unquantised starts of 0.11 to 0.31 36 print the sum to 0.01 GiB.
    """
    inventory, gpu = sources.inventory, settings.gpu
    if inventory is None or sources.stated_bytes is not None or settings.cpu_offload_gb or gpu is None:
        return ()
    release = parse_version(version)
    whole = gpu.vendor == NVIDIA and release >= _LOADED_WHOLE
    left = release >= TOWERS_LEFT and text_only(model, settings)
    made = with_shared_keys(model, inventory, release)
    amounts = rounded_up(made, parallel, dtype, max_split=_MAX_SPLIT if whole else None, towers=not left)
    kept = layer_embeddings(model, tokens, dtype.bytes, release)
    drafts = settings.speculative_method in (*EAGLE_LIKE, "draft_model")
    every, last = made_beside(model, tokens, drafts=drafts, release=release, element=dtype.bytes)
    how = "whole steps of 2 MiB while weights are loaded" if whole else "what is left of torch's segments"
    lines = []
    for stage, (amount, shared) in enumerate(
        zip(amounts, _beyond(made, inventory, parallel, dtype), strict=True)
    ):
        tables = every + (last if stage == len(amounts) - 1 else 0)
        source = f"torch's allocator: {how}"
        if shared:
            source += f"; {gib(shared)} of K and V in layers that read another's"
        if kept:
            source += f"; {gib(kept)} for the batch's per-layer embeddings"
        if tables:
            source += f"; {gib(tables)} of further angles and of the batch's buffers"
        lines.append(exact(_ROUNDED, amount + shared + kept + tables, source))
    return tuple(lines)


def _beyond(made: Inventory, stored: Inventory, parallel: Parallel, dtype: Packing) -> tuple[int, ...]:
    """Bytes of the layers' tensors that the checkpoint has not, of the fullest rank of each stage."""
    found, start = [], 0
    for count in stage_layers(len(stored.layers), parallel.pipeline_parallel_size):
        pairs = zip(made.layers[start : start + count], stored.layers[start : start + count], strict=True)
        more = [one.tensors[: len(one.tensors) - len(other.tensors)] for one, other in pairs]
        found.append(sum(tensor_bytes(tensor, parallel, dtype) for tensors in more for tensor in tensors))
        start += count
    return tuple(found)
