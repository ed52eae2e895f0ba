"""What vLLM's ranks hold outside torch: the CUDA context, NCCL, buffers of all-reduce."""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.engines.vllm.sampler import H100_MULTIPROCESSORS
from kvplan.results import BudgetLine

_KIB = 1024


def non_torch(shape: Shape, load: Load, known: Coefficients) -> int:
    """CUDA context, NCCL and all-reduce buffers: by the number of ranks, never less than one lone GPU has."""
    ways = load.tensor_parallel_size * load.data_parallel_size
    beside = of_multiprocessors(load, known)
    if ways == 1 and load.pipeline_parallel_size > 1:
        return max(0, max(known.non_torch_pipeline, _by_ranks(1, known)) + beside)
    amount = max(_by_ranks(ways, known), _by_ranks(1, known)) + beside
    return max(0, amount) + fusion_workspace(shape, load, known)


def of_multiprocessors(load: Load, known: Coefficients) -> int:
    """What a GPU keeps beyond one with 132 multiprocessors; below 0 where it has fewer.

    A kernel that spills registers has local memory for every thread that can be resident, and the driver
    keeps the largest such area from the first launch on (CUDA C++ programming guide, "Local memory"):
    multiprocessors · resident threads · bytes a thread. It is nowhere in torch.
    """
    count = load.multiprocessors or H100_MULTIPROCESSORS
    return known.multiprocessor_bytes * (count - H100_MULTIPROCESSORS)


_FUSED_KIB = {
    (9, 0): {2: 64 * _KIB, 4: 2 * _KIB, 8: 512},
    (10, 0): {2: 64 * _KIB, 4: 32 * _KIB, 8: _KIB},
    (10, 3): {2: 64 * _KIB, 4: 64 * _KIB, 8: 2 * _KIB},
}
"""Largest fused tensor by capability and ranks, KiB: vllm/compilation/passes/fusion/allreduce_rms_fusion.py,
FI_ALLREDUCE_FUSION_MAX_SIZE_MB."""


def fusion_workspace(shape: Shape, load: Load, known: Coefficients) -> int:
    """FlashInfer's workspace for all-reduce fused with the norm: 4 · ranks · the largest fused tensor.

    One buffer of ranks · tokens · hidden, and three for its Lamport protocol (flashinfer/comm/trtllm_ar.py,
    trtllm_create_ipc_workspace_for_all_reduce_fusion). On by default with several tensor-parallel ranks on
    Hopper and data-centre Blackwell (vllm/config/vllm.py, enable_allreduce_rms_fusion).
    """
    tp = load.tensor_parallel_size
    alone = load.data_parallel_size == load.pipeline_parallel_size == 1
    largest = _FUSED_KIB.get(load.capability or (0, 0), {}).get(tp)
    if not known.fusion or largest is None or load.enforce_eager or not (alone or known.fusion_stages):
        return 0
    batch = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes
    return 4 * tp * min(largest * _KIB, batch)


def non_torch_line(shape: Shape, load: Load, known: Coefficients, how: str) -> BudgetLine:
    """The fitted figure and its interval; ranks that talk over a pipeline or divide experts alone were
    measured seldom or never: from a lone GPU's to what as many tensor-parallel ranks have."""
    amount = non_torch(shape, load, known)
    low = high = amount
    ranks = load.tensor_parallel_size * load.data_parallel_size * load.pipeline_parallel_size
    if load.tensor_parallel_size == 1:
        beside = of_multiprocessors(load, known)
        low = min(amount, _by_ranks(1, known) + beside)
        high = max(amount, _by_ranks(ranks, known) + beside)
        if load.pipeline_parallel_size > 1:
            low = min(low, known.non_torch_pipeline + beside)
    below, above = (known.several_low, known.several_high) if ranks > 1 else (known.one_low, known.one_high)
    source = f"CUDA context, NCCL; {how}"
    return BudgetLine("non-torch memory", amount, max(0, low - below), high + above, source)


def _by_ranks(ranks: int, known: Coefficients) -> int:
    return max(amount for ways, amount in known.non_torch_by_ranks if ways <= ranks)
