"""SGLang's server arguments, resolved: dtype of the cache, attention backend, page size, slots of a state.

sgl-project/sglang 0.5.23 arg_groups/overrides.py, arg_groups/model_override_base.py (get_default_attn_backend),
arg_groups/kv_cache_hook.py, arg_groups/model_overrides/*.py, mem_cache/kv_cache_dtype.py.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.dtypes import KV_DTYPES, KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.base import has_kind, served_dtype
from kvplan.engines.options import EngineOption, Options
from kvplan.engines.sglang.budget import capacity_for, graph_max_batch
from kvplan.engines.sglang.models import (
    RATIO_OVERRIDES,
    has_extra_buffer,
    has_window_pool,
    is_deepseek,
)
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, MultiHeadLatentAttention, SlidingWindow, SparseIndexer
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import Settings
from kvplan.units import MIB

KV_WORDS = ("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bfloat16", "nvfp4", "fp4_mx_block16")
FP4 = ("nvfp4", "fp4_mx_block16")
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
DSA_BACKENDS = ("flashmla_sparse", "flashmla_kv", "fa3", "tilelang", "trtllm", "flashinfer_sparse_mla")
SPECULATIVE_REQUESTS = 48
"""max_running_requests under speculative decoding where it is not given (arg_groups/speculative_hook.py)."""
OPTIONS = (
    EngineOption("swa_full_tokens_ratio", "share", "Tokens of the window pool per token of the full one (default: 0.8; DeepSeek-V4 and Inkling 0.1)."),
    EngineOption("disable_hybrid_swa_memory", "flag", "Window layers keep every token.", default=False),
    EngineOption("disable_radix_cache", "flag", "No reuse of prompts: a state-space request takes one slot.", default=False),
    EngineOption("disable_overlap_schedule", "flag", "No overlap of scheduling and forward.", default=False),
    EngineOption("mamba_full_memory_ratio", "ratio", "Memory of states per memory of KV (default: 0.9; Inkling 0.1)."),
    EngineOption("mamba_radix_cache_strategy", "word", "How states are kept for reuse.", default="auto", choices=STRATEGIES),
    EngineOption("max_mamba_cache_size", "count", "Slots of states, whatever the memory."),
    EngineOption("max_total_tokens", "count", "Upper bound of the pool's tokens."),
    EngineOption("chunked_prefill_size", "count", "Tokens of a prefill chunk (default: by the GPU's memory)."),
    EngineOption("draft_layers", "count", "Layers of the draft model (default: the model's own prediction layers)."),
    EngineOption("dsa_prefill_backend", "word", "Prefill backend of sparse attention.", choices=DSA_BACKENDS),
    EngineOption("dsa_decode_backend", "word", "Decode backend of sparse attention.", choices=DSA_BACKENDS),
    EngineOption("enable_dp_attention", "flag", "Attention data-parallel over --dp inside --tp.", default=False),
)  # fmt: skip


@record()
class Device:
    """capability: compute capability; memory_mib: as nvidia-smi shows it, None where unknown."""

    name: str
    capability: tuple[int, int]
    memory_mib: int | None
    nvidia: bool = True

    @property
    def major(self) -> int:
        return self.capability[0]


ASSUMED = Device("h100-sxm-80gb (assumed)", (9, 0), 81559)


@record()
class Arguments:
    """Everything that decides the pools. attn_tp: ranks that share a request's heads; attn_dp: groups of them."""

    device: Device
    dtype: Packing
    kv: KvDtype
    latent: KvDtype
    index: KvDtype
    backend: str
    page_size: int
    tp: int
    pp: int
    attn_tp: int
    attn_dp: int
    dcp: int
    context_len: int
    chunked_prefill_size: int
    graph_max_batch: int
    window_pool: bool
    swa_ratio: Fraction
    ratio_given: bool
    radix: bool
    overlap: bool
    strategy: str
    slots_per_request: int
    state_ratio: Fraction
    max_slots: int | None
    max_total_tokens: int | None
    max_running_requests: int | None
    draft_tokens: int
    draft_layers: int
    conv_dtype: Packing
    ssm_dtype: Packing | None


