"""vLLM: the budget of every pipeline stage; the stage with the least left decides the pool of all."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.architectures.config.activation_shape import Shape
from kvplan.architectures.weights import sources_of
from kvplan.dtypes import Packing, scalar
from kvplan.engines.base import Choice, has_kind, parse_version
from kvplan.engines.budget import Fit
from kvplan.engines.budget.lines import exact
from kvplan.engines.budget.parts import kernels_of, memory_of, no_pool, of_share, sources_for
from kvplan.engines.vllm.boards import board_of
from kvplan.engines.vllm.class_roles import is_pooling
from kvplan.engines.vllm.coefficients import vllm_coefficients
from kvplan.engines.vllm.cold_compile import COMPILE
from kvplan.engines.vllm.compressed_pass import compressed_passes
from kvplan.engines.vllm.decoders import passes_of
from kvplan.engines.vllm.expert_run import AUTO, COMPRESSED, CUTLASS, expert_run
from kvplan.engines.vllm.forward import served_shape
from kvplan.engines.vllm.heads import keeps_latent
from kvplan.engines.vllm.indexer import Reserved, reserved
from kvplan.engines.vllm.load import UNKNOWN, Coefficients, Load
from kvplan.engines.vllm.memory import vllm_budget
from kvplan.engines.vllm.multimodal import encoder_run, text_only
from kvplan.engines.vllm.rounded import TOWERS_LEFT, rounded_lines
from kvplan.engines.vllm.runner import V2, runner_of
from kvplan.engines.vllm.shares import ranks_of
from kvplan.engines.vllm.splits import AttentionBuffers, buffers_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import Budget, BudgetLine, ModelWeights, SizeResult
from kvplan.settings import EAGLE_LIKE, Key, Serving, Settings, asked_of, further_ranks
from kvplan.units import GIB, gib
from kvplan.weights.facts import WeightFacts, WeightSources, weights_by_kernel
from kvplan.weights.formats import NVFP4, Format
from kvplan.weights.inventory import expert_forms
from kvplan.weights.ranks import Parallel, tower_bytes

_DECIDES = Key(Serving)


@record()
class Known:
    """What one (model, GPU, settings) has in common for every stage."""

    facts: WeightFacts
    shape: Shape
    load: Load
    coefficients: Coefficients
    memory: int
    reserved: tuple[BudgetLine, ...]
    rounded: tuple[BudgetLine, ...]
    adapters: tuple[BudgetLine, ...]
    drafts: tuple[BudgetLine, ...]
    repacked: int


def fit(model: Model, choice: Choice, settings: Settings) -> Fit:
    """The budget of the stage that decides. Raises KvplanError(bad-setting)."""
    if settings.num_gpu_blocks_override is not None:
        settings = replace(settings, num_gpu_blocks_override=None)
    return _fit(model, replace(choice, pool=None), _DECIDES.values(settings))


@lru_cache(maxsize=4096)
def _fit(model: Model, choice: Choice, values: tuple[Any, ...]) -> Fit:
    settings = _DECIDES.settings(values)
    gpu = settings.gpu
    assert gpu is not None
    started = choice.engine.size(model, asked_of(settings), choice.version)
    if started.refusal is not None:
        return Fit(None, None)
    if further_ranks(settings) > 1:
        from kvplan.engines.vllm.prefill_context import UNCOUNTED

        return Fit(None, None, (UNCOUNTED,))
    memory, reserved, warnings = memory_of(gpu)
    if memory is None:
        return Fit(None, None, warnings)
    reserved = of_share(reserved, utilization(settings, choice.version))
    parallel = ranks_of(model, settings, choice.version)
    dtype = scalar(str(started.settings["dtype"]))
    try:
        sources = sources_for(model, settings)
        facts = weights_by_kernel(sources, parallel, dtype, kernels_of(choice, model, settings))
        tokens = int(started.settings["max_num_batched_tokens"])
        version = choice.asked or choice.version
        rounded = rounded_lines(model, settings, version, sources, parallel, dtype, tokens)
        adapters, looked_up = _adapters(model, settings, choice, parallel, dtype)
        facts = _without_tower(model, settings, choice, facts, sources, parallel, dtype)
        drafts, said = _drafts(model, settings, facts, sources, parallel, dtype)
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
    known = Known(facts, shape, load, coefficients, memory, reserved, rounded, adapters, drafts, repacked)
    stages = [_of_stage(choice, settings, gpu, known, stage) for stage in range(load.pipeline_parallel_size)]
    decides = min(range(len(stages)), key=lambda stage: stages[stage].kv_pool_bytes)
    warnings += said
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
    warnings += _restart(stages[decides], load)
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    return Fit(stages[decides], weights, warnings, tuple(_shown(settings, load).items()))


def _restart(budget: Budget, load: Load) -> tuple[str, ...]:
    """What a start gains that finds the compiled code, where nobody said and it is worth a word."""
    gain = sum(line.bytes for line in budget.lines if line.name == COMPILE)
    if load.compile_cache != UNKNOWN or gain * _WORTH_A_WORD < budget.kv_pool_bytes or not gain:
        return ()
    return (
        f"the next start has {gib(gain)} more where torch.compile's cache is kept (--compile-cache warm)",
    )


_WORTH_A_WORD = 100
"""A hundredth of the pool."""


def load_of(
    model: Model,
    settings: Serving,
    version: str,
    shape: Shape,
    seqs: int,
    tokens: int,
    length: int,
    buffers: AttentionBuffers | None = None,
) -> Load:
    """The profile run of settings. seqs, tokens, length: the batch and max_model_len in force."""
    gpu, method = settings.gpu, settings.speculative_method
    drafts = settings.num_speculative_tokens if method is not None else 0
    own = dict(settings.engine_options)
    largest, dp = own.get("max_cudagraph_capture_size"), settings.data_parallel_size
    backend = str(own.get("moe_backend", AUTO))
    release, capability = parse_version(version), None if gpu is None else gpu.compute_capability
    dp, stored = dp if shape.experts_per_token else 1, settings.quantization or model.quantization
    kept = buffers_of(model, settings, version) if buffers is None else buffers
    encoder = encoder_run(
        model,
        settings,
        version,
        seqs=seqs,
        tokens=tokens,
        length=length,
        element=shape.element_bytes,
        v2=runner_of(model, settings, version) == V2,
    )
    return Load(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        gpu_memory_utilization=utilization(settings, version),
        enforce_eager=settings.enforce_eager,
        enable_expert_parallel=settings.enable_expert_parallel,
        data_parallel_size=dp,
        drafts=drafts,
        reads_hidden=bool(drafts) and method in EAGLE_LIKE,
        largest_graph=largest if isinstance(largest, int) else 0,
        compile_cache=str(own.get("compile_cache", UNKNOWN)),
        capability=capability,
        passes=passes_of(model, _divided(settings), length=length, seqs=seqs, element=shape.element_bytes)
        or compressed_passes(
            model,
            ranks=settings.tensor_parallel_size,
            capability=capability,
            release=release,
            element=shape.element_bytes,
        ),
        indexer=reserved(model, length, tokens, release) if release >= _RESERVES else Reserved(),
        model_type=model.model_type,
        encoder=encoder,
        encoder_known=encoder is None or encoder.known,
        takes_tokens=not shape.is_multimodal or text_only(model, settings),
        has_states=has_kind(model, Kind.STATE),
        eight_bits=stored in _EIGHT_BITS,
        packed=stored in _PACKED,
        latent=keeps_latent(model),
        flashinfer=kept.flashinfer,
        split_bytes=kept.split_bytes,
        samples=not is_pooling(model),
        fused_sampler=own.get("flashinfer") != "absent" and (gpu is None or gpu.vendor.lower() == "nvidia"),
        experts=expert_run(
            stored,
            release,
            capability,
            dp=dp,
            expert_parallel=settings.enable_expert_parallel,
            backend=backend,
            nvfp4=backend == CUTLASS and _expert_forms(model) <= {None, NVFP4},
            integers=stored == COMPRESSED and _integers(_expert_forms(model)),
        ),
    )


def _expert_forms(model: Model) -> frozenset[Format | None]:
    """How routed experts are stored; as trained where the weights' bytes are stated."""
    inventory = sources_of(model).inventory
    return frozenset() if inventory is None else expert_forms(inventory)


