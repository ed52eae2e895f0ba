"""vLLM's memory budget of one rank: requested − weights − activation peak − non-torch − graphs.

Mirrors vllm-project/vllm vllm/v1/worker/gpu_worker.py determine_available_memory: what is requested is
ceil(total · gpu_memory_utilization); the profile run's forward pass at max_num_batched_tokens and its
sampler at max_num_seqs × vocabulary set the activation peak (v1/worker/gpu_model_runner.py, and
v1/worker/gpu/model_runner.py of the V2 runner: profile_run and _dummy_sampler_run); since 0.20 the estimated
CUDA graphs are taken off too. Bytes per logit, copies of the hidden states and the constants are coefficients
by release, runner and board (kvplan.engines.vllm.coefficients); their intervals are what is left over of
start-ups that the fit has not seen (scripts/fit_budget.py).

Since 0.27 the engine takes mem_get_info's difference for everything that stays, and adds the peak above what
torch still holds: lines move between each other, their sum does not but for what the allocator cannot give
back, which is in that row's non-torch figure.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import about, exact, left_over
from kvplan.engines.vllm.encoder_run import EncoderRun, encoder_line
from kvplan.engines.vllm.expert_run import ExpertRun, expert_bytes
from kvplan.engines.vllm.flashinfer import FlashInfer
from kvplan.engines.vllm.forward import forward_bytes
from kvplan.engines.vllm.graphs import captured
from kvplan.engines.vllm.indexer import Reserved
from kvplan.engines.vllm.sampler_states import states_line
from kvplan.record import record
from kvplan.results import Budget, BudgetLine
from kvplan.units import MIB, ceil_div, gib

COLD, WARM, UNKNOWN = "cold", "warm", "unknown"
COMPILE = "cold compile"
"""Name of the line that a restart with the compiled code at hand spares."""
_KIB = 1024


@record()
class Coefficients:
    """Named constants in force in one release, under one runner, on one kind of board. ``_milli``: in
    thousandths; margins are half-widths of intervals, ``_low`` and ``_high`` where they differ.

    own_copies_milli: (model type, hidden states) of what no line describes. logit_millibytes: the sampler's
    peak for one logit; logit_least_millibytes: of the cheapest kernel that it may be. states_counted: what
    the sampler keeps is taken off. hidden_copies_milli: hidden states alive at the forward pass's peak, by
    the formula. traced_rest: bytes that start-ups show beyond a traced pass. draft_copies_milli: hidden
    states of a draft that reads them. workspace_milli: of the experts' workspace; workspace_kept: it stays
    while the sampler runs. multimodal_copies_milli: embeddings of the encoder cache, in hidden states.
    experts_margin_milli, encoder_margin_milli: of the workspace, of the encoder's outputs.
    compile_copies_milli: hidden states beside a rank's share of the embedding while Inductor benchmarks
    combined kernels; negative: it does not. compile_embeds: bytes at most where the compiled part takes
    embeddings, not tokens; compile_states: and linear attention tunes its kernels. compile_kept: what the
    allocator keeps of the table's copy counts (`kept_copy`). one_low, one_high, several_low, several_high:
    margins of one rank, of several. non_torch_by_ranks: (ranks, bytes) of context, NCCL and all-reduce
    buffers; the largest entry not above the rank count counts. fusion: FlashInfer's all-reduce workspace is
    beside them; fusion_stages: beside pipelines and data parallelism too. non_torch_pipeline: bytes where
    only a pipeline divides the model. graph_layer_bytes: one CUDA graph of one layer, 0 where the estimate
    is; graph_latent_layer_bytes: of latent attention, 0: as any other; graph_split_layer_bytes: under
    FlashAttention 3, whose partial sums are beside it then; 0: as any other; graph_ranks_milli: of four ranks
    or more; graphs_wide, graphs_by_request: of the sizes, see `captured`. graph_low_milli: the margin
    downwards of multimodal models, whose starts print from a quarter of what others do for a layer.
    """

    calibrated: bool
    own_copies_milli: tuple[tuple[str, int], ...]
    logit_millibytes: int
    logit_least_millibytes: int
    hidden_copies_milli: int
    traced_rest: int
    draft_copies_milli: int
    workspace_milli: int
    workspace_kept: bool
    multimodal_copies_milli: int
    states_counted: bool
    activation_margin: int
    activation_margin_milli: int
    experts_margin_milli: int
    encoder_margin_milli: int
    compile_copies_milli: int
    compile_embeds: int
    compile_states: int
    compile_kept: bool
    non_torch_by_ranks: tuple[tuple[int, int], ...]
    non_torch_pipeline: int
    one_low: int
    one_high: int
    several_low: int
    several_high: int
    fusion: bool
    fusion_stages: bool
    graph_layer_bytes: int
    graph_latent_layer_bytes: int
    graph_split_layer_bytes: int
    graph_ranks_milli: int
    graph_margin: int
    graph_margin_milli: int
    graph_low_milli: int
    graphs_wide: bool
    graphs_by_request: bool


@record()
class Load:
    """The settings of the profile run, resolved. samples: this pipeline stage is the last, and the
    model generates: those that pool have no sampler.

    data_parallel_size: ranks that experts are divided over; 1 where the model has none.
    has_adapters: graphs are captured with LoRA adapters and without (cudagraph_specialize_lora).
    adapter_table: bytes of the embedding's adapters, which Inductor's benchmarks copy as they copy its table.
    drafts: tokens proposed for each request; reads_hidden: by a draft that reads hidden states.
    largest_graph: tokens, 0 by default. compile_cache: "cold", "warm" or "unknown". capability: of the GPU.
    passes: (bytes a token, bytes besides) of each place where a traced class's pass may be at its peak; none
    where the formula counts. fused_sampler:
    FlashInfer is there to sample. split_bytes: see `kvplan.engines.vllm.splits`. indexer: what sparse
    attention reserves, from 0.20 on. encoder: the profile run of the model's encoder on
    this stage; encoder_known: it stands for all that the encoder takes (else so many copies of the hidden
    states do). experts: how the release runs them. takes_tokens: the compiled part takes token ids: text
    models, and multimodal ones that serve text alone. has_states: layers keep recurrent states. eight_bits:
    matrices are multiplied in FP8; packed: they are AWQ's or GPTQ's. latent: attention keeps latents.
    flashinfer: what it keeps beside the graphs.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    gpu_memory_utilization: Fraction
    enforce_eager: bool = False
    enable_expert_parallel: bool = False
    samples: bool = True
    has_adapters: bool = False
    adapter_table: int = 0
    data_parallel_size: int = 1
    drafts: int = 0
    reads_hidden: bool = False
    largest_graph: int = 0
    compile_cache: str = UNKNOWN
    capability: tuple[int, int] | None = None
    fused_sampler: bool = True
    split_bytes: int = 0
    indexer: Reserved = Reserved()
    model_type: str = ""
    encoder: EncoderRun | None = None
    encoder_known: bool = False
    experts: ExpertRun = ExpertRun()
    takes_tokens: bool = True
    has_states: bool = False
    eight_bits: bool = False
    packed: bool = False
    latent: bool = False
    flashinfer: FlashInfer = FlashInfer()
    passes: tuple[tuple[int, int], ...] = ()