def device_of(gpu: Gpu | None) -> Device:
    """The GPU's facts; without one an H100's. Raises KvplanError(engine-gpu) for other accelerators."""
    if gpu is None:
        return ASSUMED
    if gpu.vendor.lower() not in ("nvidia", "amd"):
        raise KvplanError(
            "engine-gpu",
            f"the rules of SGLang on {gpu.name} ({gpu.vendor}) are not known",
            help="choose an NVIDIA or AMD GPU",
        )
    memory = gpu.memory_nvml_bytes or gpu.memory_total_bytes
    return Device(
        gpu.name,
        gpu.compute_capability or (9, 0),
        None if memory is None else memory // MIB,
        gpu.vendor.lower() == "nvidia",
    )


def resolve_arguments(model: Model, settings: Settings, options: Options, context_len: int) -> Arguments:
    """Every argument with its value. Raises KvplanError(unsupported-dtype | unsupported-setting)."""
    device = device_of(settings.gpu)
    tp, dp = settings.tensor_parallel_size, settings.data_parallel_size
    attn_dp = dp if options.flag("enable_dp_attention") else 1
    if tp % attn_dp:
        raise KvplanError(
            "bad-setting", f"tensor_parallel_size {tp} is no multiple of {attn_dp} attention groups"
        )
    dcp = settings.decode_context_parallel_size
    if (tp // attn_dp) % dcp:
        raise KvplanError(
            "bad-setting", f"{tp // attn_dp} attention ranks are no multiple of {dcp} (context parallel)"
        )
    dtype = served_dtype(model, settings)
    draft_tokens, draft_layers = _speculation(model, settings, options)
    strategy = _strategy(model, options)
    capacity = capacity_for(device.memory_mib)
    chunk = options.count("chunked_prefill_size")
    running = settings.max_num_seqs
    if running is None and draft_tokens:
        running = SPECULATIVE_REQUESTS
    kv = _kv_dtype(model, settings, device, dtype)
    backend = _backend(model, settings, device, kv, strategy=strategy, options=options)
    _check_fp4(model, kv, backend, device)
    ratio = options.share("swa_full_tokens_ratio")
    own_ratio = RATIO_OVERRIDES.get(model.architecture or "")
    if ratio is None and has_kind(model, Kind.COMPRESSED):
        own_ratio = "0.1"
    state_ratio = options.share("mamba_full_memory_ratio")
    return Arguments(
        device=device,
        dtype=dtype,
        kv=kv,
        latent=_latent(model, kv, device, options),
        index=_index(model, kv, device, backend, dtype),
        backend=backend,
        page_size=_page_size(model, settings, device, backend),
        tp=tp,
        pp=settings.pipeline_parallel_size,
        attn_tp=tp // attn_dp,
        attn_dp=attn_dp,
        dcp=dcp,
        context_len=context_len,
        chunked_prefill_size=capacity.chunked_prefill_size if chunk is None else chunk,
        graph_max_batch=graph_max_batch(device.memory_mib, tp, settings.max_num_seqs),
        window_pool=has_window_pool(model) and not options.flag("disable_hybrid_swa_memory"),
        swa_ratio=Fraction(own_ratio or "0.8") if ratio is None else ratio,
        ratio_given=ratio is not None,
        radix=not options.flag("disable_radix_cache"),
        overlap=strategy != "no_buffer" and not options.flag("disable_overlap_schedule"),
        strategy=strategy,
        slots_per_request=_slots_per_request(strategy, options),
        state_ratio=Fraction("0.9") if state_ratio is None else state_ratio,
        max_slots=options.count("max_mamba_cache_size"),
        max_total_tokens=options.count("max_total_tokens"),
        max_running_requests=running,
        draft_tokens=draft_tokens,
        draft_layers=draft_layers,
        conv_dtype=scalar("bfloat16" if settings.mamba_cache_dtype == "auto" else settings.mamba_cache_dtype),
        ssm_dtype=None
        if settings.mamba_ssm_cache_dtype == "auto"
        else scalar(settings.mamba_ssm_cache_dtype),
    )


def _kv_dtype(model: Model, settings: Settings, device: Device, dtype: Packing) -> KvDtype:
    """The cache's element format; ``auto`` is the model's, but for FP8 checkpoints of ModelOpt and DeepSeek."""
    word = settings.kv_cache_dtype
    if word == "auto":
        return kv_dtype(_automatic(model, device, dtype))
    found = kv_dtype(word)
    if found.name not in KV_WORDS and found.name != dtype.name:
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang has no KV cache dtype {word!r}",
            help=("use fp8_e4m3", "known: " + ", ".join(KV_WORDS)),
        )
    sparse = has_kind(model, Kind.COMPRESSED) or _is_dsa(model)
    if sparse and found.name not in ("bfloat16", "fp8_e4m3"):
        raise KvplanError(
            "unsupported-dtype",
            f"DeepSeek's sparse attention in SGLang takes bfloat16 or fp8_e4m3, not {word}",
            help="use fp8_e4m3",
        )
    if found.name == "nvfp4" and not (device.nvidia and device.major in (10, 12)):
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang's nvfp4 cache needs Blackwell (SM100 or SM120), not {device.name}",
            help=("use fp8_e4m3", "use fp4_mx_block16 with --attention-backend triton"),
        )
    if found.name == "mxfp8" and not (device.nvidia and device.major >= 10):
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang's mxfp8 cache needs Blackwell (SM100 or newer), not {device.name}",
            help="use fp8_e4m3",
        )
    if found.name in FP4 and not device.nvidia:
        raise KvplanError(
            "unsupported-dtype", f"SGLang's {found.name} cache needs a CUDA GPU", help="use fp8_e4m3"
        )
    return found


