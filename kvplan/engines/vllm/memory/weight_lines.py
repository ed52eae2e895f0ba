"""Memory of a rank before vLLM's profile run: weights, adapters, drafts.

How vLLM divides weights over its ranks.
"""

from __future__ import annotations

from kvplan.architectures.weights import sources_of
from kvplan.dtypes import Packing
from kvplan.engines.base import Choice
from kvplan.engines.vllm.encoder_profile.multimodal import text_only, tower_parts
from kvplan.engines.vllm.options import TRITON, VllmOptions
from kvplan.engines.vllm.start.architectures import GENERATING, is_pooling
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import RefusedError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import BudgetLine, exact
from kvplan.settings import Serving
from kvplan.units import GIB, gib
from kvplan.weights.facts import WeightFacts, WeightSources
from kvplan.weights.ranks import ExpertBlocks, Parallel, head_bytes, lookup_bytes, tower_bytes


def repacked_share(model: Model, settings: Serving) -> int:
    """Bytes that kernels may add to the weights as they load, in thousandths.

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


def weights_line(facts: WeightFacts, stage: int, settings: Serving, *, relaid: int = 0) -> BudgetLine:
    """The weights of one stage, less what lies in the CPU's memory. relaid: thousandths."""
    source = f"{facts.source}: {facts.detail}" if facts.detail else facts.source
    low, high = facts.bounds(stage)
    moved = min(low, int(settings.cpu_offload_gb * GIB))
    if moved:
        source = f"{source}; {gib(moved)} more in the CPU's memory"
    if relaid:
        source = f"{source}; in sleep mode part of what loading laid out anew counts as free"
    least = low - moved - facts.bytes_per_rank[stage] * relaid // 1000
    return BudgetLine("weights", facts.bytes_per_rank[stage] - moved, max(0, least), high - moved, source)


def relaid_share(model: Model, settings: Serving, release: tuple[int, ...]) -> int:
    """Memory that may count as free in addition to the free memory, in thousandths of the weights: sleep mode
    with matrices that kernels lay out anew.

    Loading frees the first layout in the weights' own pool, whose empty segments are unmapped by hand
    (device_allocator/cumem.py, use_memory_pool), while torch still counts them as reserved: until 0.27 the
    profile run takes what is used less what is reserved (utils/mem_utils.py, non_torch_memory). Of Marlin's
    integers one start had 3.58 of 8.28 GiB back, another 1.1 of 17; of FP8 four had at most 0.5 of 28.5.
    """
    sleeps = VllmOptions.of(settings).enable_sleep_mode
    stored = model.quantization or settings.quantization
    if not sleeps or stored is None or rules_of(release).consumed_counts:
        return 0
    return _RELAID_SCALED if "fp8" in stored else _RELAID_PACKED


_RELAID_PACKED, _RELAID_SCALED = 500, 25
"""Of integers and four bits, whose kernels have an order of their own; of FP8, whose scales are."""


def on_gpu(
    model: Model,
    settings: Serving,
    choice: Choice,
    facts: WeightFacts,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
) -> WeightFacts:
    """The weights less an encoder that is not loaded (interfaces.py, _mark_tower_model: since 0.15), less
    tables of n-grams, which are looked up in pinned memory of the CPU (config/engram.py: since 0.30), and
    less the head of a class that generates and is served to pool (adapters.py, _create_pooling_model_cls)."""
    inventory, rules = sources.inventory, rules_of(choice.asked or choice.version)
    if inventory is None or sources.stated_bytes is not None:
        return facts
    if rules.unserved_encoder_left and text_only(model, settings):
        facts = _less(facts, tower_bytes(inventory, parallel, dtype), "without the encoder's")
    if is_pooling(model, settings) and model.architecture in GENERATING:
        facts = _less(facts, head_bytes(inventory, parallel, dtype), "without the head's")
    if rules.tables_on_host:
        facts = _less(facts, lookup_bytes(inventory, parallel, dtype), "without the n-gram tables'")
    return facts


def _less(facts: WeightFacts, left: tuple[int, ...], words: str) -> WeightFacts:
    if not any(left):
        return facts
    ranks = tuple(rank - less for rank, less in zip(facts.bytes_per_rank, left, strict=True))
    bounds = [
        tuple(bound - less for bound, less in zip(ends, left, strict=True)) if ends else ()
        for ends in (facts.lowest, facts.highest)
    ]
    detail = f"{facts.detail}; {words} {gib(max(left))}"
    return replace(facts, bytes_per_rank=ranks, detail=detail, lowest=bounds[0], highest=bounds[1])


def adapter_lines(
    model: Model, settings: Serving, choice: Choice, parallel: Parallel, dtype: Packing
) -> tuple[tuple[BudgetLine, ...], int]:
    """The buffers of LoRA adapters, one line a stage, and those of the embedding; none without --enable-lora.

    Raises RefusedError.
    """
    if not settings.own:
        return (), 0
    from kvplan.engines.vllm.start.adapters import slots_of, wrapped_of
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


def drafts_of(
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
        expert_blocks=_expert_blocks(settings, version),
        redundant_experts=VllmOptions.of(settings).num_redundant_experts or 0,
        group_indices=False,
    )


def _expert_blocks(settings: Serving, version: str) -> ExpertBlocks:
    """How experts are kept of which a rank has a part of a block, where the engine starts with it."""
    rules = rules_of(version)
    if VllmOptions.of(settings).moe_backend in TRITON:
        return ExpertBlocks.SMALLER if rules.refined_expert_blocks else ExpertBlocks.AS_STORED
    return ExpertBlocks.PADDED if rules.padded_expert_blocks else ExpertBlocks.AS_STORED