def activation_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """max(sampler, forward pass) with the experts' workspace and the encoder's outputs, bytes; the compiled
    code at hand.

    sampler = min(max_num_seqs, max_num_batched_tokens) · vocabulary · bytes per logit + hidden states;
    forward: gate, up and their product, or what attention has (kvplan.engines.vllm.forward).
    """
    tokens, tp, element = load.max_num_batched_tokens, load.tensor_parallel_size, shape.element_bytes
    hidden = tokens * shape.hidden_size * element
    rows = min(load.max_num_seqs, tokens) if load.samples else 0
    logit = known.logit_millibytes if load.fused_sampler else known.logit_least_millibytes
    sampler = ceil_div(rows * shape.vocab_size * logit, 1000) + hidden
    if load.passes:
        forward = known.traced_rest + max(tokens * each + besides for each, besides in load.passes)
    else:
        forward = forward_bytes(shape, tokens=tokens, tp=tp, copies_milli=known.hidden_copies_milli)
    workspace = _workspace(shape, load) * known.workspace_milli // 1000
    beside = _encoder(shape, load, known) + _draft(shape, load, known)
    if known.workspace_kept:
        workspace = max(workspace, load.indexer.kept)  # one workspace, as large as its largest use
        return max(sampler, forward + load.indexer.passing) + workspace + beside
    return max(sampler, forward + workspace) + beside


