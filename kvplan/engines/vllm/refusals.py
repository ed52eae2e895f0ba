"""What vLLM refuses before it plans: the checks of its configuration classes that touch the cache.

vllm-project/vllm 0.32 vllm/config/model.py (verify_with_parallel_config, _get_and_verify_max_len) and
vllm/model_executor/models/registry.py.
"""

from __future__ import annotations

from kvplan.engines.base import parse_version
from kvplan.engines.vllm.resolve import Resolved, keeps_latent, lead_attention
from kvplan.engines.vllm.versions import LAST_RELEASE
from kvplan.families import Kind, MultiHeadLatentAttention, Part
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Settings

# Families that no vLLM class builds.
NOT_SERVED = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}
# Encoder-decoder classes that are built in the tree; text ones need a plug-in since the V0 engine was removed.
ENCODER_DECODERS = ("Whisper", "CohereAsr", "FireRed", "Nemotron")


def refusal_of(model: Model, settings: Settings, resolved: Resolved, version: str) -> Refusal | None:
    """The first reason for which the engine would not start, or None."""
    return (
        _architecture(model, version)
        or _families(model)
        or _length(settings, resolved)
        or _parallel(model, resolved)
        or _context_parallel(model, resolved)
        or _drafts(model, settings)
    )


def _architecture(model: Model, version: str) -> Refusal | None:
    name = model.architecture or ""
    last = LAST_RELEASE.get(name)
    if last is not None and parse_version(version)[:2] > parse_version(last)[:2]:
        return Refusal(
            "unsupported-model",
            f"vLLM built {name} until {last} and does not any more",
            help=(f"use engine vllm@{'.'.join(last.split('.')[:2])}",),
        )
    return None


def _families(model: Model) -> Refusal | None:
    for run in model.runs:
        for part in run.layer.parts:
            if part.family in NOT_SERVED:
                return Refusal(
                    "unsupported-model",
                    f"vLLM has no class for {NOT_SERVED[part.family]} ({part.family} layers)",
                )
    crossed = any(part.kind is Kind.CROSS for run in model.runs for part in run.layer.parts)
    if crossed and not (model.architecture or "").startswith(ENCODER_DECODERS):
        what = model.architecture or model.model_type
        return Refusal("unsupported-model", f"vLLM does not serve the encoder-decoder model {what}")
    return None


def _length(settings: Settings, resolved: Resolved) -> Refusal | None:
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
    if settings.tokens is not None and settings.tokens > asked:
        return Refusal(
            "request-too-long",
            f"a request of {settings.tokens:,} tokens is longer than max_model_len {asked:,}",
            help=(f"--tokens {asked}",),
        )
    return None


def _parallel(model: Model, resolved: Resolved) -> Refusal | None:
    tp, heads = resolved.tp, model.num_attention_heads
    if tp > 1 and heads % tp:
        return Refusal(
            "tensor-parallel",
            f"{heads} attention heads cannot be divided over {tp} tensor-parallel ranks",
            help=(f"--tp {_largest_divisor(heads, tp)}",),
        )
    for run in model.runs:
        for part in run.layer.parts:
            why = _undivided(part, tp)
            if why:
                return Refusal("tensor-parallel", f"{why} cannot be divided over {tp} tensor-parallel ranks")
    if resolved.pp > model.num_layers:
        return Refusal("pipeline-parallel", f"{model.num_layers} layers make fewer than {resolved.pp} stages")
    return None


_STATE_HEADS = ("num_heads", "num_v_heads", "d_inner", "hidden_size")


def _undivided(part: Part, tp: int) -> str | None:
    """The heads that neither divide over the ranks nor are a whole number of ranks each."""
    if tp == 1:
        return None
    if part.kind is Kind.STATE:
        for name in _STATE_HEADS:
            value = getattr(part, name, None)
            if isinstance(value, int) and value % tp:
                return f"{value} ({name} of {part.family})"
        return None
    heads = getattr(part, "num_kv_heads", None)
    if isinstance(heads, int) and (heads % tp if heads >= tp else tp % heads):
        return f"{heads} KV heads"
    return None


def _largest_divisor(value: int, limit: int) -> int:
    return next(size for size in range(min(value, limit), 0, -1) if value % size == 0) if value else 1


def _context_parallel(model: Model, resolved: Resolved) -> Refusal | None:
    """Decode context parallelism splits the tensor-parallel ranks that would hold the same KV heads."""
    dcp, tp = resolved.dcp, resolved.tp
    if dcp == 1:
        return None
    if tp % dcp:
        return Refusal("context-parallel", f"{tp} tensor-parallel ranks cannot be split into groups of {dcp}")
    if any(part.kind in (Kind.SLIDING, Kind.CHUNKED) for run in model.runs for part in run.layer.parts):
        return Refusal("context-parallel", "decode context parallelism does not support sliding windows")
    lead = lead_attention(model)
    if lead is None or (isinstance(lead, MultiHeadLatentAttention) and keeps_latent(model)):
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


def _drafts(model: Model, settings: Settings) -> Refusal | None:
    if settings.speculative_method == "mtp" and settings.num_speculative_tokens and not model.draft_layers:
        return Refusal(
            "speculative",
            f"{model.id} has no multi-token-prediction layers",
            help=("leave out --speculative",),
        )
    return None
