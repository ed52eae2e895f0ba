"""How vLLM divides weights over its ranks."""

from __future__ import annotations

from kvplan.engines.vllm.divided_blocks import expert_blocks
from kvplan.engines.vllm.multimodal import tower_parts
from kvplan.model import Model
from kvplan.settings import Serving
from kvplan.weights.ranks import Parallel


def ranks_of(model: Model, settings: Serving, version: str) -> Parallel:
    """The ranks of one replica, on the GPU of the settings where there is one.

    Marlin's kernels empty GPTQ's g_idx where desc_act is off (process_weights_after_loading of
    model_executor/layers/quantization/gptq_marlin.py and kernels/linear/mixed_precision/marlin.py): of
    Qwen3.5-35B-A3B's own build 20.27 GiB are printed, which is what it has without.
    """
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=settings.data_parallel_size,
        enable_expert_parallel=settings.enable_expert_parallel,
        compute_capability=None if gpu is None else gpu.compute_capability,
        groups=tower_parts(model, settings),
        expert_blocks=expert_blocks(settings, version),
        group_indices=False,
    )