def _encoder(shape: Shape, load: Load, known: Coefficients) -> int:
    """Of an encoder without a rule the embeddings alone, as many as one batch has tokens."""
    copies = known.multimodal_copies_milli if shape.is_multimodal and not load.encoder_known else 0
    return load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes * copies // 1000


def _draft(shape: Shape, load: Load, known: Coefficients) -> int:
    """Hidden states of several layers for a draft that reads them, and its own pass (profile runs draft)."""
    copies = known.draft_copies_milli if load.reads_hidden and load.samples else 0
    return load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes * copies // 1000


def _workspace(shape: Shape, load: Load) -> int:
    """The experts' workspaces: whole experts with expert parallelism, else divided in width."""
    dp = load.data_parallel_size
    ways = 1 if load.enable_expert_parallel else load.tensor_parallel_size * dp
    return expert_bytes(shape, load.experts, tokens=load.max_num_batched_tokens, ways=ways, dp=dp)


def activation_line(shape: Shape, load: Load, known: Coefficients, how: str) -> BudgetLine:
    """The peak of a start that finds its compiled code; wider where experts or an encoder are in it."""
    peak = activation_peak(shape, load, known)
    margin = known.activation_margin + peak * known.activation_margin_milli // 1000
    margin += _workspace(shape, load) * known.experts_margin_milli // 1000
    margin += _encoder(shape, load, known) * known.encoder_margin_milli // 1000
    margin += _draft(shape, load, known) // 3
    seen = f"{load.max_num_batched_tokens:,} tokens, {load.max_num_seqs if load.samples else 0:,} sampled"
    seen = f"{seen}; forward pass {'traced' if load.passes else 'by the formula'}"
    line = about("activation peak", peak, margin, f"profile run: {seen}; {how}")
    least = activation_peak(shape, load, replace(known, logit_millibytes=known.logit_least_millibytes))
    return line if least == peak else replace(line, low_bytes=max(0, least - margin))


