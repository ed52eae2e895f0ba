"""The classes that a release of vLLM has, and what they do not build.

vllm-project/vllm 0.32 vllm/model_executor/models/registry.py.

Types with cache specs of their own in vLLM: the releases whose rules are known, and what they refuse.

vllm-project/vllm 0.33 vllm/models/; `tests/engines/vllm_own_cases.py` has what its planner was asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.base import has_kind, parse_version
from kvplan.engines.kv_support import minor_of, released
from kvplan.engines.vllm.cache_layout.built_model import stage_bounds
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.start.architectures import (
    GENERATING,
    POOLING,
    THROUGH_TRANSFORMERS,
    grouped_keys,
    has_ngrams,
)
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.engines.vllm.start.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, WindowedConvolution
from kvplan.model import Model
from kvplan.results import Refusal

NOT_SERVED = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}
"""Families that no vLLM class builds."""


def class_refusal(model: Model, version: str) -> Refusal | None:
    """A class that the release builds, or a transformers class that it runs as it stands."""
    if model.architecture is None:
        return None
    name = class_of(model.architecture).registered_as or model.architecture
    row = GENERATING.get(name) or POOLING.get(name)
    if row is not None and released(row.since, row.until, version):
        return _forgotten(name, version)
    if name in THROUGH_TRANSFORMERS and not has_kind(model, Kind.STATE):
        return None
    if row is None:
        _check_remote(model, name, version)
        return Refusal("unsupported-model", f"vLLM {version} has no class for {name}")
    if row.until and minor_of(version) > minor_of(row.until):
        return Refusal(
            "unsupported-model",
            f"vLLM built {name} until {row.until} and does not any more",
            help=(f"use engine vllm@{row.until}",),
        )
    return Refusal(
        "unsupported-model",
        f"vLLM {version} has no class for {name}: {row.since} is the first",
        help=(f"use engine vllm@{row.since}",),
    )


def _check_remote(model: Model, name: str, version: str) -> None:
    """The repository's own code is run where it is compatible (registry.py, _try_resolve_transformers), which
    only its code says. Raises KvplanError(unknown-rule)."""
    mapped = (model.config or {}).get("auto_map")
    if not isinstance(mapped, Mapping) or not any(str(key).startswith("AutoModel") for key in mapped):
        return
    raise KvplanError(
        "unknown-rule",
        f"vLLM {version} has no class for {name}; whether the repository's own code (auto_map) runs through"
        " its Transformers backend is not known",
        help="--engine transformers sizes it by its model_type",
    )


def _forgotten(name: str, version: str) -> Refusal | None:
    gone = class_of(name).gone
    if not gone or not minor_of(gone[0]) <= minor_of(version) < minor_of(gone[1]):
        return None
    since, until = gone
    return Refusal(
        "unsupported-model",
        f"vLLM {since} to {until} have no class named {name}: {until} has it again",
        help=(f"use engine vllm@{until}",),
    )


def family_refusal(model: Model, version: str) -> Refusal | None:
    for run in model.runs:
        for part in run.layer.parts:
            if part.family in NOT_SERVED:
                what = NOT_SERVED[part.family]
                return Refusal("unsupported-model", f"vLLM has no class for {what} ({part.family} layers)")
    crossed = any(part.kind is Kind.CROSS for run in model.runs for part in run.layer.parts)
    row = GENERATING.get(model.architecture or "")
    if crossed and (row is None or not released(row.since, row.until, version)):
        what = model.architecture or model.model_type
        return Refusal("unsupported-model", f"{what} is an encoder-decoder model, and it has no class for it")
    return None


def rotation_refusal(model: Model, version: str) -> Refusal | None:
    """GPT-J's checkpoint names its own rotation as a scaling, which get_rope does not know: since 0.12 it is
    handed on (vllm/model_executor/models/gpt_j.py, layers/rotary_embedding)."""
    if rules_of(version).rotation_handed_on and model.facts.get("rope_type") == "gptj":
        return Refusal("unsupported-model", f"vLLM {version} knows no rope scaling of type gptj")
    return None


# Types with cache classes of their own → the first release whose rules of them are known here; those that
# stand for none are not described.
OWN_RULES = {
    "inkling_text": "0.26",
    "glm5_next_text": "0.30",
    "dots3_note": "0.28",
    "dots3_note_text": "0.28",
    "deepseek_v41_text": "0.30",
    "qwen4_exp_text": "0.29",
}


def check_own_rules(model: Model, version: str) -> None:
    """Raises KvplanError(unknown-rule)."""
    since = OWN_RULES.get(model.model_type)
    if since is None or (since and minor_of(version) >= minor_of(since)):
        return
    row = GENERATING.get(model.architecture or "")
    if since and row is not None and not released(row.since, row.until, version):
        return
    raise _unknown(model, version, since or "")


def _unknown(model: Model, version: str, since: str, where: str = "") -> KvplanError:
    which = f"vLLM {version}'s" if since else "vLLM's"
    return KvplanError(
        "unknown-rule",
        f"{which} cache rules for {model.model_type} models{where} are not known",
        help=f"use vllm@{since} or newer" if since else "",
    )


def own_refusal(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """Raises KvplanError(unknown-rule)."""
    release = parse_version(version)[:2]
    if model.model_type == "deepseek_v41_text" and resolved.device.major == 10 and release < _V41_ON_10:
        raise _unknown(model, version, "0.31", f" on {resolved.device.name}")
    if class_of(model.architecture).one_rank and resolved.tp > 1:
        message = f"{model.architecture} runs on one tensor-parallel rank only, not on {resolved.tp}"
        return Refusal("tensor-parallel", message)
    return (
        _ngrams(model, resolved)
        or _convolutions(model, resolved)
        or _grouped(model, resolved, release)
        or _shared_latents(model, resolved)
    )


def _ngrams(model: Model, resolved: Resolved) -> Refusal | None:
    """vllm/models/qwen4_exp/nvidia/model_state.py: later stages do not get the ids that are looked up."""
    if resolved.pp == 1 or not has_ngrams(model):
        return None
    return Refusal(
        "pipeline-parallel",
        "its n-gram embeddings need the token ids, which only the first pipeline stage has",
        help=("--pp 1",),
    )


def _grouped(model: Model, resolved: Resolved, release: tuple[int, ...]) -> Refusal | None:
    """vllm/models/qwen4_exp/nvidia/qsa.py and its KV cache, in bfloat16, and since 0.31 in fp8; how many
    groups are chosen is free since 0.32 (config.py)."""
    if not any(grouped_keys(run.layer) for run in model.runs):
        return None
    if resolved.dcp > 1:
        return Refusal("context-parallel", "its indexed attention knows no context parallelism")
    if resolved.dtype.name != "bfloat16":
        return Refusal(
            "cannot-start",
            f"vLLM serves it in bfloat16 only, not in {resolved.dtype.name}",
            help=("--dtype bfloat16",),
        )
    if release < _GROUPED_FP8 and resolved.kv.startswith("fp8"):
        return Refusal(
            "kv-cache-dtype",
            f"vLLM {release[0]}.{release[1]} keeps its cache in bfloat16 only",
            help=("--kv-cache-dtype auto", "use engine vllm@0.31"),
        )
    chosen = model.facts.get("chosen_groups")
    if release < _ANY_GROUPS and chosen is not None and chosen not in _GROUPS:
        return Refusal(
            "cannot-start",
            f"its indexer chooses {chosen} groups of tokens, and vLLM {release[0]}.{release[1]}"
            f" serves {_GROUPS[0]} or {_GROUPS[1]} only",
            help=("use engine vllm@0.32",),
        )
    return None


_V41_ON_10 = (0, 31)
_GROUPED_FP8, _ANY_GROUPS, _GROUPS = (0, 31), (0, 32), (512, 2048)


def _convolutions(model: Model, resolved: Resolved) -> Refusal | None:
    """vllm/models/inkling/nvidia/sconv_swa_attn.py, InklingConvState."""
    parts = [part for run in model.runs for part in run.layer.parts]
    kept = [part for part in parts if isinstance(part, WindowedConvolution)]
    if not kept:
        return None
    if resolved.dtype.name != "bfloat16":
        return Refusal(
            "cannot-start",
            f"vLLM keeps its convolutions in bfloat16 only, not in {resolved.dtype.name}",
            help=("--dtype bfloat16",),
        )
    heads = min(part.num_kv_heads for part in kept)
    if resolved.tp > heads:
        return Refusal(
            "tensor-parallel",
            f"its convolutions are divided by whole KV heads: at most {heads} tensor-parallel"
            f" ranks, not {resolved.tp}",
            help=(f"--tp {heads}",),
        )
    return None


def _shared_latents(model: Model, resolved: Resolved) -> Refusal | None:
    """A stage has the layer whose latents its layers read (vllm/models/deepseek_v41/attention.py)."""
    if resolved.pp == 1 or not has_kind(model, Kind.COMPRESSED):
        return None
    layers, source = model.layers(), -1
    firsts = {first for first, _ in stage_bounds(len(layers), resolved.pp)}
    for index, layer in enumerate(layers):
        source = -1 if index in firsts else source
        parts = [part for part in layer.parts if part.kind is Kind.COMPRESSED]
        if any(part.index_of_latent and part.compress_rate for part in parts):
            source = index
        if source < 0 and any(part.borrows for part in layer.parts):
            return Refusal(
                "pipeline-parallel",
                f"layer {index} reads latents of a layer that {resolved.pp} pipeline stages put elsewhere",
                help=("--pp 1",),
            )
    return None
