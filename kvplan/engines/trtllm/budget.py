"""TensorRT-LLM: (total − peak) · free_gpu_memory_fraction, peak being weights, activations and context.

NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/_torch/pyexecutor/_util.py (KvCacheCreator): a start-up run of context
requests with max_num_tokens tokens beside a small temporary cache gives the peak; the temporary cache is
given back. Where a later release skips that run, the peak is the memory in use then.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.architectures.config.activation_shape import shape_of
from kvplan.dtypes import Packing, scalar
from kvplan.engines.base import Choice
from kvplan.engines.budget import Fit
from kvplan.engines.budget.parts import (
    UNCALIBRATED,
    Start,
    kernels_of,
    no_pool,
    once_a_start,
    sources_for,
    weight_lines,
)
from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.engines.vllm.memory.coefficients import vllm_coefficients
from kvplan.engines.vllm.memory.profile_peak import activation_peak
from kvplan.engines.vllm.memory.profile_run import Load
from kvplan.errors import KvplanError, RefusedError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.results import Budget, BudgetLine, ModelWeights, SizeResult, about, exact
from kvplan.settings import Serving, Settings
from kvplan.units import GIB
from kvplan.weights.expanded import again_bytes
from kvplan.weights.facts import WeightSources
from kvplan.weights.inventory import Tensor
from kvplan.weights.parts import Part
from kvplan.weights.ranks import Parallel

CLASSES = frozenset(
    """
    DeepseekV3ForCausalLM DeepseekV32ForCausalLM Glm4MoeForCausalLM ExaoneMoEForCausalLM Qwen3MoeForCausalLM
    """.split()
)
"""Classes whose every part but the routed experts is whole under attention data parallelism:
modules/attention.py (tp_size 1), models/modeling_utils.py (DecoderModelForCausalLM), embed_tokens without a
mapping, modeling_deepseekv3.py (_compute_mlp_tp_size, _compute_shared_expert_tp_size)."""
_TYPES = frozenset(("deepseek_v3", "deepseek_v32", "glm4_moe", "exaone_moe", "qwen3_moe"))
_WHOLE = (Part.ATTENTION, Part.DENSE, Part.SHARED, Part.EMBEDDING, Part.HEAD)

_NEWEST = (10**6,)
_BLACKWELL, _BLOCK = 10, (128, 128)
OUTSIDE = (GIB * 255 // 100, GIB * 8 // 10)
"""Memory used outside torch on one GPU, and the half-width of the estimate. Graphs are captured before the
measured run. One server's log is behind it: Llama-3-8B on an H200, 1.2.0rc4, 17.76 GiB, of them 14.96
weights, 2.55 outside torch, 0.14 of the run."""
BETWEEN = (GIB * 125 // 100, GIB * 3 // 4)
"""NCCL's buffers and the all-reduce workspaces between several."""


