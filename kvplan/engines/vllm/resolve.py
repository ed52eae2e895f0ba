"""Every setting that influences the cache, resolved as ``vllm serve`` would: one value object."""

from __future__ import annotations

from dataclasses import replace

from kvplan.dtypes import KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.vllm.architectures import GENERATING, POOLING
from kvplan.engines.vllm.defaults import (
    Batch,
    Device,
    Lengths,
    batch_of,
    device_of,
    lengths_of,
    model_dtype,
)
from kvplan.engines.vllm.draft_lengths import bounded
from kvplan.engines.vllm.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules
from kvplan.engines.vllm.whole_items import floor_of
from kvplan.errors import KvplanError
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    Kind,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
    SparseIndexer,
    WindowedConvolution,
)
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.settings import EAGLE_LIKE, HEAD_METHODS, LOOKUP_METHODS, Layout

# Model types whose latent attention vLLM keeps as a latent (model_arch_config_convertor.py, is_deepseek_mla).
LATENT_TYPES = frozenset(
    "axk1 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 deepseek_ref dots3_note dots3_note_text glm5_next "
    "glm5_next_text "
    "glm_moe_dsa glm4_moe_lite kimi_k2 kimi_linear longcat_flash pangu_ultra_moe bailing_hybrid hy_v4 "
    "bailing_moe_v2_5 sarvam_mla longcat_flash_ngram".split()
)
# FalconAttention is built without the cache's settings: its layers always store the model's dtype.
NATIVE_CACHE = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
# The same of MiMo-V2 before 0.32 (vllm/model_executor/models/mimo_v2.py).
OWN_CACHE = frozenset({"mimo_v2", "mimo_v2_flash"})
# Layers with attention sinks (a learned logit beside the scores): some backends cannot take them.
# Wrappers in which image tokens see each other (model_arch_config_convertor.py, is_mm_prefix_lm).
PREFIX_WRAPPERS = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
POOLING_ENDINGS = (
    "ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification",
    "ClassificationModel", "ForRewardModeling", "RewardModel",
)  # fmt: skip
# kvplan's short forms of vLLM's words (vllm/config/cache.py, CacheDType).
OTHER_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "turboquant_4bit": "turboquant_4bit_nc",
    "turboquant_3bit": "turboquant_3bit_nc",
}
DRAFT_KINDS = frozenset({Kind.FULL, Kind.SLIDING, Kind.MLA})
NO_LAYERS = (*LOOKUP_METHODS, "draft_model", "medusa", "mlp_speculator")
"""Methods that use none of the model's own prediction layers."""
AHEAD = (*EAGLE_LIKE, "draft_model", "ngram_gpu")
"""Methods that every runner schedules ahead of (vllm/config/vllm.py)."""
DRAFTING: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    **dict.fromkeys(("eagle", "eagle3", "mtp"), ((1, 0), (0, 0))),
    "draft_model": ((1, 0), (0, 1)),
    "dflash": ((1, 1), (1, 0)),
    "dspark": ((1, 0), (1, -1)),
}
"""Of methods whose drafter writes K and V beyond the target's tokens: (a, b) of a · drafts + b places that it
keeps beyond (vllm/config/vllm.py, num_lookahead_tokens), and of a · drafts + b tokens of a step's budget that
a request takes besides (vllm/config/speculative.py, max_num_new_slots_for_drafting)."""


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
    pooling = _is_pooling(model)
    dtype = model_dtype(model, settings, device, pooling=pooling)
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    attends = bool(kinds - {Kind.STATE, Kind.NONE})
    hybrid, state_only = Kind.STATE in kinds and attends, Kind.STATE in kinds and not attends
    encoder_decoder = model.encoder is not None and Kind.CROSS in kinds
    draft = settings.num_speculative_tokens if settings.speculative_method else 0
    by_default = not (state_only or encoder_decoder) and (rules.hybrid_caching or not hybrid)
    caching = by_default if settings.enable_prefix_caching is None else settings.enable_prefix_caching
    lengths = lengths_of(model, settings, rules)
    prefix = _mm_prefix(model, rules)
    batch = batch_of(
        settings,
        device,
        rules,
        lengths.max_model_len,
        chunked_prefill=not encoder_decoder,
        floor=floor_of(model, settings) if prefix and rules.items_raise_batch else 0,
    )
    ignored = model.model_type in OWN_CACHE and not rules.mimo_cache_dtype
    kv = "auto" if ignored else cache_dtype(model, settings, device, rules)
    if model.model_type in NATIVE_CACHE and rules.slices:
        kv = OTHER_WORDS.get(
            settings.kv_cache_dtype, settings.kv_cache_dtype
        )  # the runner's, for every layer
    if rules.sparse_fp8 and kv.startswith("fp8") and Kind.INDEXER in kinds:
        kv = "fp8_ds_mla"
    asynchronous = not pooling and (
        not draft
        or settings.speculative_method in AHEAD
        or (rules.lookups_async and runner_of(model, settings, rules.runners) == V2)
    )
    if settings.async_scheduling is not None:
        asynchronous = settings.async_scheduling
    lookahead, slots = _beyond(settings.speculative_method, draft)
    conv = dtype if settings.mamba_cache_dtype == "auto" else scalar(settings.mamba_cache_dtype)
    return Resolved(
        device=device,
        dtype=dtype,
        kv=kv,
        kv_format=kv_dtype(dtype.name if kv == "auto" else kv),
        conv_dtype=conv,
        ssm_dtype=_ssm_dtype(model, settings) if rules.gdn_state_dtype or not _is_gdn(model) else None,
        lengths=bounded(lengths, model, settings, rules),
        batch=batch,
        in_flight=batch.tokens * _batches_at_once(model, settings, rules, asynchronous=asynchronous),
        async_scheduling=asynchronous,
        prefix_caching=caching,
        mamba_mode=_mamba_mode(model, rules, draft) if caching and (hybrid or state_only) else "none",
        hybrid=hybrid,
        state_only=state_only,
        pooling=pooling,
        disable_hybrid=_hybrid_disabled(model, settings, rules, kinds),
        spec_tokens=draft,
        draft_layers=draft_layers_of(model, settings),
        retained=_retained(model, settings),
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
        three_axes=not dict(settings.engine_options).get("language_model_only")
        and not (model.architecture or "").endswith("ForCausalLM"),
        index_kv=str(dict(settings.engine_options).get("indexer_kv_dtype") or "auto"),
        draft_kv=kv if kv != "auto" or settings.speculative_model is None else asked_word(settings),
        draft_restarts=settings.speculative_method == "draft_model",
        stage_numbered=settings.speculative_method == "eagle" and model.encoder is None,
        flashinfer=dict(settings.engine_options).get("flashinfer") != "absent",
    )


