"""What vLLM refuses before it plans: the checks of its configuration classes that touch the cache.

vllm-project/vllm 0.32 vllm/config/model.py (verify_with_parallel_config, _get_and_verify_max_len) and
vllm/model_executor/models/registry.py.
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import num_experts
from kvplan.architectures.lineages import lineage_of
from kvplan.engines.base import has_kind, too_many_stages
from kvplan.engines.kv_support import minor_of, released, rows_of, unsupported
from kvplan.engines.vllm.architectures import GENERATING, NO_PIPELINE, POOLING, THROUGH_TRANSFORMERS
from kvplan.engines.vllm.defaults import NO_FLOAT16
from kvplan.engines.vllm.draft_stages import drafts_in_stages
from kvplan.engines.vllm.encoders import encoder_heads, undivided_encoder
from kvplan.engines.vllm.own_types import check_own_rules, own_refusal
from kvplan.engines.vllm.resolve import OTHER_WORDS, Resolved, keeps_latent, lead_attention
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, Mamba2, MultiHeadLatentAttention, Part
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout, further_ranks

# Families that no vLLM class builds.
NOT_SERVED = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}


def refusal_of(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """The first reason for which the engine would not start, or None.

    Raises KvplanError(unknown-rule) for a type that vLLM serves by rules that kvplan does not know.
    """
    check_own_rules(model, version)
    return (
        _architecture(model, version)
        or _families(model, version)
        or _quantisation(model, settings, resolved)
        or _dtypes(model, settings, resolved, version)
        or _positions(model, version)
        or _length(settings, resolved)
        or _parallel(model, settings, resolved, version)
        or too_many_stages(model, settings)
        or _experts(model, settings)
        or _prefill_context(model, settings, version)
        or _context_parallel(model, settings, resolved)
        or _drafts(model, settings, version)
        or _index_keys(model, resolved)
        or own_refusal(model, resolved)
        or _adapters(model, settings)
    )


def _adapters(model: Model, settings: Layout) -> Refusal | None:
    if not settings.engine_options:
        return None
    from kvplan.engines.vllm.adapters import lora_refusal

    return lora_refusal(model, settings)


# Layers that transformers' own classes do not leave to vLLM: an older release could not run them either.
_OWN_KINDS = (Kind.STATE, Kind.COMPRESSED, Kind.INDEXER)


OTHER_NAMES = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM",
    "Dots3NoteForConditionalGeneration": "Dots3NoteForCausalLM",
}
"""Names that a public copy of a config, or transformers, gives a class, and the registry's."""


def _architecture(model: Model, version: str) -> Refusal | None:
    """A class that the release builds, or a transformers class that it runs as it stands."""
    if model.architecture is None:
        return None
    name = OTHER_NAMES.get(model.architecture, model.architecture)
    row = GENERATING.get(name) or POOLING.get(name)
    if row is not None and released(row.since, row.until, version):
        return None
    if name in THROUGH_TRANSFORMERS and not has_kind(model, Kind.STATE):
        return None
    if row is None:
        return Refusal("unsupported-model", f"vLLM {version} has no class for {name}")
    if row.until and minor_of(version) > minor_of(row.until):
        return Refusal(
            "unsupported-model",
            f"vLLM built {name} until {row.until} and does not any more",
            help=(f"use engine vllm@{row.until}",),
        )
    if has_kind(model, *_OWN_KINDS):
        return Refusal(
            "unsupported-model",
            f"vLLM {version} has no class for {name}: {row.since} is the first",
            help=(f"use engine vllm@{row.since}",),
        )
    return None  # through transformers, where that release of it has the class


def _families(model: Model, version: str) -> Refusal | None:
    for run in model.runs:
        for part in run.layer.parts:
            if part.family in NOT_SERVED:
                what = NOT_SERVED[part.family]
                return Refusal("unsupported-model", f"vLLM has no class for {what} ({part.family} layers)")
    crossed = any(part.kind is Kind.CROSS for run in model.runs for part in run.layer.parts)
    row = GENERATING.get(model.architecture or "")
    if crossed and (row is None or not released(row.since, row.until, version)):
        what = model.architecture or model.model_type
        return Refusal("unsupported-model", f"vLLM does not serve the encoder-decoder model {what}")
    return None


