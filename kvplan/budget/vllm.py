"""vLLM's memory budget of one rank: requested − weights − activation peak − non-torch − graphs.

Mirrors vllm-project/vllm vllm/v1/worker/gpu_worker.py determine_available_memory: what is requested is
ceil(total · gpu_memory_utilization); the profile run's forward pass at max_num_batched_tokens and its
sampler at max_num_seqs × vocabulary set the activation peak (v1/worker/gpu_model_runner.py,
profile_run and _dummy_sampler_run); since 0.21 the estimated CUDA graphs are taken off too.
The bytes per logit, the copies of the hidden states and the constants are coefficients by version,
fitted on published start-up logs (scripts/fit_budget.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvplan.budget.lines import Budget, Line, left_over
from kvplan.units import ceil_div


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model decides its activations. Widths are per token, before tensor parallelism."""

    hidden_size: int
    vocab_size: int
    mlp_width: int
    expert_width: int = 0
    experts_per_token: int = 0
    element_bytes: int = 2
    is_multimodal: bool = False
    rotary_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Named constants of one range of versions; amounts in thousandths of a byte or in bytes.

    logit_millibytes: sampler's peak per logit; hidden_copies_milli: hidden states alive at the forward
    peak; margins: half-widths of the intervals; non_torch_by_tp: (tensor parallel size, bytes), the
    largest size not above the rank count counts.
    """

    since: str
    until: str | None
    calibrated: bool
    logit_millibytes: int
    hidden_copies_milli: int
    workspace_milli: int
    activation_margin: int
    activation_margin_milli: int
    non_torch_by_tp: tuple[tuple[int, int], ...]
    non_torch_margin: int
    graphs_inside: bool
    graph_bytes: int
    graph_margin: int


@dataclass(frozen=True, slots=True)
class Load:
    """The settings of the profile run, resolved."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    gpu_memory_utilization: Fraction
    enforce_eager: bool = False
    samples: bool = True


def activation_peak(shape: Shape, load: Load, known: Coefficients) -> int:
    """max(sampler, forward) + the experts' workspace, bytes.

    sampler = min(max_num_seqs, max_num_batched_tokens) · vocabulary · bytes per logit + hidden states;
    forward = tokens · (3 · mlp width / tp + copies · hidden) · element: gate, up and their product.
    workspace = tokens · experts per token · (max(2 · width / tp, hidden) + max(width / tp, hidden)) · element.
    """
    tokens, tp, element = load.max_num_batched_tokens, load.tensor_parallel_size, shape.element_bytes
    hidden = tokens * shape.hidden_size * element
    rows = min(load.max_num_seqs, tokens) if load.samples else 0
    sampler = ceil_div(rows * shape.vocab_size * known.logit_millibytes, 1000) + hidden
    width = ceil_div(shape.mlp_width, tp)
    forward = tokens * 3 * width * element + hidden * known.hidden_copies_milli // 1000
    return max(sampler, forward) + _workspace(shape, load) * known.workspace_milli // 1000


def _workspace(shape: Shape, load: Load) -> int:
    if not shape.experts_per_token:
        return 0
    width, hidden = ceil_div(shape.expert_width, load.tensor_parallel_size), shape.hidden_size
    per_pair = max(2 * width, hidden) + max(width, hidden)
    return load.max_num_batched_tokens * shape.experts_per_token * per_pair * shape.element_bytes


def non_torch(load: Load, known: Coefficients) -> int:
    """CUDA context, NCCL and all-reduce buffers: by the number of tensor-parallel ranks."""
    fitting = [amount for ways, amount in known.non_torch_by_tp if ways <= load.tensor_parallel_size]
    return fitting[-1]


def vllm_budget(
    *,
    gpu: str,
    total_bytes: int,
    weights: Line,
    shape: Shape,
    load: Load,
    known: Coefficients,
    extra: tuple[Line, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Budget:
    """The budget of one rank, line by line."""
    share = load.gpu_memory_utilization
    usable = ceil_div(total_bytes * share.numerator, share.denominator)
    peak = activation_peak(shape, load, known)
    margin = known.activation_margin + peak * known.activation_margin_milli // 1000
    fitted = "fitted on published start-up logs" if known.calibrated else "from the engine's source, uncalibrated"
    lines = [
        weights,
        *extra,
        Line.about("activation peak", peak, margin, f"profile run: sampler and forward pass; {fitted}"),
        Line.about("non-torch memory", non_torch(load, known), known.non_torch_margin, f"context and NCCL; {fitted}"),
    ]
    if known.graphs_inside and not load.enforce_eager:
        lines.append(Line.about("CUDA graphs", known.graph_bytes, known.graph_margin, fitted))
    return left_over(gpu, total_bytes, usable, tuple(lines), calibrated=known.calibrated, warnings=warnings)