def _integers(forms: frozenset[Format | None]) -> bool:
    return any(form is not None and form.name.startswith("int") for form in forms)


def divided(model: Model, settings: Settings, started: SizeResult) -> Parallel:
    """How weights lie on the ranks (`kvplan.engines.budget.parts.parallel_for`)."""
    return ranks_of(model, settings, started.engine.version)


def _divided(settings: Serving) -> Parallel:
    """The ranks among which matrices are divided."""
    return Parallel(
        tensor_parallel_size=settings.tensor_parallel_size,
        data_parallel_size=settings.data_parallel_size,
        enable_expert_parallel=settings.enable_expert_parallel,
    )


def of_stage(load: Load, stage: int) -> Load:
    """The profile run of one stage of a pipeline."""
    encoder = None if load.encoder is None else load.encoder.on_stage(stage)
    return replace(load, samples=load.samples and stage == load.pipeline_parallel_size - 1, encoder=encoder)


_EIGHT_BITS = frozenset({"fp8", "fbgemm_fp8", "modelopt_fp8"})
_PACKED = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin"})
_RESERVES = (0, 20)
"""The oldest release of which a start of a sparse model was read."""


def coefficients_for(model: Model, settings: Serving, choice: Choice) -> Coefficients:
    """Those of the release, of the runner that serves the model and of the board that the GPU sits on."""
    gpu, release = settings.gpu, choice.asked or choice.version
    assert gpu is not None
    return vllm_coefficients(parse_version(release), runner_of(model, settings, release), board_of(gpu))


