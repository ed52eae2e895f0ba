"""vLLM's memory budget of one rank: requested − weights − activation peak − non-torch − graphs.

Mirrors vllm-project/vllm vllm/v1/worker/gpu_worker.py determine_available_memory. The profile run's forward
pass at max_num_batched_tokens and its sampler at max_num_seqs × vocabulary set the activation peak
(v1/worker/gpu_model_runner.py, of the V2 runner v1/worker/gpu/model_runner.py: profile_run,
_dummy_sampler_run). Coefficients: `.coefficients`; their intervals are what is left over of start-ups that
the fit has not seen.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.cold_compile import compile_line
from kvplan.engines.vllm.memory.cuda_graphs import graph_line
from kvplan.engines.vllm.memory.profile_peak import H100_MULTIPROCESSORS, activation_line, states_line
from kvplan.engines.vllm.memory.profile_run import Coefficients, Load
from kvplan.gpu import Gpu
from kvplan.later import later
from kvplan.results import Budget, BudgetLine, about, exact, left_over
from kvplan.settings import Serving
from kvplan.units import MIB, ceil_div, gib

if TYPE_CHECKING:
    from kvplan.engines.vllm.encoder_profile import estimate
else:
    estimate = later("kvplan.engines.vllm.encoder_profile", "estimate")


def own_line(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """Buffers of an architecture that no formula here describes, as its start-ups left them, half of that
    either way; in hidden states of the batch."""
    copies = dict(known.own_copies_milli).get(load.model_type, 0)
    amount = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes * copies // 1000
    source = f"what starts of {load.model_type} keep; no formula"
    return about("buffers of its own", amount, amount // 2, source) if amount else None


def kept_by_sampler(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """The sampler's tables, where the release takes them off and this stage samples."""
    if not known.states_counted or not load.samples:
        return None
    return states_line(load.max_num_seqs, shape.vocab_size, load.drafts)


def vllm_budget(
    *,
    gpu: str,
    total_bytes: int,
    weights: BudgetLine,
    shape: Shape,
    load: Load,
    known: Coefficients,
    extra: tuple[BudgetLine, ...] = (),
    rotary: bool = True,
) -> Budget:
    """The budget of one rank, line by line. rotary: the tables are not in the weights."""
    share = load.gpu_memory_utilization
    usable = ceil_div(total_bytes * share.numerator, share.denominator)
    how = "fitted on published start-up logs" if known.calibrated else "estimate"
    lines: list[BudgetLine | None] = [weights, *extra]
    if shape.rotary_bytes and rotary:
        lines.append(
            exact("rotary tables", shape.rotary_bytes, "positions · rotary_dim · element, of the config")
        )
    activation, compiling = activation_line(shape, load, known, how), compile_line(shape, load, known)
    before = activation.bytes + (0 if compiling is None else compiling.bytes)
    # Graphs are taken off since 0.20.
    # Since 0.27 the engine takes mem_get_info's difference for everything that stays, and adds the peak above
    # what torch still holds: lines move between each other, their sum does not but for what the allocator
    # cannot give back, which is in that row's non-torch figure.
    lines += [
        own_line(shape, load, known),
        kept_by_sampler(shape, load, known),
        input_line(shape, load, known),
        activation,
        compiling,
        None if load.encoder is None else estimate.encoder_line(load.encoder, before),
        non_torch_line(shape, load, known, how),
        graph_line(shape, load, known, how),
    ]
    shown = tuple(line for line in lines if line is not None)
    return left_over(gpu, total_bytes, usable, shown, calibrated=known.calibrated)


def at_most(line: BudgetLine, total: int) -> BudgetLine:
    """An estimate that multiplies one graph's growth may come to several GPUs, and one leaves nothing too."""
    if line.high_bytes <= total:
        return line
    low, likely = min(line.low_bytes, total), min(line.bytes, total)
    return BudgetLine(line.name, likely, low, total, f"{line.source}: more than the GPU has")


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
    """Memory that a GPU keeps beyond one with 132 multiprocessors; below 0 where it has fewer.

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


_ENTRY = 4
"""Bytes of a block's number, int32."""
_OF_A_PROPOSER = 2
"""Buffers of the first runner's proposer."""


def input_buffers(shape: Shape, load: Load, known: Coefficients) -> int:
    """Bytes that runners keep for the inputs of a batch, made once the model is loaded:
    max_num_batched_tokens · hidden · element for each buffer + max_num_seqs · ceil(max_model_len / block) ·
    4. Seen so on an H100 with 0.33, to the MiB."""
    states = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes
    kept = 0
    # inputs_embeds (v1/worker/gpu_model_runner.py; V2: v1/worker/gpu/mm/encoder_runner.py).
    if known.embeds_always or (known.embeds_of_images and not load.takes_tokens):
        kept += states
    # V2: v1/worker/gpu/spec_decode/speculator.py; V1: hidden states and embeddings
    # (v1/spec_decode/llm_base_proposer.py).
    if load.reads_hidden:
        kept += states * (known.states_counted + _OF_A_PROPOSER * known.embeds_always)
    # Until the cache's own is made (InputBatch, placeholder_block_size; v1/worker/block_table.py).
    if known.first_table:
        kept += load.max_num_seqs * ceil_div(load.max_model_len, load.block_size) * _ENTRY
    return kept


