"""vLLM: the budget of every pipeline stage; the stage with the least left decides the pool of all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvplan.architectures.config.activation_shape import Shape
from kvplan.dtypes import scalar
from kvplan.engines.base import Choice, parse_version
from kvplan.engines.budget import Fit
from kvplan.engines.budget.parts import kernels_of, memory_of, no_pool, of_share, sources_for
from kvplan.engines.vllm.memory.allocator_rounding import beside_weights
from kvplan.engines.vllm.memory.attention_buffers import latent_block
from kvplan.engines.vllm.memory.coefficients import board_of, vllm_coefficients
from kvplan.engines.vllm.memory.cold_compile import COMPILE
from kvplan.engines.vllm.memory.cuda_graphs import EXCHANGED, graph_line
from kvplan.engines.vllm.memory.decoders import MOST_ROWS
from kvplan.engines.vllm.memory.profile_peak import served_shape
from kvplan.engines.vllm.memory.profile_run import UNKNOWN, Coefficients, Load
from kvplan.engines.vllm.memory.profile_settings import load_of, of_stage, utilization
from kvplan.engines.vllm.memory.rank_budget import (
    at_most,
    beside_lines,
    start_lines,
    start_warning,
    vllm_budget,
)
from kvplan.engines.vllm.memory.weight_lines import (
    adapter_lines,
    drafts_of,
    on_gpu,
    ranks_of,
    relaid_share,
    repacked_line,
    repacked_share,
    weights_line,
)
from kvplan.engines.vllm.start.runner import runner_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import Budget, BudgetLine, ModelWeights, SizeResult
from kvplan.settings import Key, Serving, Settings, asked_of, further_ranks
from kvplan.units import gib
from kvplan.weights.facts import WeightFacts, weights_by_kernel
from kvplan.weights.ranks import Parallel

_DECIDES = Key(Serving)


@record()
class Known:
    """Values shared by every stage of one (model, GPU, settings)."""

    facts: WeightFacts
    shape: Shape
    load: Load
    coefficients: Coefficients
    memory: int
    reserved: tuple[BudgetLine, ...]
    beside: tuple[tuple[BudgetLine, ...], ...]
    adapters: tuple[BudgetLine, ...]
    drafts: tuple[BudgetLine, ...]
    repacked: int
    relaid: int


def fit(model: Model, choice: Choice, settings: Settings) -> Fit:
    """The budget of the stage that decides. Raises KvplanError(bad-setting)."""
    if settings.num_gpu_blocks_override is not None:
        settings = replace(settings, num_gpu_blocks_override=None)
    return _fit(model, replace(choice, pool=None), _DECIDES.values(settings))


def divided(model: Model, settings: Settings, started: SizeResult) -> Parallel:
    """How weights lie on the ranks (`kvplan.engines.budget.parts.parallel_for`)."""
    return ranks_of(model, settings, started.engine.version)


@lru_cache(maxsize=4096)
def _fit(model: Model, choice: Choice, values: tuple[Any, ...]) -> Fit:
    settings = _DECIDES.settings(values)
    gpu = settings.gpu
    assert gpu is not None
    started = choice.engine.size(model, asked_of(settings), choice.version)
    if started.refusal is not None:
        return Fit(None, None)
    if further_ranks(settings) > 1:
        from kvplan.engines.vllm.start.prefill_context import UNCOUNTED

        return Fit(None, None, (UNCOUNTED,))
    memory, reserved, warnings = memory_of(gpu)
    if memory is None:
        return Fit(None, None, warnings)
    share = utilization(settings, choice.version)
    reserved = (*of_share(reserved, share), *start_lines(gpu, memory, share, settings))
    parallel = ranks_of(model, settings, choice.version)
    dtype = scalar(str(started.settings["dtype"]))
    try:
        sources = sources_for(model, settings)
        facts = weights_by_kernel(sources, parallel, dtype, kernels_of(choice, model, settings))
        tokens = int(started.settings["max_num_batched_tokens"])
        version = choice.asked or choice.version
        beside = beside_weights(model, settings, version, sources, parallel, dtype, tokens)
        adapters, looked_up = adapter_lines(model, settings, choice, parallel, dtype)
        facts = on_gpu(model, settings, choice, facts, sources, parallel, dtype)
        drafts, said = drafts_of(model, settings, facts, sources, parallel, dtype)
    except KvplanError as error:
        if error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    shape = served_shape(model, dtype.bytes)
    seqs = int(started.settings["max_num_seqs"])
    length = int(started.settings["max_model_len"])
    load = load_of(model, settings, choice.version, shape, seqs, tokens, length)
    load = replace(load, has_adapters=bool(adapters), adapter_table=looked_up)
    coefficients = coefficients_for(model, settings, choice)
    repacked = repacked_share(model, settings)
    relaid = relaid_share(model, settings, parse_version(version))
    known = Known(
        facts, shape, load, coefficients, memory, reserved, beside, adapters, drafts, repacked, relaid
    )
    stages = [_of_stage(choice, settings, gpu, known, stage) for stage in range(load.pipeline_parallel_size)]
    decides = min(range(len(stages)), key=lambda stage: stages[stage].kv_pool_bytes)
    warnings += (*start_warning(gpu, memory, share, settings), *said)
    if len({stage.kv_pool_bytes for stage in stages}) > 1:
        warnings += (
            f"pipeline stage {decides + 1} of {len(stages)} has the least memory left: it decides the pool",
        )
    if load.encoder is not None and not load.encoder.known:
        warnings += (f"{load.encoder.source}: up to {gib(load.encoder.most_bytes)} more; {_TEXT_ONLY}",)
    if not stages[decides].calibrated:
        warnings += (
            f"no start-up of vLLM {choice.asked or choice.version} on such GPUs was read: mind the pool's"
            " interval; the log of one start (`kvplan compare --log`) narrows it",
        )
    warnings += _restart(stages[decides], load) + _context(model, settings, choice.version, load)
    warnings += _beside_the_share(known) + _exchange(stages[decides])
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    return Fit(stages[decides], weights, warnings, tuple(_shown(settings, load).items()))


def _context(model: Model, settings: Serving, version: str, load: Load) -> tuple[str, ...]:
    """A profile run that projects a block of every request up, where that is more than the usual context."""
    taken = max((besides for _, besides in load.passes), default=0)
    block = latent_block(model, settings, version)
    if not taken or rules_of(version).context_capped or load.max_num_seqs * block <= MOST_ROWS:
        return ()
    return (
        f"{gib(taken)} of the activation peak are latents of {load.max_num_seqs:,} requests, a block of"
        f" {block:,} tokens each: --max-num-seqs {max(1, MOST_ROWS // block)} lowers that",
    )


def _restart(budget: Budget, load: Load) -> tuple[str, ...]:
    """The gain of a start that finds the compiled code, where nobody said and it is worth a line."""
    gain = sum(line.bytes for line in budget.lines if line.name == COMPILE)
    if load.compile_cache != UNKNOWN or gain * _WORTH_A_WORD < budget.kv_pool_bytes or not gain:
        return ()
    return (
        f"the next start has {gib(gain)} more where torch.compile's cache is kept (--compile-cache warm)",
    )


def _exchange(budget: Budget) -> tuple[str, ...]:
    """The estimate of graphs with the tokens that data-parallel ranks exchange, which no start measured."""
    graphs = next((line for line in budget.lines if line.name == "CUDA graphs"), None)
    if graphs is None or EXCHANGED not in graphs.source:
        return ()
    more = " and more" if graphs.high_bytes == budget.total_bytes else ""
    return (
        f"vLLM may estimate {gib(graphs.low_bytes)} to {gib(graphs.high_bytes)}{more} of CUDA graphs where"
        " ranks exchange experts' tokens; VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 or"
        " --kv-cache-memory-bytes keeps it for the cache",
    )


def _beside_the_share(known: Known) -> tuple[str, ...]:
    """Graphs that are captured and not estimated."""
    counted = replace(
        known.load, graphs_estimated=True, data_parallel_size=1
    )  # as they are, not as estimated
    line = None if known.load.graphs_estimated else graph_line(known.shape, counted, known.coefficients, "")
    return () if line is None else (f"CUDA graphs, about {gib(line.bytes)}, lie beside the share",)


_TEXT_ONLY = "text alone: --language-model-only"
_WORTH_A_WORD = 100
"""A hundredth of the pool."""


def coefficients_for(model: Model, settings: Serving, choice: Choice) -> Coefficients:
    """Those of the release, of the runner that serves the model and of the board that the GPU sits on."""
    gpu, release = settings.gpu, choice.asked or choice.version
    assert gpu is not None
    return vllm_coefficients(parse_version(release), runner_of(model, settings, release), board_of(gpu))


def _of_stage(choice: Choice, settings: Serving, gpu: Gpu, known: Known, stage: int) -> Budget:
    beside = beside_lines(known.memory, known.load.gpu_memory_utilization, settings)
    last = stage == known.load.pipeline_parallel_size - 1
    weights = weights_line(known.facts, stage, settings, relaid=known.relaid)
    counted = settings.weights is None  # else they are what loading took: tables and adapters are in them
    budget = vllm_budget(
        gpu=gpu.slug,
        total_bytes=known.memory,
        weights=weights,
        shape=known.shape,
        load=of_stage(known.load, stage),
        known=known.coefficients,
        extra=(
            *repacked_line(weights, known.repacked),
            *known.beside[stage],
            *(known.adapters[stage : stage + 1] if counted else ()),
            *(known.drafts if last else ()),
            *known.reserved,
        ),
        rotary=counted,
    )
    lines = tuple(
        at_most(line, known.memory) if line.name == "CUDA graphs" else line for line in budget.lines
    )
    return replace(budget, lines=lines, beside=beside)


def _shown(settings: Serving, load: Load) -> dict[str, Any]:
    """The settings that decide the budget, beside the engine's own."""
    shown: dict[str, Any] = {"gpu_memory_utilization": float(load.gpu_memory_utilization)}
    shown["forward_pass"] = "traced" if load.passes else "formula"
    for name in ("enforce_eager", "enable_expert_parallel", "quantization"):
        if getattr(settings, name):
            shown[name] = getattr(settings, name)
    if settings.cpu_offload_gb:
        shown["cpu_offload_gb"] = float(settings.cpu_offload_gb)
    return shown
