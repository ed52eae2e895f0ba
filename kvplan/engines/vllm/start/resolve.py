"""Every setting that influences the cache, resolved as ``vllm serve`` would: one value object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.dtypes import KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.architectures import is_pooling, mamba_mode, sees_whole_items
from kvplan.engines.vllm.start.defaults import (
    Batch,
    Device,
    Lengths,
    batch_of,
    device_of,
    lengths_of,
    model_dtype,
)
from kvplan.engines.vllm.start.draft_layers import AHEAD, beyond, draft_layers_of, retained
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules
from kvplan.families import CompressedAttention, GatedDeltaNet, KimiDeltaAttention, Kind
from kvplan.later import later
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.settings import EAGLE_LIKE, Layout

if TYPE_CHECKING:
    from kvplan.engines.vllm.encoder_profile import multimodal, whole_items
    from kvplan.engines.vllm.start import connectors, draft_stages
else:
    connectors = later("kvplan.engines.vllm.start", "connectors")
    draft_stages = later("kvplan.engines.vllm.start", "draft_stages")
    whole_items = later("kvplan.engines.vllm.encoder_profile", "whole_items")
    multimodal = later("kvplan.engines.vllm.encoder_profile", "multimodal")


@record()
class Resolved:
    """The planner's inputs. kv: the cache dtype's word in force; kv_format: how it stores."""

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
    skip_layers: tuple[str, ...] = ()
    whole_prompts: bool = False
    """a step takes no part of one (--no-enable-chunked-prefill)"""
    connected: bool = False
    """a KV connector moves the cache"""


def resolve(model: Model, settings: Layout, rules: Rules) -> Resolved:
    """Defaults and model rules applied. Raises KvplanError for words that no release knows."""
    device, pooling = device_of(settings.gpu), is_pooling(model, settings)
    own = VllmOptions.of(settings)
    method, draft_model = settings.speculative_method, settings.speculative_model
    drafts = settings.num_speculative_tokens if method else 0
    dtype = model_dtype(model, settings, device, pooling=pooling)
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    states, attends = Kind.STATE in kinds, bool(kinds - {Kind.STATE, Kind.NONE})
    chunked = model.encoder is None or Kind.CROSS not in kinds
    caching = _caches_prefixes(settings, rules, states=states, attends=attends, chunked=chunked)
    lengths, prefix = lengths_of(model, settings, rules), _keeps_items_whole(model, settings, rules)
    floor = whole_items.floor_of(model, settings, rules) if prefix else 0
    divided = chunked and (own.enable_chunked_prefill is not False or rules.chunks_always)
    batch = batch_of(settings, device, rules, lengths.max_model_len, chunked_prefill=divided, floor=floor)
    kv = cache_word(model, settings, device, rules)
    ahead = _schedules_ahead(model, settings, rules, drafts)
    lookahead, slots = beyond(method, drafts)
    return Resolved(
        device=device,
        dtype=dtype,
        kv=kv,
        kv_format=kv_dtype(dtype.name if kv == "auto" else kv),
        conv_dtype=dtype if settings.mamba_cache_dtype == "auto" else scalar(settings.mamba_cache_dtype),
        ssm_dtype=state_dtype(model, settings, rules),
        lengths=lengths if draft_model is None else draft_stages.bounded(lengths, model, settings, rules),
        batch=batch,
        in_flight=batch.tokens * _batches_at_once(model, settings, rules, asynchronous=ahead),
        async_scheduling=ahead,
        prefix_caching=caching,
        mamba_mode=mamba_mode(model, rules, drafts, own.mamba_cache_mode) if caching and states else "none",
        hybrid=states and attends,
        state_only=states and not attends,
        pooling=pooling,
        disable_hybrid=_hybrid_disabled(model, settings, rules, kinds),
        spec_tokens=drafts,
        draft_layers=draft_layers_of(model, settings, windowed=rules.dflash_windows),
        retained=retained(model, settings),
        tp=settings.tensor_parallel_size,
        pp=settings.pipeline_parallel_size,
        dcp=settings.decode_context_parallel_size,
        block_size=settings.block_size,
        attention_backend=settings.attention_backend,
        mm_prefix=prefix,
        chunked=divided,
        lookahead=lookahead,
        draft_slots=slots,
        drops=bool(drafts) and method in EAGLE_LIKE,
        three_axes=not own.language_model_only and not (model.architecture or "").endswith("ForCausalLM"),
        index_kv=own.indexer_kv_dtype or "auto",
        draft_kv=kv if kv != "auto" or draft_model is None else asked_word(settings),
        draft_restarts=method == "draft_model",
        stage_numbered=method == "eagle" and model.encoder is None,
        flashinfer=own.flashinfer != "absent",
        skip_layers=own.kv_cache_dtype_skip_layers,
        whole_prompts=chunked and not divided,
        connected=bool(settings.own) and connectors.is_connected(settings, rules),
    )


def _caches_prefixes(settings: Layout, rules: Rules, *, states: bool, attends: bool, chunked: bool) -> bool:
    """As asked; by default not of states alone nor of an encoder's output, and of a hybrid by the release."""
    if settings.enable_prefix_caching is not None:
        return settings.enable_prefix_caching
    return chunked and (not states or (attends and rules.hybrid_caching))


def _keeps_items_whole(model: Model, settings: Layout, rules: Rules) -> bool:
    """Whether images are attended to in both directions, and some may come."""
    if not sees_whole_items(model, rules):
        return False
    return not (rules.prefix_for_items and multimodal.text_only(model, settings))


