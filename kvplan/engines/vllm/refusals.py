"""What vLLM refuses before it plans: the checks of its configuration classes that touch the cache.

vllm-project/vllm 0.32 vllm/config/model.py (verify_with_parallel_config, _get_and_verify_max_len).
"""

from __future__ import annotations

from dataclasses import replace

from kvplan.architectures.config.activation_shape import num_experts
from kvplan.engines.base import has_kind, parse_version, too_many_stages
from kvplan.engines.block_refusal import is_assumed
from kvplan.engines.class_rules import check_class
from kvplan.engines.kv_support import minor_of
from kvplan.engines.vllm.architectures import NO_PIPELINE
from kvplan.engines.vllm.backend_rows import backend_rows, row_of
from kvplan.engines.vllm.class_refusals import class_refusal, family_refusal, rotation_refusal
from kvplan.engines.vllm.divided_blocks import divided_refusal, part_refusal
from kvplan.engines.vllm.draft_lengths import shorter_draft
from kvplan.engines.vllm.draft_stages import draft_refusal
from kvplan.engines.vllm.encoders import encoder_heads, undivided_encoder
from kvplan.engines.vllm.format_refusals import dtype_refusal, quantisation_refusal
from kvplan.engines.vllm.own_types import check_own_rules, own_refusal
from kvplan.engines.vllm.resolve import AHEAD, OWN_CACHE, Resolved, asked_word, keeps_latent, lead_attention
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, Mamba2, MultiHeadLatentAttention, Part
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout, further_ranks


