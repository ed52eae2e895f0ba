"""SGLang's server arguments, resolved: dtype of the cache, attention backend, page size, slots of a state.

sgl-project/sglang 0.5.23 arg_groups/overrides.py, arg_groups/model_override_base.py
(get_default_attn_backend), arg_groups/kv_cache_hook.py, arg_groups/model_overrides/*.py,
mem_cache/kv_cache_dtype.py.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.dtypes import KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.base import has_kind
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.backends import (
    NGRAM,
    backend_of,
    decode_backend_of,
    is_large_hopper_vl,
    named_backend,
    overridden_page,
    page_size_of,
)
from kvplan.engines.sglang.start.devices import Device, device_of
from kvplan.engines.sglang.start.dtypes import (
    cache_dtype,
    check_format,
    check_fp4,
    hears_scheme,
    index_dtype,
    is_sparse_latent,
    latent_dtype,
    model_dtype,
    nvfp4_backends,
)
from kvplan.engines.sglang.start.memory_defaults import MAX_PREFILL_TOKENS, capacity_for, graph_max_batch
from kvplan.engines.sglang.start.models import (
    class_of,
    had_window_pool,
    has_window_pool,
    hears_pool_flag,
    known_of,
    prefills_whole,
    uses_state_radix,
)
from kvplan.engines.sglang.start.state_slots import (
    charges_draft,
    draft_windows,
    slots_of_request,
    speculation,
    strategy_of,
)
from kvplan.engines.sglang.versions import VERSIONS, Rules, has_buffers, rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import KeptHash, record
from kvplan.settings import Serving

_BFLOAT16 = (8, 0)
"""Older GPUs compute in float16 (sgl-project/sglang model_executor/model_runner.py, load_model)."""

SPECULATIVE_REQUESTS = 48
"""max_running_requests under speculative decoding where it is not given (arg_groups/speculative_hook.py)."""
COMPRESSED_REQUESTS = 256
"""DeepSeek-V4's, set before speculation's (arg_groups/deepseek_v4_hook.py, apply_deepseek_v4_defaults)."""


@record()
class Arguments(KeptHash):
    """Everything that decides the pools."""

    device: Device
    dtype: Packing
    kv: KvDtype
    latent: KvDtype
    index: KvDtype
    backend: str
    decode_backend: str
    page_size: int
    tp: int
    pp: int
    attn_tp: int
    """ranks that share a request's heads"""
    state_tp: int
    """ranks that share a state"""
    attn_dp: int
    """groups of them"""
    dcp: int
    ep: int
    """ranks among which whole experts are divided"""
    moe_a2a_backend: str
    context_len: int
    chunked_prefill_size: int
    """as given or by the GPU, before attention groups divide it"""
    whole_prefill: bool
    """prompts are not divided (the class cannot), which is resolved after the memory fraction"""
    graph_max_batch: int
    window_pool: bool
    swa_ratio: Fraction
    radix: bool
    """prompts are reused"""
    overlap: bool
    strategy: str
    slots_per_request: int
    state_ratio: Fraction
    padding_slot: int
    max_slots: int | None
    max_total_tokens: int | None
    max_running_requests: int | None
    """as given or set by the class or by speculation"""
    given_requests: int | None
    """as given"""
    draft_tokens: int
    draft_layers: int
    draft_windows: int
    """window layers of the draft"""
    conv_dtype: Packing
    ssm_dtype: Packing | None
    mem_fraction_static: Fraction | None = None
    graphs: bool = True
    divided_slots: bool = True
    """before 0.5.7 attention groups divide the slots of gated delta nets alone"""
    standalone: bool = False
    """a draft model of its own"""
    looked_up: bool = False
    """drafts without a model"""
    given_context: int | None = None
    """--context-length"""
    max_prefill_tokens: int = 16_384
    told_groups: int = 1
    """attention groups as asked for, where the release makes others"""
    role: str = "null"
    """null, prefill or decode (--disaggregation-mode)"""
    two_batches: bool = False
    """--enable-two-batch-overlap"""
    tree: bool = False
    """a draft step keeps several candidates"""
    rules: Rules = rules_of(VERSIONS[-1])

    @property
    def rank_prefill_size(self) -> int:
        """chunked_prefill_size of one attention group (arg_groups/parallel_hook.py); -1: not divided."""
        return -1 if self.whole_prefill else self.chunked_prefill_size // self.attn_dp


