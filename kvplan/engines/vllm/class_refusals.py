"""The classes that a release of vLLM has, and what they do not build.

vllm-project/vllm 0.32 vllm/model_executor/models/registry.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.base import has_kind
from kvplan.engines.kv_support import minor_of, released
from kvplan.engines.vllm.architectures import GENERATING, POOLING, THROUGH_TRANSFORMERS
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
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

OTHER_NAMES = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM",
    "Dots3NoteForConditionalGeneration": "Dots3NoteForCausalLM",
}
"""Names that a public copy of a config, or transformers, gives a class, and the registry's."""


def class_refusal(model: Model, version: str) -> Refusal | None:
    """A class that the release builds, or a transformers class that it runs as it stands."""
    if model.architecture is None:
        return None
    name = OTHER_NAMES.get(model.architecture, model.architecture)
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


FORGOTTEN = {"ExaoneMoEForCausalLM": ("0.27", "0.32")}
"""Names that the registry lost and got back: [since, until)."""


def _forgotten(name: str, version: str) -> Refusal | None:
    since, until = FORGOTTEN.get(name, ("99", "99"))
    if not minor_of(since) <= minor_of(version) < minor_of(until):
        return None
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
