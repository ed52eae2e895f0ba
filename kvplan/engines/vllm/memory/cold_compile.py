"""Memory of compiling inside vLLM's profile run, and the part of it that stays."""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.profile_peak import activation_peak, draft_states, workspaces
from kvplan.engines.vllm.memory.profile_run import COLD, WARM, Coefficients, Load
from kvplan.engines.vllm.versions import rules_of
from kvplan.results import BudgetLine
from kvplan.units import KIB, MIB, ceil_div

WIDE = (9, 10, 12)
"""Major compute capabilities for which torch gives cuBLAS the large workspace, one for each handle and stream
that multiplies (pytorch/pytorch aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize)."""
_LARGE, _SMALL = 32 * MIB, (2 * 4096 + 8 * 16) * KIB
_IN_A_RUN = 2
"""Workspaces that a profile run makes: as many as those starts say, one for each stream that multiplies."""
_CONSUMER = 12
"""Capability 12.x has the large one since torch 2.12 (`wide_cublas_on_sm120`)."""


def workspace(capability: tuple[int, int] | None) -> int:
    """Bytes of one; without a capability (another vendor's) as on Hopper."""
    return _LARGE if capability is None or capability[0] in WIDE else _SMALL


def spared(capability: tuple[int, int] | None, release: tuple[int, ...]) -> int:
    """Bytes that a profile run has less than on the H100 boards that the pass was measured on.

    An H100 has 79 MiB beside its traced pass. 36 starts of dense text models on GPUs of 7.5 and 8.x that
    compiled nothing kept 0.05 GiB less than that in the middle; with two smaller workspaces, nothing less.
    """
    small = (
        capability is not None and capability[0] == _CONSUMER and not rules_of(release).wide_cublas_on_sm120
    )
    return _IN_A_RUN * (_LARGE - (_SMALL if small else workspace(capability)))


COMPILE = "cold compile"
"""Name of the line that a restart with the compiled code at hand spares."""


def compile_line(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """Memory that compiling inside the measured run takes beyond the warm peak; None where it is not the
    peak.

    Inductor benchmarks combined kernels on random copies of their inputs (combo_kernels and
    benchmark_combo_kernel, vllm/config/compilation.py; vllm-project/vllm#54122):

        compile = vocabulary / tp · (hidden + layers' widths) · element + copies · hidden states
    """
    if load.enforce_eager or load.compile_cache == WARM or known.compile_copies_milli < 0:
        return None
    hidden = shape.hidden_size * shape.element_bytes
    row = hidden + shape.layer_embedding * shape.element_bytes
    # The first kernel's input: the embedding table, that of every layer's own embeddings (Gemma 3n and 4 E),
    # and with LoRA the embedding's adapters (VocabParallelEmbeddingWithLoRA, lora_a_stacked_2d).
    table = ceil_div(shape.vocab_size, load.tensor_parallel_size) * row + load.adapter_table
    copied = load.max_num_batched_tokens * hidden * known.compile_copies_milli // 1000
    copied += draft_states(shape, load, known) - activation_peak(shape, load, known)
    if load.takes_tokens and load.tensor_parallel_size > 1:
        # Ranks that share the table sum what they look up before anything else: there is no second kernel to
        # combine the first with (two A100, 0.29: a peak of 0.21 GiB, half a table is 0.58).
        low = likely = max(0, copied)
        high = max(0, table + copied)
    elif load.takes_tokens:
        # 0.27 to 0.30; later the run splits no block above 20 MiB, and the copy's is given back
        # (gpu_worker.py, _scoped_allocator_max_split).
        kept, most = kept_copy(shape, load, table) if known.compile_kept else (0, 0)
        low = max(0, table + copied)
        likely, high = low + kept, low + most
    elif load.has_states:
        # Linear attention's Triton kernels are tuned inside the run too (mamba/gdn, _warmup_prefill_kernels).
        # Until 0.26 that counts only on top of torch's own peak, often the encoder's: of 31 starts the middle
        # one kept 0.2 GiB. Since 0.27 what is consumed counts.
        low, likely, high = 0, known.compile_states_likely, known.compile_states
    else:
        # Wrappers of multimodal models compile a part that takes embeddings, without the table, unless they
        # serve text alone (gpu_model_runner.py, _dummy_run, supports_mm_inputs, _prepare_mm_inputs). Copies
        # seldom are the peak: cold and warm starts of one Gemma 4 print the same.
        low = likely = max(0, copied)
        high = likely + known.compile_embeds
    if high <= 0:
        return None
    spared = "a restart that keeps the cache of torch.compile gains it (--compile-cache warm)"
    source = "benchmarks while torch.compile runs" if load.compile_cache == COLD else spared
    return BudgetLine(COMPILE, likely, low if load.compile_cache == COLD else 0, high, source)


def kept_copy(shape: Shape, load: Load, table: int) -> tuple[int, int]:
    """Bytes of the table's copy that stay after the profile run: likely, at most (utils/mem_utils.py,
    total_consumed: mem_get_info's difference after empty_cache).

    A block of torch's allocator that holds anything that lasts cannot be given back, and a request takes the
    smallest free block that it fits (c10/cuda/CUDACachingAllocator.cpp, get_free_block). Hidden states leave
    blocks of their size behind, the table's copy one of its own: it is kept where cuBLAS's workspace, made in
    the run, is larger than hidden states.
    """
    if load.pages:  # a free block's pages are given back whatever lies beside them (unmap_block)
        return 0, 0
    if load.pipeline_parallel_size > 1:
        return 0, table
    block = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes
    capability = load.capability or (0, 0)
    major = capability[0]
    # Three text models whose attention is not quantised kept it whole; what lasted there is not known.
    if major in _HOPPER and not (load.eight_bits or load.packed or shape.is_multimodal):
        return table, table
    if shape.is_multimodal:
        # Wrappers that serve text alone gave it back in nine cold starts of seven models on a 3090 (0.30, 4
        # to 8 MiB of hidden states), where text models with as many kept it.
        return 0, table if major in WIDE else 0
    # Inductor benchmarks no matrix products there (torch/_inductor/utils.py, is_big_gpu), and the workspace
    # is made where such a block is in use: on an L4 hidden states of 10 and 12 MiB kept the copy, of 16 did
    # not (seven starts of two sources, 0.27 and 0.29).
    small = (load.multiprocessors or _BIG) < _BIG
    fits = max(workspace(capability), _LATE if small else 0) <= block
    of_experts = workspaces(shape, load)
    inside = of_experts if block < of_experts <= table else 0
    if inside or not (fits or load.eight_bits):  # 12 of 13 such cold starts on one card kept it, of 28 in all
        return table - inside, table
    # A 3090 kept it with 10 MiB of hidden states, where a 4090 did not. FP8 multiplies without cuBLAS; where
    # Triton samples it keeps a buffer.
    possible = major in WIDE or block < _LATE or not load.fused_sampler
    return 0, table if possible else 0


_LATE = 16 * MIB
_HOPPER, _BIG = (9, 10), 68