def _beyond(method: str | None, drafts: int) -> tuple[int, int]:
    """`DRAFTING` of so many drafts: places beyond the target's, and tokens of a step's budget besides."""
    (per, more), (each, base) = DRAFTING.get(method or "", ((0, 0), (0, 0)))
    return (per * drafts + more, each * drafts + base) if drafts else (0, 0)


_BESIDE = (Kind.STATE, Kind.CROSS)


def head_layer(model: Model) -> tuple[Layer, ...]:
    """The layer of an EAGLE head that nobody named: one like the target's first that keeps every token."""
    for kinds in ((Kind.FULL, Kind.MLA), (Kind.SLIDING, Kind.CHUNKED)):
        for run in model.runs:
            if any(part.kind in kinds for part in run.layer.parts):
                return (Layer(tuple(part for part in run.layer.parts if part.kind not in _BESIDE)),)
    return ()


def draft_layers_of(model: Model, settings: Layout) -> tuple[Layer, ...]:
    """Layers that speculation adds to the cache: a separate draft's, or the model's own prediction layers.

    vllm/v1/spec_decode/: a draft model's attention layers are registered beside the target's. Raises
    KvplanError(unknown-rule) for drafts that do not keep K and V of every head.
    """
    if not settings.num_speculative_tokens or settings.speculative_method is None:
        return ()
    draft = settings.speculative_model
    if draft is None:
        if settings.speculative_method in HEAD_METHODS:
            return head_layer(model)
        return () if settings.speculative_method in NO_LAYERS else model.draft_layers
    layers = tuple(draft.layers())
    kinds = {part.kind for layer in layers for part in layer.parts}
    if settings.pipeline_parallel_size > 1 and settings.speculative_method == "draft_model":
        raise KvplanError(
            "unknown-rule",
            "what vLLM keeps of a draft model beside a pipeline is not known: it divides the draft too",
            help="--pp 1",
        )
    latent = Kind.MLA in kinds and not (keeps_latent(model) and keeps_latent(draft))
    if latent or not kinds <= DRAFT_KINDS:
        raise KvplanError(
            "unknown-rule",
            f"how vLLM lays out the cache of {draft.id} beside {model.id} is not known",
            help="give a draft of plain attention layers",
        )
    return _in_the_models_window(model, layers)


