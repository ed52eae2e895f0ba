"""vLLM: block tables, groups and pages as its V1 planner lays them out (rules of 0.8 to 0.33).

Held to the block against vllm-project/vllm 0.32.0's own planner. What is assumed of the installation stands
in `kvplan.engines.vllm.backends`. The answer's groups are those of the first pipeline stage, which vLLM's
scheduler works with; bytes are those of the fullest stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    answer_of,
    doubt,
    encoder_length,
    has_kind,
    is_assumed,
    layer_answers,
    parse_version,
)
from kvplan.engines.budget.sharing import Taken
from kvplan.engines.options import EngineOption
from kvplan.engines.vllm.architectures import as_run
from kvplan.engines.vllm.backend_table import BACKENDS
from kvplan.engines.vllm.backends import NoBackendError
from kvplan.engines.vllm.defaults import device_of, lengths_of
from kvplan.engines.vllm.grouping import CannotGroupError
from kvplan.engines.vllm.layers import Built, build
from kvplan.engines.vllm.options import OPTIONS, VllmOptions
from kvplan.engines.vllm.plan import Plan, make_plan
from kvplan.engines.vllm.refusals import refusal_of
from kvplan.engines.vllm.resolve import Resolved, resolve
from kvplan.engines.vllm.running import (
    burst_blocks,
    held_blocks,
    max_running,
    prompt_blocks,
    running_blocks,
    taken_of_blocks,
)
from kvplan.engines.vllm.served import Served
from kvplan.engines.vllm.versions import NOT_ASKED, VERSIONS, rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import (
    EngineRef,
    LayerTerms,
    ModelRef,
    PerGpu,
    Pool,
    Refusal,
    Request,
    SizeResult,
    Total,
)
from kvplan.settings import HEAD_METHODS, Key, Layout, Settings, further_ranks

if TYPE_CHECKING:
    from kvplan.engines.vllm import divided_blocks, rocm, state_graphs, trials
    from kvplan.engines.vllm import expert_kernels as kernels
    from kvplan.weights.formats import Kernel
else:
    divided_blocks, kernels, rocm, state_graphs, trials = later(
        "kvplan.engines.vllm", "divided_blocks expert_kernels rocm state_graphs trials"
    )

# Methods whose drafter is a checkpoint of its own.
OWN_DRAFTERS = ("eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash", "dspark")
PLUGIN = ("bitsandbytes", (0, 28), "vllm-bnb-plugin")
"""A method of quantisation, the release that moved it out, and where to (vllm-project/vllm#43529)."""
NEWER_CUDA, KERNELS_FROM = (0, 20), (7, 5)
"""Since when wheels and images are built by CUDA 13, and the oldest GPUs that it compiles for
(vllm-project/vllm#39878)."""
_PLANNED = Key(Layout)
planned_values = _PLANNED.values


@record()
class Compiled:
    """Everything about (model, settings, version) that does not depend on the request."""

    model: ModelRef
    engine: EngineRef
    plan: Plan | None
    refusal: Refusal | None
    settings: Mapping[str, Any]
    layers: tuple[LayerTerms, ...]
    warnings: tuple[str, ...]
    max_model_len: int
    ranks: int


class Vllm:
    """Engine ``vllm``."""

    name: str = "vllm"
    versions: tuple[str, ...] = VERSIONS
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Blocks of one request on the fullest GPU; with kv_cache_memory, the pool and its capacity.

        A request holds the blocks that vLLM's scheduler leaves it with; its planner reserves blocks for a
        request's length in every group (cross attention: for its own encoder tokens).
        """
        compiled, request, refusal, warning = _asked(model, settings, version)
        plan = compiled.plan
        warnings: tuple[str | None, ...] = (warning,)
        pool = None
        if plan is None:
            held = NOTHING_HELD
        else:
            per_gpu, total, blocks = _request_bytes(plan, compiled.ranks, request)
            if settings.kv_cache_memory is not None and refusal is None and plan.groups:
                refusal = _memory_refusal(plan, settings)
                if refusal is None:
                    pool = _pool(plan, settings, blocks, request)
                    graphs = None
                    if any(group.state for group in plan.groups):
                        graphs = state_graphs.too_few_states(model, settings, version, plan, pool.num_blocks)
                    if graphs is not None and settings.starts:
                        pool, refusal = None, graphs
                    elif graphs is not None and settings.gpu is not None:
                        warnings += (f"vLLM would stop: {graphs.message}; {graphs.help[0]}",)
            held = per_gpu, total
        return answer_of(compiled, request, held, pool, refusal, warnings=warnings)

    def taken(self, model: Model, settings: Settings, version: str) -> Taken | None:
        """`kvplan.engines.budget.sharing.taken_of` of `size` without what else it counts.

        Of one shape of a mix nobody asks how many run alone.
        """
        compiled, request, refusal, _ = _asked(model, settings, version)
        plan, memory = compiled.plan, settings.kv_cache_memory
        if plan is None or memory is None or refusal is not None or not plan.groups:
            return None
        if _memory_refusal(plan, settings) is not None:
            return None
        return taken_of_blocks(
            plan, plan.num_blocks(memory, settings.num_gpu_blocks_override) - 1, shape_of(request)
        )

    def least_bytes(self, model: Model, settings: Settings, version: str) -> int | None:
        """Bytes of the fullest GPU's blocks in which all requests run at once, however many sequences the
        engine was told to run; None where it refuses the model."""
        compiled, request, _, _ = _asked(model, settings, version)
        plan = compiled.plan
        if plan is None or not plan.groups:
            return None
        return burst_blocks(plan, request.count, *shape_of(request)) * plan.widest

    def trials(self, model: Model, settings: Settings) -> Iterator[list[tuple[str, Settings]]]:
        """Changes that make room, from the least to the most of each kind."""
        yield list(trials.smaller_runs(settings))


def _asked(
    model: Model, settings: Settings, version: str
) -> tuple[Compiled, Request, Refusal | None, str | None]:
    """(what does not depend on the request, the request, why it is not served, a warning)."""
    model = as_run(model, version)
    compiled = _compile(model, version, planned_values(settings))
    tokens = settings.tokens if settings.tokens is not None else compiled.max_model_len
    encoder_tokens, warning = encoder_length(model, settings, tokens)
    request = Request(tokens, encoder_tokens, settings.requests, answer_length(settings, tokens))
    refusal = compiled.refusal
    if refusal is None and further_ranks(settings) > 1:
        from kvplan.engines.vllm.prefill_context import wants_eager

        refusal = wants_eager(model, settings)
    if refusal is None and tokens > compiled.max_model_len:
        refusal = Refusal(
            "request-too-long",
            f"a request of {tokens:,} tokens is longer than max_model_len {compiled.max_model_len:,}",
            help=(f"--tokens {compiled.max_model_len}", f"--max-model-len {tokens}"),
        )
    return compiled, request, refusal, warning


def shape_of(request: Request) -> tuple[int, int, int]:
    """(prompt, answer, encoder tokens)."""
    return request.tokens - request.answer_tokens, request.answer_tokens, request.encoder_tokens


def _request_bytes(plan: Plan, ranks: int, request: Request) -> tuple[PerGpu, Total, int]:
    held = plan.held(request.tokens, request.encoder_tokens)
    settled, admitted, fixed = held_blocks(plan, *shape_of(request))
    # Prompts are read one after another: all but one of the requests have settled.
    together = settled * request.count + max(0, admitted - settled)
    widest, replica = plan.widest, plan.replica_bytes * ranks
    per_gpu = PerGpu(
        settled * widest,
        together * widest,
        together * widest,
        plan.growth(request.tokens),
        fixed * widest,
        max(settled, admitted) * widest,
        held * widest,
    )
    return per_gpu, Total(settled * replica, together * replica), held


def _pool(plan: Plan, settings: Settings, held: int, request: Request) -> Pool:
    memory = settings.kv_cache_memory
    assert memory is not None
    num_blocks = plan.num_blocks(memory, settings.num_gpu_blocks_override)
    kv_tokens, concurrency = plan.printed(num_blocks)
    # Block 0 is never handed out, whatever the start-up check of the release counts with.
    fitting = (num_blocks - 1) // held if held else plan.max_num_seqs
    shape = shape_of(request)
    return Pool(
        memory,
        plan.widest,
        num_blocks,
        plan.pool_groups,
        kv_tokens,
        concurrency,
        min(fitting, plan.max_num_seqs),
        fitting,
        plan.max_num_seqs,
        max_running(plan, num_blocks - 1, *shape),
        running_blocks(plan, num_blocks - 1, *shape),
        prompt_blocks(plan, *shape),
    )


def _memory_refusal(plan: Plan, settings: Settings) -> Refusal | None:
    """One request of max_model_len must fit into the usable blocks."""
    memory, override = settings.kv_cache_memory, settings.num_gpu_blocks_override
    assert memory is not None
    needed, usable = plan.reserved(plan.max_model_len), plan.usable(memory, override)
    if needed <= usable:
        return None
    largest = plan.largest_length(memory, override)
    return Refusal(
        "not-enough-memory",
        f"one request of max_model_len {plan.max_model_len:,} needs {needed:,} blocks;"
        f" {max(usable, 0):,} can be used",
        largest_max_model_len=largest or None,
        help=(f"--max-model-len {largest}",) if largest else (),
    )


def expert_kernels(model: Model, settings: Settings, version: str) -> tuple[Kernel, ...]:
    """The kernels that may keep experts stored in blocks, the likely one first (`kvplan.weights.formats`)."""
    if not (model.quantization or settings.quantization):
        return ()
    device, own = device_of(settings.gpu), VllmOptions.of(settings)
    return kernels.kernels_of(
        model.model_type,
        vendor=device.vendor,
        capability=device.capability,
        release=parse_version(version),
        adapters=own.enable_lora,
        backend=own.moe_backend,
    )


def compiled(model: Model, version: str, settings: Layout) -> Compiled:
    """What the engine works out at start, whatever is asked of it later. Raises KvplanError."""
    return _compile(as_run(model, version), version, planned_values(settings))


@lru_cache(maxsize=256)
def _compile(model: Model, version: str, values: tuple[Any, ...]) -> Compiled:
    settings = _PLANNED.settings(values)
    rules = rules_of(version)
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
    return Compiled(
        ModelRef(model.id, model.source),
        EngineRef("vllm", version),
        plan,
        refusal,
        MappingProxyType(_shown(resolved, built, settings)),
        layer_answers(
            model, lambda part: served.store(built.kv if built else resolved.kv), settings.speculative_model
        ),
        _warnings(model, settings, resolved, built, version),
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
        from kvplan.engines.vllm.adapters import shown_options

        shown.update(shown_options(settings))
    return shown


def _warnings(
    model: Model, settings: Layout, resolved: Resolved, built: Built | None, version: str
) -> tuple[str, ...]:
    found = list(model.warnings)
    if ".".join(version.split(".")[:2]) in NOT_ASKED:
        found.append(f"the rules of vLLM {version} were read, not checked against its own planner")
    size = resolved.block_size
    if built is not None and size is not None:
        found += [
            f"the planner takes blocks of {size} tokens, but the kernels of {name} do not"
            for name in built.backends
            if name in BACKENDS and not BACKENDS[name].accepts(size)
        ]
    if resolved.device.vendor == "amd":
        if resolved.device.target not in rocm.AITER_TARGETS:
            found.append("AMD GPUs other than gfx942 and gfx950: the rules were read, not asked of an engine")
        elif parse_version(version)[:2] < (0, 20):
            found.append(f"AMD GPUs: the rules of vLLM {version} were read, not asked of an engine")
    older = resolved.flashinfer and not rules_of(version).flashinfer_first
    if resolved.device.major == 10 and resolved.attention_backend is None and older:
        found.append(
            "Blackwell: without FlashInfer; an installation that has it takes FLASHINFER (blocks of 16) or"
            " FLASHINFER_MLA (blocks of 32): --attention-backend"
        )
    if PLUGIN[0] in (settings.quantization, model.quantization) and parse_version(version)[:2] >= PLUGIN[1]:
        found.append(f"bitsandbytes: vLLM {version} has it with the package {PLUGIN[2]} alone")
    if is_assumed(model, settings):
        found += doubt(divided_blocks.divided_refusal(model, settings, resolved, version))
    device = resolved.device
    old = device.vendor == "nvidia" and device.capability < KERNELS_FROM
    if old and parse_version(version)[:2] >= NEWER_CUDA:
        found.append(
            f"the wheels and images of vLLM {version} have no kernels for compute capability"
            f" {device.major}.{device.capability[1]}: it takes a build of CUDA 12, or vllm@0.19"
        )
    unnamed = settings.speculative_model is None
    if resolved.spec_tokens and unnamed and settings.speculative_method in OWN_DRAFTERS:
        method = settings.speculative_method
        taken = "is taken to be one like the model's" if method in HEAD_METHODS else "is not counted"
        if method == "dflash":
            taken = "is taken to be that of five layers without windows"
        found.append(f"{method}: the cache of the draft {taken}: name it with --speculative-model")
    asked = lengths_of(model, settings, rules_of(version)).max_model_len
    if resolved.lengths.max_model_len < asked:
        found.append(
            f"max_model_len is {resolved.lengths.max_model_len:,}, the draft's, not {asked:,}: vLLM"
            f" {version} runs no longer requests beside it"
        )
    outside = _outside_the_pool(model, resolved, version)
    if outside is not None:
        raise KvplanError(
            "unknown-rule",
            f"vLLM {version} {outside}; that layout is not known",
            help="use vllm@0.10 or newer",
        )
    return tuple(found)


def _outside_the_pool(model: Model, resolved: Resolved, version: str) -> str | None:
    """What the paged pool of the V1 engine did not have before 0.10 (v1/worker/gpu_model_runner.py,
    get_kv_cache_spec; engine/arg_utils.py, _is_v1_supported_oracle)."""
    if rules_of(version).mamba_blocks:
        return None
    if resolved.hybrid or resolved.state_only:
        return "kept state-space layers outside the paged pool"
    if has_kind(model, Kind.CROSS):
        return "served cross attention with its first engine"
    if resolved.pp > 1 and not rules_of(version).hybrid_groups:
        return "served pipeline stages with its first engine"
    return None
