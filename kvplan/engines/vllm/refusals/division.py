"""How a model may be divided over ranks and stages in vLLM: heads, states, experts, positions.

vllm-project/vllm 0.32 vllm/config/model.py (verify_with_parallel_config), vllm/config/parallel.py and the
classes' own assertions. Blocks that share a scale are `divided_blocks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.architectures import NO_PIPELINE, keeps_latent, lead_attention
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.engines.vllm.versions import rules_of
from kvplan.families import Kind, Mamba2, Part
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout, further_ranks

if TYPE_CHECKING:
    from kvplan.architectures.config import activation_shape
    from kvplan.engines.vllm.encoder_profile import divided_encoders as towers
else:
    towers = later("kvplan.engines.vllm.encoder_profile", "divided_encoders")
    activation_shape = later("kvplan.architectures.config", "activation_shape")


def heads_refusal(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """vllm/config/model.py, verify_with_parallel_config: what it looks at before the model is built."""
    heads, tp = model.num_attention_heads, resolved.tp
    if not heads % tp:
        return None
    message = f"{heads} attention heads cannot be divided over {tp} tensor-parallel ranks"
    return Refusal("tensor-parallel", message)


def nameless_refusal(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """vllm/model_executor/models/qwen3_vl.py: the text's config is checked again, without a class that could
    say whether it runs in stages, since 0.28 whether it keeps latents. Asked of 0.20 to 0.29."""
    rules = rules_of(version)
    if not class_of(model.architecture).nameless_decoder or not rules.nameless_text:
        return None
    what = "pipeline stages" if resolved.pp > 1 else ""
    if not what and resolved.dcp > 1 and rules.nameless_latents:
        what = "decode context parallelism"
    if not what:
        return None
    return Refusal(
        "pipeline-parallel" if resolved.pp > 1 else "context-parallel",
        f"vLLM {version} stops with {what} of {model.architecture}: its language model has no architecture"
        " (vllm-project/vllm#43271, mended in 0.30)",
        help=("use engine vllm@0.30",),
    )


def parallel_refusal(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    tp = resolved.tp
    if (
        class_of(model.architecture).no_parallel_plan
        and not rules_of(version).replicated_unplanned
        and tp * resolved.pp > 1
    ):
        what = "tensor" if tp > 1 else "pipeline"
        return Refusal(f"{what}-parallel", f"transformers' {model.architecture} has no {what}-parallel plan")
    whole = VllmOptions.of(settings).mm_encoder_tp_mode == "data"
    if not divides(model, tp, version):
        why = _whole_part(model, tp)
        if why is None:
            return towers.undivided_encoder(model, tp, version, whole=whole)
        return Refusal("tensor-parallel", f"{why} cannot be divided over {tp} tensor-parallel ranks")
    if resolved.pp > 1 and model.architecture in NO_PIPELINE:
        return Refusal("pipeline-parallel", f"{model.architecture} cannot be split into pipeline stages")
    return None


def divides(model: Model, tp: int, version: str) -> bool:
    """Whether every layer of the decoder, and the encoder beside it, can be divided over so many ranks."""
    heads = model.num_attention_heads
    return tp == 1 or not (heads % tp or _whole_part(model, tp) or towers.encoder_heads(model, version) % tp)


def _whole_part(model: Model, tp: int) -> str | None:
    """The first layer's dimension that cannot be divided."""
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


def experts_refusal(model: Model, settings: Layout) -> Refusal | None:
    """vllm/config/model.py, _verify_with_expert_parallelism (0.8 and later): it looks at the text config's
    own keys, so that DBRX, whose experts are counted one level deeper, is refused too."""
    unbalanced = _balancer(settings) if settings.own else None
    if unbalanced is not None:
        return unbalanced
    if not settings.enable_expert_parallel or not model.config or activation_shape.num_experts(model):
        return None
    return Refusal(
        "expert-parallel",
        f"{model.id} has no experts, and expert parallelism is asked for",
        help=("leave out --enable-expert-parallel",),
    )


def _balancer(settings: Layout) -> Refusal | None:
    """vllm/config/parallel.py, _validate_parallel_config: the balancer moves experts between ranks."""
    own = VllmOptions.of(settings)
    if own.num_redundant_experts and not own.enable_eplb:
        return Refusal(
            "expert-parallel",
            f"{own.num_redundant_experts} redundant experts, and the balancer that fills them is off",
            help=("--enable-eplb", "leave out num_redundant_experts"),
        )
    ranks = settings.tensor_parallel_size * settings.data_parallel_size * further_ranks(settings)
    if not own.enable_eplb or (settings.enable_expert_parallel and ranks > 1):
        return None
    return Refusal(
        "expert-parallel",
        "--enable-eplb moves whole experts between ranks: it wants --enable-expert-parallel and several",
        help=("--enable-expert-parallel and --tp 2 or more", "leave out --enable-eplb"),
    )


def context_refusal(model: Model, settings: Layout, resolved: Resolved) -> Refusal | None:
    """Decode context parallelism splits the tensor-parallel ranks that would hold the same KV heads; with
    prefill context parallelism its ranks (`kvplan.engines.vllm.start.prefill_context`)."""
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
    if lead.kind is Kind.MLA and keeps_latent(model) and not unnamed:
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