def _automatic(model: Model, device: Device, dtype: Packing) -> str:
    if has_kind(model, Kind.COMPRESSED):
        return "fp8_e4m3"
    if _is_dsa(model):
        return "fp8_e4m3" if device.nvidia and device.major >= 10 else "bfloat16"
    if model.quantization == "modelopt" and (model.kv_cache_scheme or "").startswith("fp8"):
        return "fp8_e4m3"
    return dtype.name


def _is_dsa(model: Model) -> bool:
    return has_kind(model, Kind.INDEXER) and has_kind(model, Kind.MLA)


def _check_fp4(model: Model, kv: KvDtype, backend: str, device: Device) -> None:
    """arg_groups/kv_cache_hook.py (handle_kv4_compatibility): which backends read a 4-bit cache."""
    if kv.name not in FP4 or kv.name == "nvfp4" and not has_kind(model, Kind.MLA):
        return
    able = (
        ("flashinfer", "trtllm_mla")
        if has_kind(model, Kind.MLA)
        else ("triton", "torch_native", "flex_attention", "trtllm_mha")
    )
    if backend not in able:
        raise KvplanError(
            "unsupported-dtype",
            f"SGLang's {kv.name} cache does not go with the attention backend {backend} ({device.name})",
            help=(f"--attention-backend {able[0]}", "use fp8_e4m3"),
        )


def _latent(model: Model, kv: KvDtype, device: Device, options: Options) -> KvDtype:
    """How sparse MLA stores fp8: 656 B with scales, or raw rows of 576 B for trtllm and tilelang."""
    if kv.name != "fp8_e4m3" or not _is_dsa(model):
        return kv
    default = "trtllm" if device.major >= 10 else "flashmla_kv"
    if not device.nvidia:
        default = "triton"
    elif device.major == 12 and model.model_type == "glm_moe_dsa":
        default = "flashinfer_sparse_mla"
    prefill = options.word("dsa_prefill_backend") or default
    decode = options.word("dsa_decode_backend") or default
    raw = "trtllm" in (prefill, decode) or prefill == decode == "tilelang" or not device.nvidia
    return kv if raw else KV_DTYPES["fp8_ds_mla"]


def _index(model: Model, kv: KvDtype, device: Device, backend: str, dtype: Packing) -> KvDtype:
    """Index keys: fp8 with a scale (132 B); MiniMax-M3's in the model's dtype, fp8 where its kernels are."""
    if has_kind(model, Kind.MLA) or has_kind(model, Kind.COMPRESSED):
        return KV_DTYPES["fp8_per_token_head"]
    fp8 = kv.name == "fp8_e4m3" and (device.major == 9 or (device.major == 10 and backend == "trtllm_mha"))
    return kv if fp8 else kv_dtype(dtype.name)


def _speculation(model: Model, settings: Settings, options: Options) -> tuple[int, int]:
    """Draft tokens (steps + 1, a chain) and the layers of the draft; 0 and 0 without speculation."""
    if settings.speculative_method is None:
        return 0, 0
    given = options.count("draft_layers")
    layers = given if given is not None else len(model.draft_layers)
    if not layers:
        raise KvplanError(
            "no-draft",
            f"{model.id} has no prediction layers of its own: the draft model's layers are not known",
            help="--draft-layers 1 (an EAGLE head has one)",
        )
    return settings.num_speculative_tokens + 1, layers


