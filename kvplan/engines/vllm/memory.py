"""vLLM's memory budget of one rank: requested − weights − activation peak − non-torch − graphs.

Mirrors vllm-project/vllm vllm/v1/worker/gpu_worker.py determine_available_memory: what is requested is
ceil(total · gpu_memory_utilization); the profile run's forward pass at max_num_batched_tokens and its
sampler at max_num_seqs × vocabulary set the activation peak (v1/worker/gpu_model_runner.py, profile_run
and _dummy_sampler_run); since 0.20 the estimated CUDA graphs are taken off too. The bytes per logit, the
copies of the hidden states and the constants are coefficients by version, fitted on published start-up
logs (scripts/fit_budget.py).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import about, exact, left_over
from kvplan.record import record
from kvplan.results import Budget, BudgetLine
from kvplan.units import ceil_div

_REPACKED = 20
"""Checkpoints took up to a twentieth more than their tensors in the logs of later releases."""


@record()
class Coefficients:
    """Named constants of one range of versions [since, until). ``_milli``: in thousandths.

    logit_millibytes: the sampler's peak for one logit. hidden_copies_milli: hidden states alive at the
    forward pass's peak. workspace_milli: of the experts' workspace; workspace_kept: it stays while the
    sampler runs. multimodal_copies_milli: embeddings of the encoder cache, in hidden states.
    non_torch_by_tp: (tensor parallel size, bytes); the largest size not above the rank count counts.
    non_torch_pipeline: bytes where only a pipeline divides the model. graph_layer_bytes: CUDA graphs, for
    each layer, where they are inside the utilisation. Margins are half-widths of intervals.
    """

    since: str
    until: str | None
    calibrated: bool
    logit_millibytes: int
    hidden_copies_milli: int
    workspace_milli: int
    workspace_kept: bool
    multimodal_copies_milli: int
    activation_margin: int
    activation_margin_milli: int
    non_torch_by_tp: tuple[tuple[int, int], ...]
    non_torch_pipeline: int
    non_torch_margin: int
    graphs_inside: bool
    graph_layer_bytes: int
    graph_margin: int


@record()
class Load:
    """The settings of the profile run, resolved. samples: whether this pipeline stage is the last.

    data_parallel_size: ranks that experts are divided over; 1 where the model has none.
    has_adapters: graphs are captured with LoRA adapters and without (cudagraph_specialize_lora).
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
    data_parallel_size: int = 1


def activation_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """max(sampler, forward pass) with the experts' workspace and the encoder's outputs, bytes.

    sampler = min(max_num_seqs, max_num_batched_tokens) · vocabulary · bytes per logit + hidden states;
    forward = tokens · (3 · mlp width / tp + copies · hidden) · element: gate, up and their product.
    """
    tokens, tp, element = load.max_num_batched_tokens, load.tensor_parallel_size, shape.element_bytes
    hidden = tokens * shape.hidden_size * element
    rows = min(load.max_num_seqs, tokens) if load.samples else 0
    sampler = ceil_div(rows * shape.vocab_size * known.logit_millibytes, 1000) + hidden
    width = ceil_div(shape.mlp_width, tp)
    forward = tokens * 3 * width * element + hidden * known.hidden_copies_milli // 1000
    workspace = _workspace(shape, load) * known.workspace_milli // 1000
    encoder = hidden * known.multimodal_copies_milli // 1000 if shape.is_multimodal else 0
    if known.workspace_kept:
        return max(sampler, forward) + workspace + encoder
    return max(sampler, forward + workspace) + encoder


def _workspace(shape: Shape, load: Load) -> int:
    """tokens · experts per token · (max(2 · width / tp, hidden) + max(width / tp, hidden)) · element.

    Source: vllm/model_executor/layers/fused_moe/fused_moe.py, workspace_shapes.
    """
    if not shape.experts_per_token:
        return 0
    ways = 1 if load.enable_expert_parallel else load.tensor_parallel_size
    width, hidden = ceil_div(shape.expert_width, ways), shape.hidden_size
    per_pair = max(2 * width, hidden) + max(width, hidden)
    return load.max_num_batched_tokens * shape.experts_per_token * per_pair * shape.element_bytes


def non_torch(load: Load, known: Coefficients) -> int:
    """CUDA context, NCCL and all-reduce buffers: by the number of ranks, never less than one lone GPU has."""
    ways = load.tensor_parallel_size * load.data_parallel_size
    if ways == 1 and load.pipeline_parallel_size > 1:
        return max(known.non_torch_pipeline, _by_ranks(1, known))
    return max(_by_ranks(ways, known), _by_ranks(1, known))


def non_torch_line(load: Load, known: Coefficients, how: str) -> BudgetLine:
    """The fitted figure ± its margin; ranks that talk over a pipeline or divide experts alone were measured
    seldom or never: from a lone GPU's to what as many tensor-parallel ranks have."""
    amount, margin = non_torch(load, known), known.non_torch_margin
    low = high = amount
    if load.tensor_parallel_size == 1:
        ranks = load.data_parallel_size * load.pipeline_parallel_size
        low = min(amount, _by_ranks(1, known))
        high = max(amount, _by_ranks(ranks, known))
        if load.pipeline_parallel_size > 1:
            low = min(low, known.non_torch_pipeline)
    source = f"CUDA context, NCCL; {how}"
    return BudgetLine("non-torch memory", amount, max(0, low - margin), high + margin, source)


def _by_ranks(ranks: int, known: Coefficients) -> int:
    return max(amount for ways, amount in known.non_torch_by_tp if ways <= ranks)


def vllm_budget(
    *,
    gpu: str,
    total_bytes: int,
    weights: BudgetLine,
    shape: Shape,
    load: Load,
    known: Coefficients,
    extra: tuple[BudgetLine, ...] = (),
) -> Budget:
    """The budget of one rank, line by line."""
    share = load.gpu_memory_utilization
    usable = ceil_div(total_bytes * share.numerator, share.denominator)
    peak = activation_peak(shape, load, known)
    margin = known.activation_margin + peak * known.activation_margin_milli // 1000
    how = "fitted on published start-up logs" if known.calibrated else "uncalibrated for this version"
    lines = [weights, *extra]
    if shape.rotary_bytes:
        lines.append(
            exact("rotary tables", shape.rotary_bytes, "positions · rotary_dim · element, of the config")
        )
    lines.append(
        about(
            "activation peak",
            peak,
            margin,
            f"profile run: {load.max_num_batched_tokens:,} tokens,"
            f" {load.max_num_seqs if load.samples else 0:,} sampled; {how}",
        )
    )
    lines.append(non_torch_line(load, known, how))
    if not known.calibrated:
        repacked = weights.bytes // _REPACKED
        lines.append(
            BudgetLine(
                "repacked weights", 0, 0, repacked, "what kernels add to the weights as they load; not known"
            )
        )
    if known.graphs_inside and not load.enforce_eager:
        graphs = shape.num_layers * known.graph_layer_bytes
        line = about("CUDA graphs", graphs, known.graph_margin + graphs, f"layers · a constant; {how}")
        if load.has_adapters:
            source = f"{line.source}; up to twice: captured with adapters and without"
            line = BudgetLine(line.name, graphs, line.low_bytes, line.high_bytes + graphs, source)
        lines.append(line)
    return left_over(gpu, total_bytes, usable, tuple(lines), calibrated=known.calibrated)