def refusal_of(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """The first reason for which the engine would not start, or None.

    In the engine's order: what its configuration objects refuse (vllm/engine/arg_utils.py,
    create_engine_config; vllm/config/), then what stops it while it builds the model. Raises
    KvplanError(unknown-rule) for a type that vLLM serves by rules that kvplan does not know.
    """
    check_own_rules(model, version)
    _check_large_blocks(model, settings, version)
    refusal = _first(model, settings, resolved, version)
    if refusal is None:
        _check_own_cache(model, settings, version)
        return None
    return _with_ranks(refusal, model, settings, resolved, version)


def _first(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    return (
        _backend_of_release(settings, version)
        or class_refusal(model, version)
        or check_class(model, "vLLM")
        or family_refusal(model, version)
        or _length(settings, resolved)
        or draft_refusal(model, settings, version)
        or _batch(resolved)
        or shorter_draft(model, settings, rules_of(version), caching=resolved.prefix_caching)
        or _heads(model, resolved, version)
        or _experts(model, settings)
        or _prefill_context(model, settings, version)
        or _context_parallel(model, settings, resolved)
        or _nameless(model, resolved, version)
        or _asynchronous(settings, version)
        or quantisation_refusal(model, settings, resolved)
        or dtype_refusal(model, settings, resolved, version)
        or rotation_refusal(model, version)
        or _parallel(model, settings, resolved, version)
        or part_refusal(model, settings, resolved, version)
        or (None if is_assumed(model, settings) else divided_refusal(model, settings, resolved, version))
        or too_many_stages(model, settings)
        or _index_keys(model, resolved)
        or own_refusal(model, resolved)
        or _adapters(model, settings)
    )


def _with_ranks(
    refusal: Refusal, model: Model, settings: Layout, resolved: Resolved, version: str
) -> Refusal:
    """The refusal of tensor-parallel ranks with the most, below those asked for, with which vLLM starts."""
    if refusal.code != "tensor-parallel":
        return refusal

    def starts(tp: int) -> bool:
        fewer = replace(resolved, tp=tp)
        return (
            _divides(model, tp, version)
            and _first(model, replace(settings, tensor_parallel_size=tp), fewer, version) is None
        )

    sizes = (tp for tp in range(resolved.tp - 1, 0, -1) if starts(tp))
    ranks = tuple(f"--tp {tp}" for tp in (next(sizes, None),) if tp is not None)
    others = tuple(way for way in refusal.help if not way.startswith("--tp "))
    return replace(refusal, help=(*ranks, *others))


def _check_own_cache(model: Model, settings: Layout, version: str) -> None:
    """Raises KvplanError(unknown-rule): MiMo-V2 heeds no format of the cache before 0.32, but TurboQuant
    pads the pages of its windows (layers/attention/attention.py, skip_page_size_padded)."""
    rules, word = rules_of(version), asked_word(settings)
    if model.model_type not in OWN_CACHE or rules.mimo_cache_dtype or not word.startswith("turboquant_"):
        return
    if rules.unquantized_layers:
        raise KvplanError(
            "unknown-rule",
            f"{model.model_type} keeps its cache in its own dtype before 0.32; how pages are padded beside"
            f" {word} is not known",
            help="leave out --kv-cache-dtype",
        )


_READ = (0, 20)
"""The first release whose registry is compared by name."""


def _backend_of_release(settings: Layout, version: str) -> Refusal | None:
    """vllm/v1/attention/backends/registry.py: a name that the release does not know stops the arguments."""
    name = (settings.attention_backend or "").upper()
    rows = backend_rows().get(name, ())
    if not rows or parse_version(version)[:2] < _READ or row_of(name, version) is not None:
        return None
    since = next((row.since for row in rows if minor_of(row.since or "0") > minor_of(version)), None)
    return Refusal(
        "cannot-start",
        f"vLLM {version} has no attention backend {name}" + (f": {since} is the first" if since else ""),
        help=(f"use engine vllm@{since}",) if since else ("leave out --attention-backend",),
    )


def _adapters(model: Model, settings: Layout) -> Refusal | None:
    if not settings.engine_options:
        return None
    from kvplan.engines.vllm.adapters import lora_refusal

    return lora_refusal(model, settings)


def _check_large_blocks(model: Model, settings: Layout, version: str) -> None:
    """Raises KvplanError(unknown-rule): 0.32 and 0.33 pack more bytes into DeepSeek-V4's blocks of 512 tokens
    than their pages have (asked; equal up to 256, and until 0.31)."""
    size = settings.block_size or 0
    if size > 256 and has_kind(model, Kind.COMPRESSED) and minor_of(version) >= minor_of("0.32"):
        raise KvplanError(
            "unknown-rule",
            f"what vLLM {version} packs into a block of {size} tokens of {model.model_type} is not known",
            help="--block-size 256",
        )


def _length(settings: Layout, resolved: Resolved) -> Refusal | None:
    longest, asked = resolved.lengths.longest, settings.max_model_len
    if asked is not None and longest is not None and asked > longest:
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


def _batch(resolved: Resolved) -> Refusal | None:
    """vllm/config/scheduler.py, verify_max_model_len (since 0.8): a step has a token for each request."""
    tokens, seqs = resolved.batch.tokens, resolved.batch.seqs
    if tokens >= seqs:
        return None
    return Refusal(
        "max-num-batched-tokens",
        f"max_num_batched_tokens {tokens:,} is less than max_num_seqs {seqs:,}",
        help=(f"--max-num-batched-tokens {seqs}", f"--max-num-seqs {tokens}"),
    )


def _heads(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """vllm/config/model.py, verify_with_parallel_config: what it looks at before the model is built."""
    heads, tp = model.num_attention_heads, resolved.tp
    if not heads % tp:
        return None
    message = f"{heads} attention heads cannot be divided over {tp} tensor-parallel ranks"
    return Refusal("tensor-parallel", message)


NAMELESS = frozenset({"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"})
"""Classes whose language model has no architecture of its own until 0.30 (vllm-project/vllm#43271)."""


def _nameless(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """vllm/model_executor/models/qwen3_vl.py: the text's config is checked again, without a class that could
    say whether it runs in stages, since 0.28 whether it keeps latents. Asked of 0.20 to 0.29."""
    if model.architecture not in NAMELESS or not minor_of("0.20") <= minor_of(version) < minor_of("0.30"):
        return None
    what = "pipeline stages" if resolved.pp > 1 else ""
    if not what and resolved.dcp > 1 and minor_of(version) >= minor_of("0.28"):
        what = "decode context parallelism"
    if not what:
        return None
    return Refusal(
        "pipeline-parallel" if resolved.pp > 1 else "context-parallel",
        f"vLLM {version} stops with {what} of {model.architecture}: its language model has no architecture"
        " (vllm-project/vllm#43271, mended in 0.30)",
        help=("use engine vllm@0.30",),
    )


def _asynchronous(settings: Layout, version: str) -> Refusal | None:
    """vllm/config/vllm.py: until 0.33 nothing runs ahead of lookups that was told to."""
    method = settings.speculative_method if settings.num_speculative_tokens else None
    if not settings.async_scheduling or rules_of(version).lookups_async or method in (None, *AHEAD):
        return None
    return Refusal(
        "speculative",
        f"vLLM {version} does not schedule ahead (--async-scheduling) of drafts by {method}",
        help=("leave out --async-scheduling",),
    )


UNDIVIDED = frozenset({"MllamaForConditionalGeneration"})
"""Classes that vLLM runs through transformers, which says nothing of how they are divided."""


def _parallel(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    tp = resolved.tp
    if (
        model.architecture in UNDIVIDED
        and not rules_of(version).replicated_unplanned
        and tp * resolved.pp > 1
    ):
        what = "tensor" if tp > 1 else "pipeline"
        return Refusal(f"{what}-parallel", f"transformers' {model.architecture} has no {what}-parallel plan")
    whole = dict(settings.engine_options).get("mm_encoder_tp_mode") == "data"
    if not _divides(model, tp, version):
        why = _whole_part(model, tp)
        if why is None:
            return undivided_encoder(model, tp, version, whole=whole)
        return Refusal("tensor-parallel", f"{why} cannot be divided over {tp} tensor-parallel ranks")
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


UNREPLICATED = frozenset(("gpt_oss", "param2moe", "pangu_pro_moe_v2", "PanguProMoE"))
UNNAMED_LATENTS = frozenset(("sarvam_mla", "longcat_flash_ngram"))
"""Latent layers of types that is_deepseek_mla does not name: the KV heads that the config states count."""
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
    """Classes that divide their KV heads without replicating them (models/gpt_oss.py, param2moe.py,
    openpangu.py)."""
    heads = getattr(part, "num_kv_heads", None)
    if model.model_type in UNREPLICATED and isinstance(heads, int) and heads < tp:
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
    windows = any(part.kind in (Kind.SLIDING, Kind.CHUNKED) for run in model.runs for part in run.layer.parts)
    if windows and not resolved.disable_hybrid:  # which keeps every token of theirs
        return Refusal("context-parallel", "decode context parallelism does not support sliding windows")
    lead = lead_attention(model)
    if lead is None:
        return Refusal("context-parallel", "a model without attention has no positions to split")
    unnamed = model.model_type in UNNAMED_LATENTS
    if isinstance(lead, MultiHeadLatentAttention) and keeps_latent(model) and not unnamed:
        return None
    heads = getattr(lead, "num_kv_heads", 0) or getattr(lead, "num_heads", 0)
    if unnamed and isinstance(stated := (model.config or {}).get("num_key_value_heads"), int):
        heads = max(stated, 1)
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