LEAST_CAPABILITY = {
    **dict.fromkeys(("mxfp4", "fbgemm_fp8", "experts_int8"), (8, 0)),
    **dict.fromkeys(("fp8", "modelopt", "modelopt_fp4", "modelopt_mixed", "awq", "torchao"), (7, 5)),
    **dict.fromkeys(("compressed-tensors", "bitsandbytes", "quark"), (7, 0)),
    **dict.fromkeys(("gptq", "inc"), (6, 0)),
    "fp_quant": (10, 0),
}
"""Method of quantisation → the oldest NVIDIA GPUs that any release runs it on: get_min_capability in
vllm/model_executor/layers/quantization/, held against the GPU in vllm/config/vllm.py."""


def _quantisation(model: Model, settings: Layout, resolved: Resolved) -> Refusal | None:
    """The method that the weights are stored in, or quantised by while loading, needs newer kernels."""
    method = settings.quantization or model.quantization or ""
    least, device = LEAST_CAPABILITY.get(method), resolved.device
    if least is None or device.vendor != "nvidia" or device.capability >= least:
        return None
    had, needed = (".".join(map(str, pair)) for pair in (device.capability, least))
    return Refusal(
        "quantization",
        f"vLLM's {method} kernels need compute capability {needed} or newer: {device.name} has {had}",
        help=(f"choose a GPU of compute capability {needed} or newer",),
    )


STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")
"""vllm/config/cache.py, MambaDType."""