def compile_line(shape: Shape, load: Load, known: Coefficients) -> BudgetLine | None:
    """What compiling inside the measured run takes beyond the warm peak; None where it is not the peak.

    Inductor benchmarks combined kernels on random copies of their inputs (combo_kernels and
    benchmark_combo_kernel, vllm/config/compilation.py; vllm-project/vllm#54122): the first kernel's is the
    embedding table, and the table of every layer's own embeddings where there is one (Gemma 3n and 4 E). So
    compile = vocabulary / tp · (hidden + layers' widths) · element + copies · hidden states, with LoRA
    also the embedding's adapters (VocabParallelEmbeddingWithLoRA, lora_a_stacked_2d).

    Wrappers of multimodal models compile a part that takes embeddings, without the table, unless they serve
    text alone: then token ids go in (gpu_model_runner.py, _dummy_run, supports_mm_inputs,
    _prepare_mm_inputs). The copies alone seldom are the peak: cold and warm starts of one Gemma 4 print the
    same. ``compile_embeds`` bounds what else is benchmarked; with linear attention, whose Triton kernels are
    tuned inside the run too (mamba/gdn, _warmup_prefill_kernels), it is from nothing to ``compile_states``.

    Ranks that share the table sum what they look up before anything else is done with it: there is no second
    kernel that the first could be combined with (two A100, 0.29: a peak of 0.21 GiB, half a table is 0.58).

    Since 0.27 the table's copy may count beside the peak (`kept_copy`).
    """
    if load.enforce_eager or load.compile_cache == WARM or known.compile_copies_milli < 0:
        return None
    hidden = shape.hidden_size * shape.element_bytes
    row = hidden + shape.layer_embedding * shape.element_bytes
    table = ceil_div(shape.vocab_size, load.tensor_parallel_size) * row + load.adapter_table
    copied = load.max_num_batched_tokens * hidden * known.compile_copies_milli // 1000
    copied += _draft(shape, load, known) - activation_peak(shape, load, known)
    if load.takes_tokens and load.tensor_parallel_size > 1:
        low = likely = max(0, copied)
        high = max(0, table + copied)
    elif load.takes_tokens:
        kept, most = kept_copy(shape, load, table) if known.compile_kept else (0, 0)
        low = max(0, table + copied)
        likely, high = low + kept, low + most
    elif load.has_states:
        low, likely, high = 0, known.compile_states // 2, known.compile_states
    else:
        low = likely = max(0, copied)
        high = likely + known.compile_embeds
    if high <= 0:
        return None
    spared = "a restart that keeps the cache of torch.compile gains it (--compile-cache warm)"
    source = "benchmarks while torch.compile runs" if load.compile_cache == COLD else spared
    return BudgetLine(COMPILE, likely, low if load.compile_cache == COLD else 0, high, source)


def kept_copy(shape: Shape, load: Load, table: int) -> tuple[int, int]:
    """What stays of the table's copy after the profile run: likely, at most.

    What stays is mem_get_info's difference after empty_cache (utils/mem_utils.py, total_consumed; 0.27).
    A block of torch's allocator that holds anything that lasts cannot be given back, and a request takes the
    smallest free block that it fits (c10/cuda/CUDACachingAllocator.cpp, get_free_block). Hidden states leave
    blocks of their size behind, the table's copy one of its own. So it is kept where cuBLAS's workspace, made
    in the run, is larger than hidden states: 8,519,680 bytes, 32 MiB on GPUs of 9.x, 10.x and 12.x
    (aten/src/ATen/cuda/CublasHandlePool.cpp); of experts the workspace lies in it, if that is the larger one.
    Of 28 cold starts on one card 12 of 13 for which this says so kept it. On Hopper the three text models
    whose attention is not quantised kept it whole, and what lasted there is not known. It is the high end of
    FP8, which multiplies without cuBLAS, of other starts on such GPUs, of pipelines, and where Triton
    samples, which keeps a buffer. From 0.31 on the run does not split blocks above 20 MiB (gpu_worker.py,
    _scoped_allocator_max_split), so that the copy's is given back.
    """
    if load.pipeline_parallel_size > 1:
        return 0, table
    major = load.capability[0] if load.capability is not None else 0
    if major in _HOPPER and not (load.eight_bits or load.packed or shape.is_multimodal):
        return table, table
    block = load.max_num_batched_tokens * shape.hidden_size * shape.element_bytes
    fits = (_CUBLAS_WIDE if major in _WIDE_CUBLAS else _CUBLAS) <= block
    workspace = _workspace(shape, load)
    inside = workspace if block < workspace <= table else 0
    if inside or not (fits or load.eight_bits):
        return table - inside, table
    possible = major in _WIDE_CUBLAS or not fits or not load.fused_sampler
    return 0, table if possible else 0


_CUBLAS, _CUBLAS_WIDE, _WIDE_CUBLAS, _HOPPER = 8_519_680, 32 * MIB, (9, 10, 12), (9, 10)