def _in_the_models_window(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A layer that states no window takes the cache's, which is the model's where all of its layers have one
    (vllm/model_executor/layers/attention/attention.py: cache_config.sliding_window)."""
    kept = [part for run in model.runs for part in run.layer.parts if part.kind is not Kind.NONE]
    windows = {part.sliding_window if isinstance(part, SlidingWindow) else None for part in kept}
    window = windows.pop() if len(windows) == 1 else None
    if window is None:
        return layers

    def windowed(part: Part) -> Part:
        if not isinstance(part, FullAttention):
            return part
        return SlidingWindow(part.num_kv_heads, part.head_dim, window, v_head_dim=part.v_head_dim)

    return tuple(replace(layer, parts=tuple(map(windowed, layer.parts))) for layer in layers)


def _is_pooling(model: Model) -> bool:
    """A class that pools, by its name where vLLM does not build it itself."""
    name = model.architecture or ""
    if name in GENERATING:
        return False
    if name in POOLING or name.endswith(POOLING_ENDINGS):
        return True
    return name.endswith("Model") and not name.endswith(("LMHeadModel", "ChatModel"))


EVERY_STATE = frozenset(
    "BambaForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM GraniteMoeHybridForCausalLM "
    "JambaForCausalLM JambaForSequenceClassification Mamba2ForCausalLM MambaForCausalLM NemotronHForCausalLM "
    "NemotronHPuzzleForCausalLM Zamba2ForCausalLM".split()
)
"""Classes with SupportsMambaPrefixCaching (vllm/model_executor/models/interfaces.py)."""


def _mamba_mode(model: Model, rules: Rules, drafts: int) -> str:
    """What prefix caching keeps: a state of every block, those of the last two, or (before 0.15) none."""
    every = rules.every_state and (model.architecture or "") in EVERY_STATE
    if every and (rules.every_state_with_drafts or not drafts):
        return "all"
    return "align" if rules.state_at_end else "none"


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


def _retained(model: Model, settings: Layout) -> int:
    """Tokens below a window that a chain of several draft modules still reads: modules in use - 1.

    vllm/config/speculative.py, use_multi_module_mtp: min(draft layers, draft tokens) > 1.
    """
    if settings.speculative_method != "mtp":
        return 0
    modules = min(len(model.draft_layers), settings.num_speculative_tokens)
    return settings.num_speculative_tokens - 1 if modules > 1 else 0


def _mm_prefix(model: Model, rules: Rules) -> bool:
    if model.facts.get("top_model_type") in PREFIX_WRAPPERS:
        return True
    seen = rules.gemma4_whole_items and model.facts.get("use_bidirectional_attention") == "vision"
    return seen and model.model_type.startswith("gemma4")


def asked_word(settings: Layout) -> str:
    """The cache's format in vLLM's own word."""
    return OTHER_WORDS.get(settings.kv_cache_dtype, settings.kv_cache_dtype)


def cache_dtype(model: Model, settings: Layout, device: Device, rules: Rules | None = None) -> str:
    """The cache dtype in force: as asked, else the checkpoint's scheme, else what the model class sets."""
    kv = OTHER_WORDS.get(settings.kv_cache_dtype, settings.kv_cache_dtype)
    if model.model_type in NATIVE_CACHE:
        return "auto"
    scheme = model.facts.get("serving_kv_scheme", model.kv_cache_scheme)
    if kv == "auto" and isinstance(scheme, str):
        kv = scheme
    fp8 = rules is None or {
        "glm_moe_dsa": rules.sparse_fp8_on_sm100,
        "glm5_next_text": rules.pooled_fp8_on_sm100,
    }.get(model.model_type, False)
    if (
        kv == "auto"
        and fp8
        and model.model_type in ("glm_moe_dsa", "glm5_next_text")
        and device.major == 10
        and device.vendor == "nvidia"
    ):
        kv = "fp8_e4m3"
    parts = [part for run in model.runs for part in run.layer.parts]
    compressed = [part for part in parts if isinstance(part, CompressedAttention)]
    if compressed:
        # DeepSeek-V4 under FlashMLA always keeps records; V4.1's of 10.x are nvfp4's.
        if (
            kv in ("auto", "fp8")
            and compressed[0].index_of_latent
            and (device.vendor, device.major)
            == (
                "nvidia",
                10,
            )
        ):
            return "nvfp4_ds_mla"
        if kv == "auto" or kv.startswith("fp8"):
            return "fp8_ds_mla"
    elif kv == "bfloat16" and any(
        isinstance(p, SparseIndexer) for run in model.runs for p in run.layer.parts
    ):
        return "auto"
    return kv


def _ssm_dtype(model: Model, settings: Layout) -> Packing | None:
    """The recurrent state's element type, or None: the conv state's.

    vllm/model_executor/models/config.py: Nemotron-H takes the config's, else fp32; Qwen3.5 takes the
    config's; KDA is fp32 (mamba_utils.py, kda_state_dtype). Other models ignore what the config says.
    """
    if settings.mamba_ssm_cache_dtype != "auto":
        return scalar(settings.mamba_ssm_cache_dtype)
    states = [part for run in model.runs for part in run.layer.parts if part.kind is Kind.STATE]
    if any(isinstance(part, KimiDeltaAttention) for part in states):
        return scalar("float32")
    named = next((part.state_dtype for part in states if part.state_dtype), None)
    if model.model_type.startswith("nemotron_h"):
        return scalar(named or "float32")
    if model.model_type.startswith(("qwen3_5", "qwen4_exp")) and named:
        return scalar(named)
    return None


def _is_gdn(model: Model) -> bool:
    return any(isinstance(part, GatedDeltaNet) for run in model.runs for part in run.layer.parts)


def lead_attention(model: Model) -> Part | None:
    """The first attention part: its widths stand for the model's (ModelConfig.get_head_size)."""
    kinds = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED, Kind.MLA)
    parts = (part for run in model.runs for part in run.layer.parts if part.kind in kinds)
    return next((part for part in parts if not isinstance(part, WindowedConvolution)), None)


def keeps_latent(model: Model) -> bool:
    """False where vLLM has no latent kernel for the type and caches every head's K and V."""
    return model.model_type in LATENT_TYPES


def head_width(part: Part) -> int:
    """Numbers in one head's K, or in the latent with its rope key."""
    if isinstance(part, MultiHeadLatentAttention):
        return part.kv_lora_rank + part.qk_rope_head_dim
    if isinstance(part, FullAttention):
        return part.head_dim
    width = getattr(part, "head_dim", None)
    if not isinstance(width, int):
        raise KvplanError("unknown-layer-type", f"vLLM: no attention width for {part.family}")
    return width