def input_line(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """The line of the budget; None where the release does not take it off (until 0.26), or there is
    nothing."""
    kept = input_buffers(shape, load, known)
    source = f"embeddings and block table of a batch: {load.max_num_batched_tokens:,} tokens"
    return exact("input buffers", kept, source) if kept else None


FREE = "free at the start"


def free_line(gpu: Gpu, total: int, share: Fraction) -> tuple[BudgetLine, ...]:
    """A line that takes the whole share where a GPU of the kind did not have it free, else none.

    requested = ceil(total · utilisation); a start with less free memory is refused, whatever its pool would
    be (vllm-project/vllm 0.32 vllm/v1/worker/utils.py, request_memory; on integrated GPUs free is what the
    system calls available, vllm/utils/mem_utils.py). At its high end where one of those that were seen had
    less, at its likely figure where all had.
    """
    asked, seen = _asked(total, share), gpu.memory_free_seen
    if not seen or asked <= min(seen):
        return ()
    likely = asked if asked > max(seen) else 0
    what = f"a start needs {gib(asked)} free; {gib(min(seen))} to {gib(max(seen))} were, on such GPUs"
    return (BudgetLine(FREE, likely, 0, asked, what),)


def free_warning(gpu: Gpu, total: int, share: Fraction) -> tuple[str, ...]:
    """The same in words, with the share that started everywhere."""
    if not free_line(gpu, total, share):
        return ()
    least, most = min(gpu.memory_free_seen), max(gpu.memory_free_seen)
    lower = least * 100 // total
    return (
        f"vLLM starts only where {gib(_asked(total, share))} are free: of {gpu.name} {gib(least)} to"
        f" {gib(most)} were (--gpu-memory-utilization {lower / 100:.2f} starts with all of them)",
    )


AFTER = "after the pool"
_AFTER_ONE, _AFTER_RANK, _AFTER_RANKS = 473 * MIB, 165 * MIB, 8
"""Bytes that two starts asked for outside their share once the pool was there, and died of: 473 MiB on one
GPU (vllm-project/vllm#57475, 0.98 of a 24 GB laptop), 1.57 GiB and more of each of eight (#51590,
0.95 of 31.38 GiB: 62 MiB of it were graphs)."""


USUAL = Fraction(92, 100)
"""The largest share that a release takes by itself; both starts that died were given more."""


def after_most(settings: Serving) -> int:
    """The most that a start is known to take after its pool: graphs beyond their estimate, which is measured
    with a pool of its own (vllm-project/vllm 0.32 v1/worker/gpu_worker.py, compile_or_warm_up_model), and
    what ranks open with each other; between one GPU and eight in proportion. 0 without graphs."""
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
    return 0 if settings.enforce_eager else _AFTER_ONE + (min(ranks, _AFTER_RANKS) - 1) * _AFTER_RANK


def start_lines(gpu: Gpu, total: int, share: Fraction, settings: Serving) -> tuple[BudgetLine, ...]:
    """Lines that take the whole share where a start may not have it: too little free, or too little left
    outside it for what comes after the pool."""
    free, most = free_line(gpu, total, share), after_most(settings)
    outside = total - _asked(total, share)
    if free or most <= outside or share <= USUAL:  # with the share of its own the engine starts everywhere
        return free
    what = f"up to {gib(most)} was taken after the pool, and {gib(outside)} lie outside the share"
    return (BudgetLine(AFTER, 0, 0, _asked(total, share), what),)


def start_warning(gpu: Gpu, total: int, share: Fraction, settings: Serving) -> tuple[str, ...]:
    """The same in words, with the share that leaves enough."""
    if not any(line.name == AFTER for line in start_lines(gpu, total, share, settings)):
        return free_warning(gpu, total, share)
    most, outside = after_most(settings), total - _asked(total, share)
    lower = (total - most) * 100 // total
    return (
        f"after its pool vLLM may take up to {gib(most)}, and {gib(outside)} lie outside the share: such"
        f" starts died (--gpu-memory-utilization {lower / 100:.2f} leaves enough)",
    )


def beside_lines(total: int, share: Fraction, settings: Serving) -> tuple[BudgetLine, ...]:
    """The free memory that the start asks for, and what may be taken after the pool: in no sum."""
    asked, most = _asked(total, share), after_most(settings)
    checked = "vLLM refuses to start with less (v1/worker/utils.py, request_memory)"
    after = f"graphs beyond their estimate, first requests: of {gib(total - asked)} outside the share"
    return BudgetLine(FREE, asked, asked, asked, checked), BudgetLine(AFTER, 0, 0, most, after)


def _asked(total: int, share: Fraction) -> int:
    return ceil_div(total * share.numerator, share.denominator)
