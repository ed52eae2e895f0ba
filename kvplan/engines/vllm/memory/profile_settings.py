"""The settings of vLLM's profile run, resolved for one model, GPU and release."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.architectures.config.activation_shape import Shape
from kvplan.architectures.weights import sources_of
from kvplan.engines.base import Version, has_kind, parse_version
from kvplan.engines.vllm.backends.table import DEFAULT_BLOCK_SIZE
from kvplan.engines.vllm.compiled import compiled
from kvplan.engines.vllm.encoder_profile.multimodal import encoder_run, text_only
from kvplan.engines.vllm.memory.attention_buffers import AttentionBuffers, buffers_of
from kvplan.engines.vllm.memory.cold_compile import spared
from kvplan.engines.vllm.memory.cuda_graphs import FULL, FULL_AND_PIECEWISE, NONE, PIECEWISE
from kvplan.engines.vllm.memory.decoders import passes_of
from kvplan.engines.vllm.memory.expert_workspaces import COMPRESSED, CUTLASS, ExpertRun, expert_run
from kvplan.engines.vllm.memory.profile_peak import flashinfer_samples
from kvplan.engines.vllm.memory.profile_run import Load, Reserved
from kvplan.engines.vllm.options import EXPANDABLE, INTERACTIVITY, VllmOptions
from kvplan.engines.vllm.start.architectures import is_pooling, keeps_latent
from kvplan.engines.vllm.start.draft_layers import AT_ONCE, ONE_STEP
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import replace
from kvplan.settings import EAGLE_LIKE, Serving
from kvplan.weights.inventory import expert_forms
from kvplan.weights.ranks import Parallel

if TYPE_CHECKING:
    from kvplan.architectures import heads as borrowing
    from kvplan.engines.vllm.memory import compressed_pass
    from kvplan.engines.vllm.start import connectors
    from kvplan.weights import formats
else:
    connectors = later("kvplan.engines.vllm.start", "connectors")
    borrowing = later("kvplan.architectures", "heads")
    compressed_pass = later("kvplan.engines.vllm.memory", "compressed_pass")
    formats = later("kvplan.weights", "formats")


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
    gpu, own = settings.gpu, VllmOptions.of(settings)
    release, capability = parse_version(version), None if gpu is None else gpu.compute_capability
    stored, element = settings.quantization or model.quantization, shape.element_bytes
    kept = buffers_of(model, settings, version) if buffers is None else buffers
    compressed = has_kind(model, Kind.COMPRESSED)
    second = runner_of(model, settings, version) == V2
    encoder = encoder_run(
        model, settings, version, seqs=seqs, tokens=tokens, length=length, element=element, v2=second
    )
    dp = settings.data_parallel_size if shape.experts_per_token else 1
    load = Load(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        gpu_memory_utilization=utilization(settings, version),
        max_model_len=length,
        block_size=settings.block_size or DEFAULT_BLOCK_SIZE,
        enforce_eager=settings.enforce_eager,
        enable_expert_parallel=settings.enable_expert_parallel,
        data_parallel_size=dp,
        largest_graph=own.max_cudagraph_capture_size or 0,
        cudagraph_mode=graph_mode(model, settings, version),
        graph_sizes=own.cudagraph_capture_sizes,
        fine_graphs=own.performance_mode == INTERACTIVITY and rules_of(version).performance_modes,
        graphs_estimated=own.estimate_cudagraphs,
        compile_cache=own.compile_cache,
        capability=capability,
        multiprocessors=None if gpu is None else gpu.multiprocessors,
        passes=_passes(model, settings, release, seqs, length, element, kept.latent_block),
        indexer=_reserved(model, release, tokens, length),
        model_type=model.model_type,
        encoder=encoder,
        encoder_known=encoder is None or encoder.known,
        takes_tokens=not shape.is_multimodal or text_only(model, settings),
        has_states=has_kind(model, Kind.STATE),
        eight_bits=stored in _EIGHT_BITS,
        packed=stored in _PACKED,
        latent=compressed or keeps_latent(model),
        indexed=compressed or (keeps_latent(model) and has_kind(model, Kind.INDEXER)),
        flashinfer=kept.flashinfer,
        split_bytes=kept.split_bytes,
        samples=not is_pooling(model, settings),
        fused_sampler=own.flashinfer == "installed" and flashinfer_samples(gpu),
        pages=own.pytorch_alloc_conf == EXPANDABLE,
        spared=spared(capability, release),
        experts=_experts(model, settings, release, dp),
    )
    return _with_drafts(load, settings, second=second)


def _with_drafts(load: Load, settings: Serving, *, second: bool) -> Load:
    """The load with drafts of each request. second: under the V2 runner."""
    method, drafts = settings.speculative_method, settings.num_speculative_tokens
    if method is None or not drafts:
        return load
    return replace(
        load,
        drafts=drafts,
        reads_hidden=method in EAGLE_LIKE,
        predicts=method == "mtp",
        own_head=method == "eagle3",
        drafts_at_once=method in AT_ONCE,
        draft_rows=drafts + ONE_STEP.get(method, 0) if second and method in AT_ONCE else 0,
        states_read=borrowing.states_read(settings.speculative_model, method),
    )


def _passes(
    model: Model, settings: Serving, release: Version, seqs: int, length: int, element: int, block: int
) -> tuple[tuple[int, int], ...]:
    """`Load.passes`. block: tokens of a block of latents."""
    parallel, method = divided_among(settings), settings.speculative_method
    found = passes_of(
        model, parallel, length=length, seqs=seqs, element=element, block=block, release=release
    )
    if found or not has_kind(model, Kind.COMPRESSED):
        return found
    return compressed_pass.compressed_passes(
        model,
        ranks=settings.tensor_parallel_size,
        capability=None if settings.gpu is None else settings.gpu.compute_capability,
        release=release,
        element=element,
        read=bool(settings.num_speculative_tokens) and method in EAGLE_LIKE and method != "mtp",
    )


def _reserved(model: Model, release: Version, tokens: int, length: int) -> Reserved:
    if not rules_of(release).sparse_reserves or not has_kind(model, Kind.INDEXER, Kind.COMPRESSED):
        return Reserved()
    return compressed_pass.reserved(model, length, tokens, release)


def _experts(model: Model, settings: Serving, release: Version, dp: int) -> ExpertRun:
    stored, backend = settings.quantization or model.quantization, VllmOptions.of(settings).moe_backend
    return expert_run(
        stored,
        release,
        None if settings.gpu is None else settings.gpu.compute_capability,
        dp=dp,
        expert_parallel=settings.enable_expert_parallel,
        backend=backend,
        nvfp4=backend == CUTLASS and _expert_forms(model) <= {None, formats.NVFP4},
        integers=stored == COMPRESSED and _integers(_expert_forms(model)),
    )


def _expert_forms(model: Model) -> frozenset[formats.Format | None]:
    """How routed experts are stored; as trained where the weights' bytes are stated."""
    inventory = sources_of(model).inventory
    return frozenset() if inventory is None else expert_forms(inventory)


