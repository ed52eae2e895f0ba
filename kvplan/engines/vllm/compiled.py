"""Everything that vLLM works out at start-up: a refusal, or layers, groups and the plan of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvplan.engines.base import doubt, has_kind, is_assumed, layer_answers
from kvplan.engines.vllm.backends.selection import NoBackendError
from kvplan.engines.vllm.backends.table import BACKENDS
from kvplan.engines.vllm.cache_layout.built_model import Served
from kvplan.engines.vllm.cache_layout.grouping import CannotGroupError
from kvplan.engines.vllm.cache_layout.layers import Built, build
from kvplan.engines.vllm.cache_layout.plan import Plan, make_plan
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.refusals.checks import refusal_of
from kvplan.engines.vllm.start.architectures import as_run
from kvplan.engines.vllm.start.defaults import lengths_of
from kvplan.engines.vllm.start.resolve import Resolved, resolve
from kvplan.engines.vllm.versions import NOT_ASKED, Rules, rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import Json, record, replace
from kvplan.results import EngineRef, LayerTerms, ModelRef, Refusal
from kvplan.settings import HEAD_METHODS, Key, Layout, further_ranks

if TYPE_CHECKING:
    from kvplan.engines.vllm.backends import rocm
    from kvplan.engines.vllm.refusals import divided_blocks, formats
    from kvplan.engines.vllm.start import connectors, windows
else:
    connectors = later("kvplan.engines.vllm.start", "connectors")
    rocm = later("kvplan.engines.vllm.backends", "rocm")
    divided_blocks = later("kvplan.engines.vllm.refusals", "divided_blocks")
    formats = later("kvplan.engines.vllm.refusals", "formats")
    windows = later("kvplan.engines.vllm.start", "windows")

OWN_DRAFTERS = ("eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash", "dspark")
"""Methods whose drafter is a checkpoint of its own."""
PLUGIN = ("bitsandbytes", "vllm-bnb-plugin")
"""A method of quantisation, and the package that it was moved to."""
KERNELS_FROM = (7, 5)
"""The oldest GPUs that CUDA 13 compiles for."""
_PLANNED = Key(Layout)
planned_values = _PLANNED.values


@record()
class Compiled:
    """Everything about (model, settings, version) that does not depend on the request."""

    model: ModelRef
    engine: EngineRef
    plan: Plan | None
    refusal: Refusal | None
    settings: Json
    layers: tuple[LayerTerms, ...]
    warnings: tuple[str, ...]
    max_model_len: int
    ranks: int


def compiled(model: Model, version: str, settings: Layout) -> Compiled:
    """Everything that the engine works out at start-up. Raises KvplanError."""
    return compile_start(as_run(model, version), version, planned_values(settings))


@lru_cache(maxsize=256)
def compile_start(model: Model, version: str, values: tuple[Any, ...]) -> Compiled:
    settings = _PLANNED.settings(values)
    rules = rules_of(version)
    if VllmOptions.of(settings).disable_sliding_window:
        model = windows.without_windows(model)
    resolved = resolve(model, settings, rules)
    refusal = refusal_of(model, settings, resolved, version)
    served = Served(model, resolved, rules, version)
    built: Built | None = None
    plan: Plan | None = None
    if refusal is None or refusal.code == "max-model-len":
        try:
            built = build(served)
            plan = make_plan(resolved, rules, built)
        except (NoBackendError, CannotGroupError) as error:
            refusal = refusal or Refusal("cannot-start", str(error))
        if plan is not None and not all(plan.bytes_per_block) and plan.groups:
            refusal, plan = Refusal("cannot-start", "a pipeline stage has no layer with a cache"), None
    _check_pool(model, resolved, version)
    return Compiled(
        ModelRef(model.id, model.source),
        EngineRef("vllm", version),
        plan,
        refusal,
        MappingProxyType(_shown(resolved, built, settings)),
        layer_answers(
            model, lambda part: served.store(built.kv if built else resolved.kv), settings.speculative_model
        ),
        (
            *_warnings(model, settings, resolved, built, version),
            *(_connected(model, settings, resolved, rules, built, plan) if resolved.connected else ()),
        ),
        resolved.lengths.max_model_len,
        resolved.tp * further_ranks(settings),
    )


def _shown(resolved: Resolved, built: Built | None, settings: Layout) -> dict[str, Any]:
    """Every resolved setting that influenced the answer."""
    shown: dict[str, Any] = {
        "dtype": resolved.dtype.name,
        "kv_cache_dtype": resolved.kv_format.name if built is None or built.kv == "auto" else built.kv,
        "max_model_len": resolved.lengths.max_model_len,
        "max_num_seqs": resolved.batch.seqs,
        "max_num_batched_tokens": resolved.batch.tokens,
        "max_in_flight_tokens": resolved.in_flight,
        "async_scheduling": resolved.async_scheduling,
        "enable_prefix_caching": resolved.prefix_caching,
        "tensor_parallel_size": resolved.tp,
        "pipeline_parallel_size": resolved.pp,
        "data_parallel_size": settings.data_parallel_size,
        "decode_context_parallel_size": resolved.dcp,
        "disable_hybrid_kv_cache_manager": resolved.disable_hybrid,
        "gpu": resolved.device.name + (" (assumed)" if resolved.device.assumed else ""),
        "usage": settings.usage,
    }
    if built is not None:
        shown["block_size"] = built.sizes.block
        shown["attention_backend"] = "+".join(built.backends)
        shown["kv_cache_layout"] = "BLHNC" if built.block_outermost else "LBNHC"
        if built.sizes.state_block is not None:
            shown["mamba_cache_mode"] = resolved.mamba_mode
            shown["mamba_block_size"] = built.sizes.state_block
            shown["mamba_cache_dtype"] = resolved.conv_dtype.name
            shown["mamba_ssm_cache_dtype"] = (resolved.ssm_dtype or resolved.conv_dtype).name
    if resolved.spec_tokens:
        shown["speculative_method"] = settings.speculative_method
        shown["num_speculative_tokens"] = resolved.spec_tokens
        if settings.speculative_model is not None:
            shown["speculative_model"] = settings.speculative_model.id
    if settings.own:
        from kvplan.engines.vllm.start.adapters import shown_options

        shown.update(shown_options(settings))
    return shown


def _warnings(
    model: Model, settings: Layout, resolved: Resolved, built: Built | None, version: str
) -> tuple[str, ...]:
    rules = rules_of(version)
    unasked = f"the rules of vLLM {version} were read, not checked against its own planner"
    assumed = is_assumed(model, settings)
    doubted = (
        divided_blocks.divided_refusal(model, settings, resolved, version, assumed=True) if assumed else None
    )
    found = (
        unasked if rules.release in NOT_ASKED else None,
        *_odd_blocks(resolved, built),
        _unread_amd(resolved, rules, version),
        _without_flashinfer(resolved, rules),
        _plugin(model, settings, rules, version),
        *doubt(doubted),
        _without_kernels(resolved, rules, version),
        _slower_kernels(model, settings, resolved, version),
        formats.emulated(model, settings, resolved.device) if resolved.device.vendor == "amd" else None,
        _unnamed_draft(settings, resolved),
        _shortened(model, settings, resolved, version),
    )
    return (*model.warnings, *(said for said in found if said is not None))


def _connected(
    model: Model, settings: Layout, resolved: Resolved, rules: Rules, built: Built | None, plan: Plan | None
) -> Iterator[str]:
    """Sentences on the changes of a KV connector, and on its memory beside the pool."""
    length = resolved.lengths.max_model_len
    if built is None or plan is None or not plan.groups:
        return
    counted = other = plan.held(length, 0) * plan.widest
    with suppress(CannotGroupError):
        changed = make_plan(replace(resolved, disable_hybrid=not resolved.disable_hybrid), rules, built)
        other = changed.held(length, 0) * changed.widest
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    yield from connectors.said_of_manager(settings, rules, kinds, (counted, other))
    yield from connectors.beside_the_pool(settings, int(plan.growth(length)))


def _odd_blocks(resolved: Resolved, built: Built | None) -> Iterator[str]:
    size = resolved.block_size
    if built is None or size is None:
        return
    for name in built.backends:
        if name in BACKENDS and not BACKENDS[name].accepts(size):
            yield f"the planner takes blocks of {size} tokens, but the kernels of {name} do not"


def _unread_amd(resolved: Resolved, rules: Rules, version: str) -> str | None:
    if resolved.device.vendor != "amd":
        return None
    if resolved.device.target not in rocm.AITER_TARGETS:
        return "AMD GPUs other than gfx942 and gfx950: the rules were read, not asked of an engine"
    if rules.rocm_asked:
        return None
    return f"AMD GPUs: the rules of vLLM {version} were read, not asked of an engine"


def _without_flashinfer(resolved: Resolved, rules: Rules) -> str | None:
    older = resolved.flashinfer and not rules.flashinfer_first
    if resolved.device.major != 10 or resolved.attention_backend is not None or not older:
        return None
    return (
        "Blackwell: without FlashInfer; an installation that has it takes FLASHINFER (blocks of 16) or"
        " FLASHINFER_MLA (blocks of 32): --attention-backend"
    )


def _plugin(model: Model, settings: Layout, rules: Rules, version: str) -> str | None:
    if PLUGIN[0] not in (settings.quantization, model.quantization) or not rules.bitsandbytes_plugin:
        return None
    return f"bitsandbytes: vLLM {version} has it with the package {PLUGIN[1]} alone"


def _without_kernels(resolved: Resolved, rules: Rules, version: str) -> str | None:
    device = resolved.device
    if device.vendor != "nvidia" or device.capability >= KERNELS_FROM or not rules.cuda_13:
        return None
    return (
        f"the wheels and images of vLLM {version} have no kernels for compute capability"
        f" {device.major}.{device.capability[1]}: it takes a build of CUDA 12, or vllm@0.19"
    )


def _slower_kernels(model: Model, settings: Layout, resolved: Resolved, version: str) -> str | None:
    if not (settings.quantization or model.quantization):
        return None
    return divided_blocks.slower_kernels(model, settings, resolved, version)


def _unnamed_draft(settings: Layout, resolved: Resolved) -> str | None:
    method, named = settings.speculative_method, settings.speculative_model is not None
    if not resolved.spec_tokens or named or method not in OWN_DRAFTERS:
        return None
    if method == "dspark" and resolved.draft_layers:
        return None
    taken = "is taken to be one like the model's" if method in HEAD_METHODS else "is not counted"
    if method == "dflash":
        taken = "is taken to be that of five layers without windows"
    return f"{method}: the cache of the draft {taken}: name it with --speculative-model"


def _shortened(model: Model, settings: Layout, resolved: Resolved, version: str) -> str | None:
    own, asked = resolved.lengths.max_model_len, lengths_of(model, settings, rules_of(version)).max_model_len
    if own >= asked:
        return None
    bounded = f"max_model_len is {own:,}, the draft's, not {asked:,}"
    return f"{bounded}: vLLM {version} runs no longer requests beside it"


def _check_pool(model: Model, resolved: Resolved, version: str) -> None:
    """Raises KvplanError(unknown-rule): caches outside the paged pool of the V1 engine before 0.10
    (v1/worker/gpu_model_runner.py, get_kv_cache_spec; engine/arg_utils.py, _is_v1_supported_oracle)."""
    rules = rules_of(version)
    outside = (
        (resolved.hybrid or resolved.state_only, "kept state-space layers outside the paged pool"),
        (has_kind(model, Kind.CROSS), "served cross attention with its first engine"),
        (resolved.pp > 1 and not rules.hybrid_groups, "served pipeline stages with its first engine"),
    )
    for is_so, what in () if rules.mamba_blocks else outside:
        if is_so:
            raise KvplanError(
                "unknown-rule",
                f"vLLM {version} {what}; that layout is not known",
                help="use vllm@0.10 or newer",
            )