def _schedules_ahead(model: Model, settings: Layout, rules: Rules, drafts: int) -> bool:
    """Asynchronous scheduling: as asked; by default not of pooling models, nor beside drafts that wait."""
    if settings.async_scheduling is not None:
        return settings.async_scheduling
    if is_pooling(model, settings):
        return False
    if not drafts or settings.speculative_method in AHEAD:
        return True
    return rules.lookups_async and runner_of(model, settings, rules.release) == V2


def _batches_at_once(model: Model, settings: Layout, rules: Rules, *, asynchronous: bool) -> int:
    """Batches that are scheduled and not settled (vllm/config/vllm.py, max_concurrent_batches): one of every
    pipeline stage, and with asynchronous scheduling one more, under the V1 runner only without a pipeline."""
    if not rules.in_flight_batches:
        return 1
    stages = settings.pipeline_parallel_size
    if not asynchronous:
        return stages
    second = runner_of(model, settings, rules.release) == V2
    return stages + 1 if second or stages == 1 else stages


def _hybrid_disabled(model: Model, settings: Layout, rules: Rules, kinds: set[Kind]) -> bool:
    """As asked, or as connectors leave it; also for chunks beside an EAGLE-like draft, and before hybrid
    groups existed."""
    drafted = settings.speculative_method in EAGLE_LIKE and settings.num_speculative_tokens > 0
    return (
        bool(settings.disable_hybrid_kv_cache_manager)
        or (bool(settings.own) and connectors.manager_of(settings, rules, kinds).off)
        or not rules.hybrid_groups
        or (Kind.CHUNKED in kinds and (drafted or not rules.mamba_blocks))
    )


NATIVE_CACHE = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
"""FalconAttention is built without the cache's settings: its layers always store the model's dtype. With
`Rules.slices` the runner's word holds, for every layer."""
OWN_CACHE = frozenset({"mimo_v2", "mimo_v2_flash"})
"""The same of MiMo-V2 before 0.32 (vllm/model_executor/models/mimo_v2.py)."""
OTHER_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "turboquant_4bit": "turboquant_4bit_nc",
    "turboquant_3bit": "turboquant_3bit_nc",
}
"""kvplan's short forms of vLLM's words (vllm/config/cache.py, CacheDType)."""


def asked_word(settings: Layout) -> str:
    """The cache's format in vLLM's own word."""
    return OTHER_WORDS.get(settings.kv_cache_dtype, settings.kv_cache_dtype)


def cache_word(model: Model, settings: Layout, device: Device, rules: Rules) -> str:
    """The word in force for keys and values: as asked, else the checkpoint's, else the class's."""
    word = asked_word(settings)
    if model.model_type in NATIVE_CACHE:
        return word if rules.slices else "auto"
    if model.model_type in OWN_CACHE and not rules.mimo_cache_dtype:
        return "auto"
    scheme = model.facts.get("serving_kv_scheme", model.kv_cache_scheme)
    if word == "auto" and isinstance(scheme, str):
        word = scheme
    if word == "auto" and _fp8_unasked(model, device, rules):
        word = "fp8_e4m3"
    parts = [part for run in model.runs for part in run.layer.parts]
    compressed = next((part for part in parts if part.kind is Kind.COMPRESSED), None)
    indexed = any(part.kind is Kind.INDEXER for part in parts)
    if compressed is not None:
        word = _record_word(word, compressed, device)
    elif word == "bfloat16" and indexed:
        return "auto"
    return "fp8_ds_mla" if rules.sparse_fp8 and indexed and word.startswith("fp8") else word


def _fp8_unasked(model: Model, device: Device, rules: Rules) -> bool:
    """Whether the model's class keeps eight bits on GPUs of 10.x where nobody asked for them."""
    since = {
        "glm_moe_dsa": rules.sparse_fp8_on_sm100,
        "glm5_next_text": rules.pooled_fp8_on_sm100,
    }
    return since.get(model.model_type, False) and _is_sm100(device)


def _record_word(word: str, part: CompressedAttention, device: Device) -> str:
    """DeepSeek-V4 under FlashMLA always keeps records; V4.1's of 10.x are nvfp4's."""
    if word in ("auto", "fp8") and part.index_of_latent and _is_sm100(device):
        return "nvfp4_ds_mla"
    return "fp8_ds_mla" if word == "auto" or word.startswith("fp8") else word


def _is_sm100(device: Device) -> bool:
    return (device.vendor, device.major) == ("nvidia", 10)


def state_dtype(model: Model, settings: Layout, rules: Rules) -> Packing | None:
    """The recurrent state's element type, or None: the conv state's.

    vllm/model_executor/models/config.py: Nemotron-H takes the config's, else fp32; Qwen3.5 takes the
    config's; KDA is fp32 (mamba_utils.py, kda_state_dtype). Other models ignore what the config says.
    """
    states = [part for run in model.runs for part in run.layer.parts if part.kind is Kind.STATE]
    if not rules.gdn_state_dtype and any(isinstance(part, GatedDeltaNet) for part in states):
        return None
    if settings.mamba_ssm_cache_dtype != "auto":
        return scalar(settings.mamba_ssm_cache_dtype)
    if any(isinstance(part, KimiDeltaAttention) for part in states):
        return scalar("float32")
    named = next((part.state_dtype for part in states if part.state_dtype), None)
    if model.model_type.startswith("nemotron_h"):
        return scalar(named or "float32")
    if model.model_type.startswith(("qwen3_5", "qwen4_exp")) and named:
        return scalar(named)
    return None
