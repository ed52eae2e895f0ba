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

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.budget.lines import about, exact, left_over
from kvplan.engines.vllm.cold_compile import compile_line
from kvplan.engines.vllm.encoder_run import encoder_line
from kvplan.engines.vllm.graph_memory import graph_line
from kvplan.engines.vllm.input_buffers import input_line
from kvplan.engines.vllm.load import Coefficients, Load
from kvplan.engines.vllm.non_torch import non_torch_line
from kvplan.engines.vllm.profile_peak import activation_line
from kvplan.engines.vllm.sampler import states_line
from kvplan.results import Budget, BudgetLine
from kvplan.units import ceil_div


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
        input_line(shape, load, known),
        activation,
        compiling,
        None if load.encoder is None else encoder_line(load.encoder, before),
        non_torch_line(shape, load, known, how),
        graph_line(shape, load, known, how),
    ]
    shown = tuple(line for line in lines if line is not None)
    return left_over(gpu, total_bytes, usable, shown, calibrated=known.calibrated)