def non_torch(shape: Shape, load: Load, known: Coefficients) -> int:
    """CUDA context, NCCL and all-reduce buffers: by the number of ranks, never less than one lone GPU has."""
    ways = load.tensor_parallel_size * load.data_parallel_size
    if ways == 1 and load.pipeline_parallel_size > 1:
        return max(known.non_torch_pipeline, _by_ranks(1, known))
    return max(_by_ranks(ways, known), _by_ranks(1, known)) + fusion_workspace(shape, load, known)


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
        low = min(amount, _by_ranks(1, known))
        high = max(amount, _by_ranks(ranks, known))
        if load.pipeline_parallel_size > 1:
            low = min(low, known.non_torch_pipeline)
    below, above = (known.several_low, known.several_high) if ranks > 1 else (known.one_low, known.one_high)
    source = f"CUDA context, NCCL; {how}"
    return BudgetLine("non-torch memory", amount, max(0, low - below), high + above, source)


def _by_ranks(ranks: int, known: Coefficients) -> int:
    return max(amount for ways, amount in known.non_torch_by_ranks if ways <= ranks)


SUMS_MILLI = 140
"""Of FlashAttention 3's partial sums of one token, in thousandths, what every graph of a layer has: starts on
H100 and H200 estimate 162 KiB a graph with 16 heads and 272 with 64, and none with more was read."""
_SUMS_READ = 32 * 4 * 64 * (128 + 1)
_LATENT_MORE = 900
"""In thousandths: starts of latent attention estimate from half of the constant to nearly twice as much."""


def graph_sums(load: Load) -> int:
    """What FlashAttention 3's partial sums add to every graph of a layer."""
    return min(load.split_bytes, _SUMS_READ) * SUMS_MILLI // 1000


def graph_line(shape: Shape, load: Load, known: Coefficients, how: str) -> BudgetLine | None:
    """Layers · captured graphs · a constant, and what FlashInfer makes meanwhile; None where the estimate is
    0 or nothing is captured."""
    if load.enforce_eager or not known.graph_layer_bytes:
        return None
    count = captured(
        load.max_num_seqs,
        load.max_num_batched_tokens,
        load.drafts,
        largest=load.largest_graph,
        wide=known.graphs_wide and (load.capability or (0, 0))[0] == 10,
        by_request=known.graphs_by_request,
        uniform=load.flashinfer.uniform,
    )
    apart = bool(known.graph_split_layer_bytes and load.split_bytes)
    latent = load.latent and known.graph_latent_layer_bytes
    each = known.graph_split_layer_bytes if apart else known.graph_layer_bytes
    each = known.graph_latent_layer_bytes if latent else each
    each += graph_sums(load) if apart else 0
    graphs = shape.num_layers * count.number * each
    if load.tensor_parallel_size >= 4:
        graphs = graphs * known.graph_ranks_milli // 1000
    margin = known.graph_margin + graphs * (_LATENT_MORE if latent else known.graph_margin_milli) // 1000
    below = known.graph_low_milli if shape.is_multimodal else known.graph_margin_milli
    least = known.graph_margin + graphs * below // 1000
    kept = load.flashinfer.kept(load.max_num_batched_tokens, count.full)
    made = f"{count.piecewise} piecewise, {count.full} full"
    made += f", {gib(kept)} of FlashInfer's buffers" if kept else ""
    sums = count.largest_full * load.split_bytes if apart else 0
    made += f", {gib(sums)} of FlashAttention's partial sums" if sums else ""
    made, graphs = f"{made}; {how}", graphs + kept + sums
    line = BudgetLine("CUDA graphs", graphs, max(0, graphs - least), graphs + margin, made)
    if load.has_adapters:
        source = f"{line.source}; up to twice: captured with adapters and without"
        line = BudgetLine(line.name, graphs, line.low_bytes, line.high_bytes + graphs, source)
    return line


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
    lines += [
        own_line(shape, load, known),
        kept_by_sampler(shape, load, known),
        activation,
        compiling,
        None if load.encoder is None else encoder_line(load.encoder, before),
        non_torch_line(shape, load, known, how),
        graph_line(shape, load, known, how),
    ]
    shown = tuple(line for line in lines if line is not None)
    return left_over(gpu, total_bytes, usable, shown, calibrated=known.calibrated)