def resolve_arguments(
    model: Model, settings: Serving, options: SglangOptions, context_len: int, version: str = VERSIONS[-1]
) -> Arguments:
    """Every argument with its value. Raises KvplanError(unsupported-dtype | unsupported-setting)."""
    rules, device = rules_of(version), device_of(settings.gpu)
    tp, dcp = settings.tensor_parallel_size, settings.decode_context_parallel_size
    told_groups = attn_dp = _attention_groups(settings, options)
    if rules.nsa and rules.sparse_groups and is_sparse_latent(model):
        attn_dp = tp  # dp_size = tp_size, whatever is asked (server_args.py 0.5.3 to 0.5.5)
    if (tp // attn_dp) % dcp:
        raise KvplanError(
            "bad-setting", f"{tp // attn_dp} attention ranks are no multiple of {dcp} (context parallel)"
        )
    ep, moe_a2a_backend = experts_of(settings, options)
    dtype = model_dtype(model, settings)
    if device.nvidia and device.capability < _BFLOAT16 and dtype.name == "bfloat16":
        dtype = scalar("float16")
    draft_tokens, draft_layers = speculation(model, settings, options)
    chunk = options.chunked_prefill_size
    if chunk is None:
        chunk = capacity_for(device.memory_mib, table=rules.memory).chunked_prefill_size
    kv = _cache_format(model, settings, device, dtype, version)
    backend, decode_backend = _backends(model, settings, options, device, kv, version)
    page_size = page_size_of(model, settings, device, backend, decode_backend)
    radix = _has_radix(model, options, rules)
    strategy, overlap, page_size = _states(
        model, settings, options, device, backend, page_size, version, radix=radix
    )
    check_fp4(model, kv, backend, decode_backend, device)
    return Arguments(
        device=device, dtype=dtype, kv=kv, latent=latent_dtype(model, kv, device, options),
        index=index_dtype(model, kv, device, backend, dtype), backend=backend, decode_backend=decode_backend,
        page_size=page_size, tp=tp, pp=settings.pipeline_parallel_size, attn_tp=tp // attn_dp,
        state_tp=tp if known_of(model).pure_state else tp // attn_dp, attn_dp=attn_dp, dcp=dcp, ep=ep,
        moe_a2a_backend=moe_a2a_backend, context_len=context_len, chunked_prefill_size=chunk,
        whole_prefill=prefills_whole(model),
        graph_max_batch=options.cuda_graph_max_bs or _graph_batch(model, settings, device, rules),
        window_pool=_pools_windows(model, options, version), swa_ratio=_window_ratio(model, options),
        radix=radix, overlap=overlap, strategy=strategy,
        slots_per_request=slots_of_request(strategy, rules, radix=radix, overlap=overlap),
        state_ratio=_state_ratio(options),
        padding_slot=int(options.mamba_padding_slot and rules.padding_slot),
        max_slots=options.max_mamba_cache_size, max_total_tokens=options.max_total_tokens,
        max_running_requests=_running_requests(model, settings, draft_tokens),
        given_requests=settings.max_num_seqs, draft_tokens=draft_tokens,
        draft_layers=draft_layers if charges_draft(model, settings, options, rules) else 0,
        graphs=not settings.enforce_eager, draft_windows=draft_windows(model, settings, options),
        conv_dtype=_scalar(settings.mamba_cache_dtype) or scalar("bfloat16"),
        ssm_dtype=_scalar(settings.mamba_ssm_cache_dtype), mem_fraction_static=_fraction(options),
        divided_slots=_has_delta_nets(model), standalone=settings.speculative_method == "draft_model",
        looked_up=settings.speculative_method == NGRAM, given_context=settings.max_model_len,
        max_prefill_tokens=options.max_prefill_tokens or MAX_PREFILL_TOKENS, told_groups=told_groups,
        role=options.disaggregation_mode, rules=rules, two_batches=options.enable_two_batch_overlap,
        tree=draft_tokens > 0 and (options.speculative_eagle_topk or 1) > 1,
    )  # fmt: skip


def _scalar(word: str) -> Packing | None:
    return None if word == "auto" else scalar(word)


def _running_requests(model: Model, settings: Serving, draft_tokens: int) -> int | None:
    """max_running_requests: as given, else what some models and every draft are started with."""
    if settings.max_num_seqs is not None:
        return settings.max_num_seqs
    if has_kind(model, Kind.COMPRESSED):
        return COMPRESSED_REQUESTS
    return SPECULATIVE_REQUESTS if draft_tokens else None


def _cache_format(model: Model, settings: Serving, device: Device, dtype: Packing, version: str) -> KvDtype:
    """The element type of the cache; the model's where the release does not hear the checkpoint's scheme."""
    rules = rules_of(version)
    kv = cache_dtype(model, settings, device, dtype)
    unsaid = settings.kv_cache_dtype == "auto" and not hears_scheme(model, rules)
    if unsaid and not is_sparse_latent(model) and not has_kind(model, Kind.COMPRESSED):
        kv = kv_dtype(dtype.name)
    check_format(kv, rules, version)
    return kv


def _backends(
    model: Model, settings: Serving, options: SglangOptions, device: Device, kv: KvDtype, version: str
) -> tuple[str, str]:
    """The attention backends of prompts and of answers."""
    rules, strategy = rules_of(version), options.mamba_radix_cache_strategy
    backend = backend_of(model, settings, device, kv, strategy=strategy, options=options, version=version)
    if kv.name == "nvfp4" and rules.nvfp4_pairs:
        return nvfp4_backends(device, named_backend(model, settings, device, kv, strategy, options))
    return backend, decode_backend_of(model, settings, device, backend) if rules.hopper_vl else backend


def _has_delta_nets(model: Model) -> bool:
    return any(part.family == "gated_delta_net" for run in model.runs for part in run.layer.parts)


def _has_radix(model: Model, options: SglangOptions, rules: Rules) -> bool:
    """Whether prompts are kept in the radix tree, of models with states by what the release can."""
    if options.disable_radix_cache or known_of(model).no_radix:
        return False
    if options.disaggregation_mode == "decode":
        return False  # pd_disaggregation_hook.py (handle_pd_disaggregation)
    if model.model_type == "kimi_linear" and not rules.kimi_radix:
        return False
    if not has_kind(model, Kind.STATE) or rules.mamba_radix:
        return True
    # model_runner.py 0.5.2 to 0.5.5 ("model detected, disable radix cache")
    return bool(rules.states_by_ratio) and _has_delta_nets(model)


def _states(
    model: Model, settings: Serving, options: SglangOptions, device: Device, backend: str, page_size: int,
    version: str, *, radix: bool,
) -> tuple[str, bool, int]:  # fmt: skip
    """(how states are kept for the radix tree, whether batches overlap, the page size that this leaves)."""
    rules, asked = rules_of(version), options.mamba_radix_cache_strategy
    paged = (overridden_page(model, settings, device, backend) or 1) > 1
    strategy, overlap = strategy_of(model, settings, options, radix=radix, paged=paged)
    if strategy == "extra_buffer" and asked == "auto" and not has_buffers(class_of(model), version):
        strategy, overlap = "no_buffer", False
    buffered = asked == "extra_buffer" and rules.drafts_or_states  # heard since 0.5.10
    if radix and uses_state_radix(model) and not rules.extra_buffer and not buffered:
        return "no_buffer", False, 1 if rules.state_pages else page_size
    return strategy, overlap, page_size


def _pools_windows(model: Model, options: SglangOptions, version: str) -> bool:
    name = class_of(model)
    if options.disable_hybrid_swa_memory and hears_pool_flag(name, version):
        return False
    return has_window_pool(model) if rules_of(version).window_pools else had_window_pool(name, version)


def _window_ratio(model: Model, options: SglangOptions) -> Fraction:
    """Tokens of the window pool for one of full attention."""
    if options.swa_full_tokens_ratio is not None:
        return Fraction(options.swa_full_tokens_ratio)
    if has_kind(model, Kind.COMPRESSED):
        return Fraction("0.1")
    return Fraction(known_of(model).window_ratio or "0.8")


def _state_ratio(options: SglangOptions) -> Fraction:
    asked = options.mamba_full_memory_ratio
    return Fraction("0.9") if asked is None else asked


def _attention_groups(settings: Serving, options: SglangOptions) -> int:
    """attn_dp_size, or data_parallel_size under the older --enable-dp-attention.

    Source: arg_groups/parallel_hook.py (handle_deprecated_dp_attention, handle_data_parallelism). Raises
    KvplanError(bad-setting).
    """
    tp, dp = settings.tensor_parallel_size, settings.data_parallel_size
    groups = options.attn_dp_size or 1
    if groups == 1:
        groups = dp if options.enable_dp_attention else 1
    elif dp > 1:
        raise KvplanError(
            "bad-setting",
            f"SGLang has no {dp} data-parallel replicas with {groups} attention groups each",
            help="leave data_parallel_size at 1: --attn-dp-size alone divides the attention",
        )
    if tp % groups:
        raise KvplanError(
            "bad-setting", f"tensor_parallel_size {tp} is no multiple of {groups} attention groups"
        )
    return groups


def experts_of(settings: Serving, options: SglangOptions) -> tuple[int, str]:
    """(ep_size, moe_a2a_backend): a backend spans all ranks (arg_groups/overrides.py, _a2a_ep_size).

    --enable-expert-parallel, which SGLang has not, stands for --ep-size of all ranks. Raises
    KvplanError(bad-setting).
    """
    tp = settings.tensor_parallel_size
    backend = options.moe_a2a_backend or "none"
    given = options.ep_size
    ep = given if given is not None else tp if settings.enable_expert_parallel else 1
    if backend != "none":
        ep = tp
    if tp % ep:
        raise KvplanError("bad-setting", f"ep_size {ep} does not divide tensor_parallel_size {tp}")
    dense = options.moe_dense_tp_size
    if dense not in (None, 1, tp):
        raise KvplanError(
            "bad-setting", f"moe_dense_tp_size is {dense}", help=f"SGLang takes 1 or tp_size ({tp})"
        )
    return ep, backend


def _fraction(options: SglangOptions) -> Fraction | None:
    given = options.mem_fraction_static
    if given is not None and not 0 < given < 1:
        raise KvplanError(
            "bad-setting", f"mem_fraction_static is {float(given):g}", help="it lies between 0 and 1"
        )
    return given


def _graph_batch(model: Model, settings: Serving, device: Device, rules: Rules) -> int:
    """The largest decode graph; Qwen3-VL on Hopper follows --max-running-requests up to 512
    (expand_multimodal_decode_graph_to_running_limit)."""
    given = settings.max_num_seqs if rules.graphs_bounded else None
    found = graph_max_batch(device.memory_mib, settings.tensor_parallel_size, given, table=rules.memory)
    if given is not None and found < given <= 512 and is_large_hopper_vl(model, device):
        return given
    return found