@once_a_start
def fit(model: Model, choice: Choice, settings: Serving, start: Start) -> Fit:
    """The budget of the fullest rank. Raises KvplanError(bad-setting)."""
    gpu, started, total, reserved, warnings = start
    options = TrtllmOptions.of(settings)
    fraction = options.free_gpu_memory_fraction
    assert fraction is not None
    if not fraction:
        raise KvplanError("bad-setting", "free_gpu_memory_fraction is 0", help="it lies above 0")
    dtype = scalar(str(started.settings["dtype"]))
    try:
        sources = sources_for(model, settings)
        parallel = (
            Parallel(settings.tensor_parallel_size, settings.pipeline_parallel_size)
            if settings.weights is not None
            else parallel_of(model, settings, options)
        )
        kernels = kernels_of(choice, model, settings)
        facts, loaded, said = weight_lines(sources, model, settings, parallel, dtype, kernels)
        loaded += _absorbed_lines(sources, parallel, dtype, gpu)
    except KvplanError as error:
        if error.code == "bad-setting":
            raise
        return Fit(None, None, (no_pool(error),))
    load = Load(
        max_num_seqs=int(started.settings["max_batch_size"]),
        max_num_batched_tokens=int(started.settings["max_num_tokens"]),
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        gpu_memory_utilization=Fraction(1),
        enable_expert_parallel=settings.enable_expert_parallel,
        samples=False,  # context requests alone: a row of logits each
    )
    shape = shape_of(model, dtype.bytes)
    # vLLM's forward pass stands in for TensorRT-LLM's.
    peak = activation_peak(shape, load, vllm_coefficients(_NEWEST))
    lines = [*loaded, outside(settings.tensor_parallel_size * settings.pipeline_parallel_size)]
    if shape.rotary_bytes and settings.weights is None:
        lines.append(
            exact("rotary tables", shape.rotary_bytes, "positions · rotary_dim · element, of the config")
        )
    how = f"context requests of {load.max_num_batched_tokens:,} tokens together; {UNCALIBRATED}"
    lines += [about("activation peak", peak, peak // 2 + GIB // 4, how), *reserved]
    states = 0
    if options.mamba_state_cache_interval is None:
        states = int(started.settings.get("state_slots", 0)) * started.per_gpu.fixed_bytes_per_request
    budget = _budget(gpu.slug, total, tuple(lines), fraction, states)
    weights = ModelWeights(facts.bytes_per_gpu, facts.total_bytes, facts.source)
    warnings += (
        *said,
        "TensorRT-LLM's peak at start-up is uncalibrated: mind the interval of the pool",
    )
    return Fit(budget, weights, warnings, (("free_gpu_memory_fraction", float(fraction)),))


def _absorbed_lines(
    sources: WeightSources, parallel: Parallel, dtype: Packing, gpu: Gpu
) -> tuple[BudgetLine, ...]:
    """MLA's kv_b_proj a second time: FP8 in blocks of 128 × 128 as it is, on GPUs of 10.x also unquantised;
    every other format unquantised.

    NVIDIA/TensorRT-LLM 1.2 tensorrt_llm/_torch/modules/attention.py, MLA.create_weights: k_b_proj_trans,
    v_b_proj, and their _dequant where is_sm_100f().
    """
    if sources.inventory is None or sources.stated_bytes is not None:
        return ()
    blackwell = gpu.compute_capability is not None and gpu.compute_capability[0] == _BLACKWELL

    def bytes_of(tensor: Tensor) -> int:
        if tensor.form is None or tensor.form.block != _BLOCK:
            return dtype.bytes
        return 1 + (dtype.bytes if blackwell else 0)

    amount = max(again_bytes(sources.inventory, parallel, bytes_of))
    how = "kv_b_proj a second time, for decoding (k_b_proj_trans, v_b_proj)"
    return (exact("absorbed projections", amount, how),) if amount else ()


def outside(ranks: int) -> BudgetLine:
    """Memory used outside torch: context, libraries, workspaces and graphs; between ranks NCCL as well."""
    amount, margin = OUTSIDE
    how = "CUDA context, libraries, workspaces, graphs"
    if ranks > 1:
        amount, margin, how = amount + BETWEEN[0], margin + BETWEEN[1], how + ", NCCL"
    return about("context, buffers", amount, margin, f"{how}; {UNCALIBRATED}")


def divided(model: Model, settings: Settings, started: SizeResult) -> Parallel:
    """How the weights are divided over the ranks (`kvplan.engines.budget.parts.parallel_for`)."""
    del started
    return parallel_of(model, settings, TrtllmOptions.of(settings))


def _budget(gpu: str, total: int, lines: tuple[BudgetLine, ...], fraction: Fraction, states: int) -> Budget:
    """States, and ⌊(total − lines − states) · fraction⌋; the rest of what is free stays unused. States are
    allocated before the run and again before the cache (mamba_cache_manager.py, MambaHybridCacheManager)."""

    def pool(taken: int) -> int:
        free = max(0, total - taken)
        return min(free, states) + int(max(0, free - states) * fraction)

    taken = sum(line.bytes for line in lines)
    return Budget(
        gpu=gpu,
        total_bytes=total,
        lines=lines,
        kv_pool_bytes=pool(taken),
        kv_pool_low_bytes=pool(sum(line.high_bytes for line in lines)),
        kv_pool_high_bytes=pool(sum(line.low_bytes for line in lines)),
        unused_bytes=max(0, total - taken) - pool(taken),
        calibrated=False,
    )


def parallel_of(model: Model, settings: Serving, options: TrtllmOptions) -> Parallel:
    """How the weights are divided. Raises KvplanError(no-weights | bad-setting)."""
    tp = settings.tensor_parallel_size
    groups: tuple[tuple[Part, int], ...] = ()
    if options.enable_attention_dp and tp > 1:
        described = model.architecture in CLASSES or (
            model.architecture is None and model.model_type in _TYPES
        )
        if not described:
            raise RefusedError(
                "no-weights",
                f"how --enable-attention-dp divides the weights of {model.id} is not known: TensorRT-LLM's"
                f" {model.architecture or model.model_type} is not described",
                help="give the weights of one GPU yourself: --weights 15GiB",
            )
        groups = tuple((part, 1) for part in _WHOLE)
    # moe_ep_size ranks have whole experts, the others divide their width (mapping.py).
    given = options.moe_expert_parallel_size
    ep = given if given is not None else tp if settings.enable_expert_parallel else 1
    if tp % ep:
        raise KvplanError(
            "bad-setting", f"moe_expert_parallel_size {ep} does not divide tensor_parallel_size {tp}"
        )
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=tp,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        compute_capability=gpu.compute_capability if gpu is not None else None,
        groups=groups,
        expert_parallel_size=ep,
    )