def _dtypes(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    device = resolved.device
    asked = OTHER_WORDS.get(settings.kv_cache_dtype, settings.kv_cache_dtype)
    if (
        has_kind(model, Kind.COMPRESSED)
        and asked in ("auto", "bfloat16")
        and not rules_of(version).latent_words
    ):
        return Refusal(
            "kv-cache-dtype",
            f"before 0.30 vLLM's DeepSeek-V4 has to be asked for an fp8 cache, got {asked}",
            help=("--kv-cache-dtype fp8",),
        )
    own_dtype = resolved.dtype.name
    beside = resolved.state_only or has_kind(model, Kind.INDEXER)
    if asked in ("bfloat16", "float16") and not (rules_of(version).float_words or beside):
        return Refusal(
            "kv-cache-dtype",
            f"before 0.15 no attention backend of vLLM takes a cache asked for as {asked}",
            help=("--kv-cache-dtype auto",),
        )
    if rules_of(version).one_float and asked in ("bfloat16", "float16") and asked != own_dtype:
        return Refusal(
            "kv-cache-dtype",
            f"vLLM {version} keeps no {asked} cache of a model that runs in {own_dtype}",
            help=("--kv-cache-dtype auto",),
        )
    none = unsupported("vllm", "vLLM", version, resolved.kv, device.name, device.vendor, device.capability)
    # DeepSeek-V4's records are what its class keeps, not what was asked for.
    own = resolved.kv == "fp8_ds_mla" and has_kind(model, Kind.COMPRESSED)
    # Where no GPU is named, and where no layer keeps K and V, the release alone decides.
    anywhere = device.assumed or resolved.state_only
    somewhere = anywhere and any(row.in_release(version) for row in rows_of("vllm", resolved.kv))
    if none is not None and not own and not somewhere:
        return Refusal("kv-cache-dtype", none.message, help=none.help)
    for word in (settings.mamba_cache_dtype, settings.mamba_ssm_cache_dtype):
        if word not in STATE_DTYPES:
            return Refusal("mamba-cache-dtype", f"vLLM keeps no states in {word}")
    kda = any(part.family == "kda" for run in model.runs for part in run.layer.parts)
    if kda and settings.mamba_ssm_cache_dtype == "float16":
        return Refusal("mamba-cache-dtype", "KDA's recurrent state is float32 or bfloat16")
    if resolved.dtype.name == "float16" and model.model_type in NO_FLOAT16:
        return Refusal(
            "dtype", f"{model.model_type} is numerically unstable in float16", help=("--dtype bfloat16",)
        )
    return None


def _positions(model: Model, version: str) -> Refusal | None:
    """GPT-J's checkpoint names its own rotation as a scaling, which get_rope does not know: since 0.12 it is
    handed on (vllm/model_executor/models/gpt_j.py, layers/rotary_embedding)."""
    if rules_of(version).rotation_handed_on and model.facts.get("rope_type") == "gptj":
        return Refusal("unsupported-model", f"vLLM {version} knows no rope scaling of type gptj")
    return None


def _length(settings: Layout, resolved: Resolved) -> Refusal | None:
    longest, asked = resolved.lengths.longest, resolved.lengths.max_model_len
    if settings.max_model_len is not None and longest is not None and asked > longest:
        return Refusal(
            "max-model-len",
            f"max_model_len {asked:,} is greater than the {longest:,} that the model's config allows",
            largest_max_model_len=longest,
            help=(
                f"--max-model-len {longest}",
                "set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 where the model bears it",
            ),
        )
    return None


UNDIVIDED = frozenset({"MllamaForConditionalGeneration"})
"""Classes that vLLM runs through transformers, which says nothing of how they are divided."""


def _parallel(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    tp, heads = resolved.tp, model.num_attention_heads
    if (
        model.architecture in UNDIVIDED
        and not rules_of(version).replicated_unplanned
        and tp * resolved.pp > 1
    ):
        what = "tensor" if tp > 1 else "pipeline"
        return Refusal(f"{what}-parallel", f"transformers' {model.architecture} has no {what}-parallel plan")
    whole = dict(settings.engine_options).get("mm_encoder_tp_mode") == "data"
    if not _divides(model, tp, version):
        ways = next(size for size in range(tp - 1, 0, -1) if _divides(model, size, version))
        why = f"{heads} attention heads" if heads % tp else _whole_part(model, tp)
        if why is None:
            return undivided_encoder(model, tp, version, ways, whole=whole)
        message = f"{why} cannot be divided over {tp} tensor-parallel ranks"
        return Refusal("tensor-parallel", message, help=(f"--tp {ways}",))
    if resolved.pp > 1 and model.architecture in NO_PIPELINE:
        return Refusal("pipeline-parallel", f"{model.architecture} cannot be split into pipeline stages")
    return None


def _divides(model: Model, tp: int, version: str) -> bool:
    """Whether every layer of the decoder, and the encoder beside it, can be divided over so many ranks."""
    heads = model.num_attention_heads
    return tp == 1 or not (heads % tp or _whole_part(model, tp) or encoder_heads(model, version) % tp)


def _whole_part(model: Model, tp: int) -> str | None:
    """What the first layer has that cannot be divided."""
    parts = (part for run in model.runs for part in run.layer.parts)
    return next(
        (why for part in parts if (why := _undivided(part, tp) or _unreplicated(model, part, tp))), None
    )


_STATE_HEADS = ("num_heads", "num_v_heads", "d_inner", "hidden_size")


def _undivided(part: Part, tp: int) -> str | None:
    """The heads that neither divide over the ranks nor are a whole number of ranks each."""
    if tp == 1:
        return None
    if part.kind is Kind.STATE:
        if isinstance(part, Mamba2) and part.n_groups > 1 and part.n_groups % tp:
            return f"{part.n_groups} groups of mamba2"
        for name in _STATE_HEADS:
            value = getattr(part, name, None)
            if isinstance(value, int) and value % tp:
                return f"{value} ({name} of {part.family})"
        return None
    heads = getattr(part, "num_kv_heads", None)
    if isinstance(heads, int) and (heads % tp if heads >= tp else tp % heads):
        return f"{heads} KV heads"
    return None


def _unreplicated(model: Model, part: Part, tp: int) -> str | None:
    """GptOss divides its KV heads without replicating them (models/gpt_oss.py)."""
    heads = getattr(part, "num_kv_heads", None)
    if model.model_type == "gpt_oss" and isinstance(heads, int) and heads < tp:
        return f"{heads} KV heads, which this class does not replicate,"
    return None


def _experts(model: Model, settings: Layout) -> Refusal | None:
    """vllm/config/model.py, _verify_with_expert_parallelism (0.8 and later): it looks at the text config's
    own keys, so that DBRX, whose experts are counted one level deeper, is refused too."""
    if not settings.enable_expert_parallel or not model.config or num_experts(model):
        return None
    return Refusal(
        "expert-parallel",
        f"{model.id} has no experts, and expert parallelism is asked for",
        help=("leave out --enable-expert-parallel",),
    )


def _prefill_context(model: Model, settings: Layout, version: str) -> Refusal | None:
    if not settings.engine_options:
        return None
    from kvplan.engines.vllm import prefill_context

    return prefill_context.refusal_of(model, settings, version)


def _context_parallel(model: Model, settings: Layout, resolved: Resolved) -> Refusal | None:
    """Decode context parallelism splits the tensor-parallel ranks that would hold the same KV heads; with
    prefill context parallelism its ranks (`kvplan.engines.vllm.prefill_context`)."""
    dcp, tp = resolved.dcp, resolved.tp
    if dcp == 1:
        return None
    if further_ranks(settings) > 1:
        return None
    if tp % dcp:
        return Refusal("context-parallel", f"{tp} tensor-parallel ranks cannot be split into groups of {dcp}")
    if any(part.kind in (Kind.SLIDING, Kind.CHUNKED) for run in model.runs for part in run.layer.parts):
        return Refusal("context-parallel", "decode context parallelism does not support sliding windows")
    lead = lead_attention(model)
    if lead is None:
        return Refusal("context-parallel", "a model without attention has no positions to split")
    if isinstance(lead, MultiHeadLatentAttention) and keeps_latent(model):
        return None
    heads = getattr(lead, "num_kv_heads", 0) or getattr(lead, "num_heads", 0)
    if tp <= heads:
        return Refusal(
            "context-parallel",
            f"decode context parallelism needs more than {heads} tensor-parallel ranks (one per KV head)",
        )
    if dcp > tp // heads:
        return Refusal(
            "context-parallel",
            f"at most {tp // heads} decode-context-parallel ranks share {heads} KV heads at tp {tp}",
            help=(f"--dcp {tp // heads}",),
        )
    if (model.num_attention_heads // heads) % dcp:
        return Refusal(
            "context-parallel",
            f"{model.num_attention_heads // heads} query heads per KV head cannot be divided by {dcp}",
        )
    return None


def _index_keys(model: Model, resolved: Resolved) -> Refusal | None:
    """vllm/v1/attention/backends/mla/indexer.py, dsa_indexer_uses_fp4."""
    device = resolved.device
    if resolved.index_kv != "mxfp4" or not has_kind(model, Kind.INDEXER, Kind.COMPRESSED):
        return None
    if not has_kind(model, Kind.COMPRESSED):
        raise KvplanError(
            "unknown-rule",
            f"what the indexer of {model.model_type} models keeps in mxfp4 is not known",
            help="leave out --indexer-kv-dtype",
        )
    if (device.vendor == "nvidia" and device.major == 10) or device.target == "gfx950":
        return None
    return Refusal(
        "cannot-start",
        f"indexer_kv_dtype mxfp4 needs compute capability 10.x, or gfx950 with AITER, not {device.name}",
        help=("leave out --indexer-kv-dtype",),
    )


def _drafts(model: Model, settings: Layout, version: str) -> Refusal | None:
    draft = settings.speculative_model
    same = draft is None or settings.speculative_method != "draft_model"
    if not same and draft is not None and draft.vocab_size != model.vocab_size:
        return Refusal(
            "speculative",
            f"target and draft must have the same vocabulary: {model.vocab_size:,} tokens, and"
            f" {draft.vocab_size:,} of {draft.id}",
        )
    if draft is not None and draft.num_attention_heads % settings.tensor_parallel_size:
        return Refusal(
            "speculative",
            f"{draft.num_attention_heads} attention heads of {draft.id} cannot be divided over"
            f" {settings.tensor_parallel_size} tensor-parallel ranks",
        )
    if settings.speculative_method != "mtp" or not settings.num_speculative_tokens:
        return None
    if settings.pipeline_parallel_size > 1 and drafts_in_stages(model.model_type, version) is False:
        return Refusal(
            "pipeline-parallel",
            f"pipeline parallelism is not supported for the class that drafts for {model.model_type} in"
            f" vLLM {version} (it is no SupportsPP)",
            help=("--pp 1",),
        )
    rule = lineage_of(model.model_type).prediction
    if not model.draft_layers or (rule is not None and not rule.built_by_vllm(model.architecture)):
        return Refusal(
            "speculative",
            f"{model.id} has no multi-token-prediction layers",
            help=("leave out --speculative",),
        )
    return None