def _strategy(model: Model, options: Options) -> str:
    """--mamba-radix-cache-strategy: extra_buffer where the class supports it and anything asks for overlap."""
    strategy = options.word("mamba_radix_cache_strategy") or "auto"
    if strategy != "auto" or options.flag("disable_radix_cache") or not has_kind(model, Kind.STATE):
        return strategy
    return (
        "extra_buffer"
        if has_extra_buffer(model) and not options.flag("disable_overlap_schedule")
        else "no_buffer"
    )


def _slots_per_request(strategy: str, options: Options) -> int:
    """State slots that one running request is charged (kv_cache_configurator.py, _calculate_mamba_ratio)."""
    if options.flag("disable_radix_cache"):
        return 1
    if strategy == "extra_buffer_lazy":
        return 4
    if strategy == "extra_buffer":
        return 4 if options.flag("disable_overlap_schedule") else 5
    return 3


def _backend(
    model: Model, settings: Settings, device: Device, kv: KvDtype, *, strategy: str, options: Options
) -> str:
    """The attention backend: as given, else the model's override, else the default by architecture and GPU."""
    if settings.attention_backend is not None:
        return settings.attention_backend.lower()
    if has_kind(model, Kind.COMPRESSED):
        return "dsv4"
    if _is_dsa(model):
        return "dsa"
    if kv.name == "mxfp8":
        return "fa4"
    if not device.nvidia:
        return "aiter"
    hopper, data_centre = device.major == 9, device.major == 10
    if has_kind(model, Kind.MLA):
        if data_centre:
            return "trtllm_mla" if is_deepseek(model) or _named(model, "kimi_k3") else "flashinfer"
        return "fa3" if hopper else "triton"
    if data_centre:
        return _data_centre_backend(model, settings, strategy, options)
    if _named(model, "gemma4"):
        return "triton"
    if hopper:
        return "fa3"
    return "triton" if _named(model, "gpt_oss", "llama4", "mimo_v2", "exaone", "olmo3") else "flashinfer"


def _data_centre_backend(model: Model, settings: Settings, strategy: str, options: Options) -> str:
    """SM100: trtllm_mha where K and V are equally wide; some hybrids are kept off it."""
    if _named(model, "falcon_h1"):
        return "triton"
    if _named(model, "lfm2", "granitemoehybrid") and has_kind(model, Kind.STATE):
        return "flashinfer"
    if _named(model, "mimo_v2") or has_kind(model, Kind.INDEXER) or _unequal(model):
        return "fa4"
    kept = strategy in ("extra_buffer", "extra_buffer_lazy") or options.flag("disable_radix_cache")
    if _named(model, "qwen3_next", "qwen3_5") and not kept and settings.speculative_method is None:
        return "triton"
    return "trtllm_mha"


def _unequal(model: Model) -> bool:
    return any(
        isinstance(part, (FullAttention, SlidingWindow)) and part.v_head_dim not in (None, part.head_dim)
        for run in model.runs
        for part in run.layer.parts
    )


def _named(model: Model, *stems: str) -> bool:
    """By the start of the model type, or of the class's name without underscores."""
    own = (model.model_type.replace("-", "_"), (model.architecture or "").lower())
    return any(own[0].startswith(stem) or own[1].startswith(stem.replace("_", "")) for stem in stems)


def _page_size(model: Model, settings: Settings, device: Device, backend: str) -> int:
    """--page-size (here block_size), made what the model or the backend needs; 1 by default."""
    asked = settings.block_size
    if has_kind(model, Kind.COMPRESSED):
        return 256
    if _is_dsa(model):
        return 64
    if any(isinstance(part, SparseIndexer) for run in model.runs for part in run.layer.parts):
        return asked or (128 if device.major in (9, 10) else 1)
    if backend == "flashmla" or backend == "hpc_ops":
        return 64
    if backend in ("trtllm_mla", "cutedsl_mla"):
        return asked if asked in (32, 64) else 64
    if backend == "trtllm_mha":
        return asked if asked in (16, 32, 64, 128) else 64
    if (
        backend == "fa4"
        and device.major == 10
        and not any(
            isinstance(part, MultiHeadLatentAttention) for run in model.runs for part in run.layer.parts
        )
    ):
        return 128
    return asked or 1