def repacked_share(model: Model, settings: Serving) -> int:
    """What kernels may add to the weights as they load, in thousandths.

    Only quantised matrices are laid out anew (Marlin's order, padded scales); of 40 starts none took more
    than 0.4 % beyond its tensors. None where somebody read the figure, nor where the kernel's blocks are
    counted.
    """
    stored = model.quantization or settings.quantization
    known = settings.weights is not None or stored in (None, "mxfp4")
    return 0 if known else _REPACKED


_REPACKED = 5


def repacked_line(weights: BudgetLine, share: int) -> tuple[BudgetLine, ...]:
    """From nothing to the share of the weights; none where nothing is laid out anew."""
    most = weights.bytes * share // 1000
    what = "what kernels add to quantised weights as they load; not known"
    return (BudgetLine("repacked weights", 0, 0, most, what),) if most else ()


def _of_stage(choice: Choice, settings: Serving, gpu: Gpu, known: Known, stage: int) -> Budget:
    last = stage == known.load.pipeline_parallel_size - 1
    weights = weights_line(known.facts, stage, settings)
    counted = settings.weights is None  # else they are what loading took: tables and adapters are in them
    return vllm_budget(
        gpu=gpu.slug,
        total_bytes=known.memory,
        weights=weights,
        shape=known.shape,
        load=of_stage(known.load, stage),
        known=known.coefficients,
        extra=(
            *repacked_line(weights, known.repacked),
            *known.rounded[stage : stage + 1],
            *(known.adapters[stage : stage + 1] if counted else ()),
            *(known.drafts if last else ()),
            *known.reserved,
        ),
        rotary=counted,
    )


def weights_line(facts: WeightFacts, stage: int, settings: Serving) -> BudgetLine:
    """The weights of one stage, less what lies in the CPU's memory."""
    source = f"{facts.source}: {facts.detail}" if facts.detail else facts.source
    low, high = facts.bounds(stage)
    moved = min(low, int(settings.cpu_offload_gb * GIB))
    if moved:
        source = f"{source}; {gib(moved)} more in the CPU's memory"
    return BudgetLine("weights", facts.bytes_per_rank[stage] - moved, low - moved, high - moved, source)


_TEXT_ONLY = "text alone: --language-model-only"


def _without_tower(
    model: Model,
    settings: Serving,
    choice: Choice,
    facts: WeightFacts,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
) -> WeightFacts:
    """The weights less an encoder that is not loaded (interfaces.py, _mark_tower_model: since 0.15)."""
    inventory, release = sources.inventory, parse_version(choice.asked or choice.version)
    if inventory is None or sources.stated_bytes is not None or release < TOWERS_LEFT:
        return facts
    if not text_only(model, settings):
        return facts
    left = tower_bytes(inventory, parallel, dtype)
    ranks = tuple(rank - tower for rank, tower in zip(facts.bytes_per_rank, left, strict=True))
    detail = f"{facts.detail}; without the encoder's {gib(max(left))}"
    bounds = [
        tuple(bound - tower for bound, tower in zip(ends, left, strict=True)) if ends else ()
        for ends in (facts.lowest, facts.highest)
    ]
    return replace(facts, bytes_per_rank=ranks, detail=detail, lowest=bounds[0], highest=bounds[1])


def _adapters(
    model: Model, settings: Serving, choice: Choice, parallel: Parallel, dtype: Packing
) -> tuple[tuple[BudgetLine, ...], int]:
    """The buffers of LoRA adapters, one line a stage, and those of the embedding; none without --enable-lora.

    Raises RefusedError.
    """
    if not settings.engine_options:
        return (), 0
    from kvplan.engines.vllm.adapters import slots_of, wrapped_of
    from kvplan.weights.adapters import embedding_bytes, vllm_bytes

    slots = slots_of(settings, dtype)
    if slots is None:
        return (), 0
    # As trained: adapters have the shapes of the matrices, however these are stored.
    inventory = sources_of(model).inventory
    wrapped = wrapped_of(model, choice.asked or choice.version)
    if inventory is None:
        raise RefusedError(
            "lora",
            f"the matrices of {model.id}, which adapters are made for, are not known",
            help=("--kv-cache-memory 16GiB", "leave out --enable-lora"),
        )
    source = f"{slots.count} adapters of rank {slots.rank}: A and B of every wrapped matrix"
    amounts = vllm_bytes(inventory, wrapped, slots, parallel)
    lines = tuple(exact("LoRA adapters", amount, source) for amount in amounts)
    return lines, embedding_bytes(inventory, wrapped, slots)


def _drafts(
    model: Model,
    settings: Serving,
    facts: WeightFacts,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
) -> tuple[tuple[BudgetLine, ...], tuple[str, ...]]:
    """A draft model, or multi-token-prediction layers: they lie on the last stage."""
    if settings.speculative_method is None:
        return (), ()
    from kvplan.engines.budget.drafts import draft_lines

    own = settings.speculative_method == "mtp"
    return draft_lines(model, settings, facts, sources, parallel, dtype, own=own)


def utilization(settings: Serving, version: str) -> Fraction:
    """gpu_memory_utilization as given, else the release\'s default."""
    given = settings.gpu_memory_utilization
    return Fraction(rules_of(version).default_utilization_percent, 100) if given is None else given


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