def _integers(forms: frozenset[formats.Format | None]) -> bool:
    return any(form is not None and form.name.startswith("int") for form in forms)


def divided_among(settings: Serving) -> Parallel:
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
_PACKED = frozenset({"auto-round", "awq", "awq_marlin", "gptq", "gptq_marlin"})


def utilization(settings: Serving, version: str) -> Fraction:
    """gpu_memory_utilization as given, else the release\'s default."""
    given = settings.gpu_memory_utilization
    return Fraction(rules_of(version).default_utilization_percent, 100) if given is None else given


_ALWAYS = frozenset({"TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN"})
_THIRD = "FLASH_ATTN"  # in its version 3, which is Hopper's
_HOPPER = (9, 0)


def graph_mode(model: Model, settings: Serving, version: str) -> str:
    """The mode in force: as asked, or what it falls back to (vllm-project/vllm vllm/config/compilation.py,
    resolve_cudagraph_mode_and_sizes, 0.20 to 0.33). Models that pool have no full graphs
    (vllm/config/vllm.py, pooler_config), nor has a connector that moves the cache layer by layer."""
    asked = VllmOptions.of(settings).cudagraph_mode or FULL_AND_PIECEWISE
    layerwise = bool(settings.own) and connectors.layer_by_layer(settings, rules_of(version))
    pieces = is_pooling(model, settings) or layerwise
    if asked != NONE and pieces:
        return PIECEWISE
    if asked != FULL or takes_any_batch(model, settings, version):
        return asked
    return FULL_AND_PIECEWISE


def takes_any_batch(model: Model, settings: Serving, version: str) -> bool:
    """Whether the kernels of every layer take any batch in a full graph: those whose metadata builder says
    AttentionCGSupport.ALWAYS (vllm/v1/attention/backends/). Recurrent states say UNIFORM_BATCH or less."""
    if has_kind(model, Kind.STATE):
        return False
    try:
        served = set(str(compiled(model, version, settings).settings.get("attention_backend", "")).split("+"))
    except KvplanError:
        return False
    hopper = settings.gpu is not None and settings.gpu.compute_capability == _HOPPER
    return served <= (_ALWAYS | {_THIRD} if hopper else _ALWAYS)
