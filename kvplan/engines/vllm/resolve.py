"""Every setting that influences the cache, resolved as ``vllm serve`` would: one value object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.dtypes import KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.vllm.architectures import is_pooling, mamba_mode, sees_whole_items
from kvplan.engines.vllm.defaults import Batch, Device, Lengths, batch_of, device_of, lengths_of, model_dtype
from kvplan.engines.vllm.draft_layers import AHEAD, beyond, draft_layers_of, retained
from kvplan.engines.vllm.dtypes import asked_word, cache_word, state_dtype
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.settings import EAGLE_LIKE, Layout

if TYPE_CHECKING:
    from kvplan.engines.vllm import draft_stages, multimodal, whole_items
else:
    draft_stages, whole_items = later("kvplan.engines.vllm", "draft_stages whole_items")
    multimodal = later("kvplan.engines.vllm", "multimodal")


@record()
class Resolved:
    """What the planner works with. kv: the cache dtype's word in force; kv_format: how it stores."""

    device: Device
    dtype: Packing
    kv: str
    kv_format: KvDtype
    conv_dtype: Packing
    ssm_dtype: Packing | None
    lengths: Lengths
    batch: Batch
    in_flight: int
    async_scheduling: bool
    prefix_caching: bool
    mamba_mode: str
    hybrid: bool
    state_only: bool
    pooling: bool
    disable_hybrid: bool
    spec_tokens: int
    draft_layers: tuple[Layer, ...]
    retained: int
    tp: int
    pp: int
    dcp: int
    block_size: int | None
    attention_backend: str | None
    mm_prefix: bool
    chunked: bool = True
    lookahead: int = 0
    draft_slots: int = 0
    drops: bool = False
    index_kv: str = "auto"
    three_axes: bool = True
    flashinfer: bool = True
    stage_numbered: bool = False
    draft_kv: str = "auto"
    draft_restarts: bool = False


def resolve(model: Model, settings: Layout, rules: Rules) -> Resolved:
    """Defaults and model rules applied. Raises KvplanError for words that no release knows."""
    device = device_of(settings.gpu)
    pooling = is_pooling(model, settings)
    dtype = model_dtype(model, settings, device, pooling=pooling)
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    attends = bool(kinds - {Kind.STATE, Kind.NONE})
    hybrid, state_only = Kind.STATE in kinds and attends, Kind.STATE in kinds and not attends
    encoder_decoder = model.encoder is not None and Kind.CROSS in kinds
    draft = settings.num_speculative_tokens if settings.speculative_method else 0
    by_default = not (state_only or encoder_decoder) and (rules.hybrid_caching or not hybrid)
    caching = by_default if settings.enable_prefix_caching is None else settings.enable_prefix_caching
    lengths = lengths_of(model, settings, rules)
    prefix = sees_whole_items(model, rules)
    prefix = prefix and not (rules.prefix_for_items and multimodal.text_only(model, settings))
    batch = batch_of(
        settings,
        device,
        rules,
        lengths.max_model_len,
        chunked_prefill=not encoder_decoder,
        floor=whole_items.floor_of(model, settings) if prefix and rules.items_raise_batch else 0,
    )
    kv = cache_word(model, settings, device, rules)
    asynchronous = not pooling and (
        not draft
        or settings.speculative_method in AHEAD
        or (rules.lookups_async and runner_of(model, settings, rules.runners) == V2)
    )
    if settings.async_scheduling is not None:
        asynchronous = settings.async_scheduling
    lookahead, slots = beyond(settings.speculative_method, draft)
    conv = dtype if settings.mamba_cache_dtype == "auto" else scalar(settings.mamba_cache_dtype)
    return Resolved(
        device=device,
        dtype=dtype,
        kv=kv,
        kv_format=kv_dtype(dtype.name if kv == "auto" else kv),
        conv_dtype=conv,
        ssm_dtype=state_dtype(model, settings, rules),
        lengths=lengths
        if settings.speculative_model is None
        else draft_stages.bounded(lengths, model, settings, rules),
        batch=batch,
        in_flight=batch.tokens * _batches_at_once(model, settings, rules, asynchronous=asynchronous),
        async_scheduling=asynchronous,
        prefix_caching=caching,
        mamba_mode=mamba_mode(model, rules, draft) if caching and (hybrid or state_only) else "none",
        hybrid=hybrid,
        state_only=state_only,
        pooling=pooling,
        disable_hybrid=_hybrid_disabled(model, settings, rules, kinds),
        spec_tokens=draft,
        draft_layers=draft_layers_of(model, settings, windowed=rules.dflash_windows),
        retained=retained(model, settings),
        tp=settings.tensor_parallel_size,
        pp=settings.pipeline_parallel_size,
        dcp=settings.decode_context_parallel_size,
        block_size=settings.block_size,
        attention_backend=settings.attention_backend,
        mm_prefix=prefix,
        chunked=not encoder_decoder,
        lookahead=lookahead,
        draft_slots=slots,
        drops=bool(draft) and settings.speculative_method in EAGLE_LIKE,
        three_axes=not VllmOptions.of(settings).language_model_only
        and not (model.architecture or "").endswith("ForCausalLM"),
        index_kv=VllmOptions.of(settings).indexer_kv_dtype or "auto",
        draft_kv=kv if kv != "auto" or settings.speculative_model is None else asked_word(settings),
        draft_restarts=settings.speculative_method == "draft_model",
        stage_numbered=settings.speculative_method == "eagle" and model.encoder is None,
        flashinfer=VllmOptions.of(settings).flashinfer != "absent",
    )


def _batches_at_once(model: Model, settings: Layout, rules: Rules, *, asynchronous: bool) -> int:
    """Batches that are scheduled and not settled (vllm/config/vllm.py, max_concurrent_batches): one of every
    pipeline stage, and with asynchronous scheduling one more, under the V1 runner only without a pipeline."""
    if not rules.in_flight_batches:
        return 1
    stages = settings.pipeline_parallel_size
    if not asynchronous:
        return stages
    second = runner_of(model, settings, rules.runners) == V2
    return stages + 1 if second or stages == 1 else stages


def _hybrid_disabled(model: Model, settings: Layout, rules: Rules, kinds: set[Kind]) -> bool:
    """As asked; also for chunks beside an EAGLE-like draft, and before hybrid groups existed."""
    drafted = settings.speculative_method in EAGLE_LIKE and settings.num_speculative_tokens > 0
    return (
        settings.disable_hybrid_kv_cache_manager
        or not rules.hybrid_groups
        or (Kind.CHUNKED in kinds and (drafted or not rules.mamba_blocks))
    )
