"""Drafters that a model may have: draft models that fit it, and models whose own layers draft next to
pipeline stages.

vllm/config/model.py (verify_with_parallel_config): a drafter's class must be SupportsPP, as the target's.
Read in the classes of vllm-project/vllm 0.10.2 to 0.33.0, vllm/model_executor/models/*mtp*.py and
vllm/models/*/*mtp*.py; which class drafts for a model: vllm/config/speculative.py (hf_config_override).

What a draft's own length does to its target's (vllm-project/vllm, read in 0.20 to 0.33).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.architectures.config.drafts import how_many
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import split_quant
from kvplan.architectures.heads import ASSISTED
from kvplan.architectures.lineages import lineage_of
from kvplan.engines.base import has_kind
from kvplan.engines.release_rules import reached, within
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.start.defaults import Lengths, lengths_of
from kvplan.engines.vllm.start.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules, rules_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.own_options import NO_OPTIONS
from kvplan.record import replace
from kvplan.results import Refusal
from kvplan.settings import HEAD_METHODS, Layout

if TYPE_CHECKING:
    from kvplan.engines.vllm.start.resolve import Resolved

_UNTIL_013 = (("", "0.14"),)
_ALWAYS = (("", ""),)
PIPELINED: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "axk1"),
        _UNTIL_013,
    ),
    **dict.fromkeys(("glm4_moe_lite", "glm_ocr", "nemotron_h", "nemotron_h_puzzle", "qwen4_exp"), _ALWAYS),
    **dict.fromkeys(
        ("qwen3_next", "glm4_moe", "ernie4_5_moe", "longcat_flash", "pangu_ultra_moe"), _UNTIL_013
    ),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), ()),
    **dict.fromkeys(
        """mimo mimo_v2 mimo_v2_flash step3p5 step3p7 hy_v3 hy_v4 deepseek_v4 exaone_moe exaone4_5
        minimax_m3 minimax_m3_vl kimi_k3 inkling_mm_model dots3_note gemma4_assistant""".split(),
        (),
    ),
}
"""Model type → the releases [since, until) whose drafter is SupportsPP; an absent type is not known."""
_ASSISTED_SINCE = "0.21"


def drafts_in_stages(model_type: str, version: str) -> bool | None:
    """Whether the model's own layers draft beside pipeline stages; None where the class was not read."""
    ranges = PIPELINED.get(model_type)
    if rules_of(version).draft_on_one_stage:
        return True
    if ranges is None:
        return None
    return any(within(version, since, until) for since, until in ranges)


def draft_refusal(model: Model, settings: Layout, version: str) -> Refusal | None:
    """Drafts that vLLM's SpeculativeConfig refuses to run."""
    return (
        _unlike(model, settings) or _staged_head(settings, version) or _own_layers(model, settings, version)
    )


def _unlike(model: Model, settings: Layout) -> Refusal | None:
    """A draft of its own that does not fit its target or the ranks."""
    draft, ranks = settings.speculative_model, settings.tensor_parallel_size
    if draft is None:
        return None
    if settings.speculative_method == "draft_model" and draft.vocab_size != model.vocab_size:
        return Refusal(
            "speculative",
            f"target and draft must have the same vocabulary: {model.vocab_size:,} tokens, and"
            f" {draft.vocab_size:,} of {draft.id}",
        )
    if not draft.num_attention_heads % ranks:
        return None
    return Refusal(
        "speculative",
        f"{draft.num_attention_heads} attention heads of {draft.id} cannot be divided over"
        f" {ranks} tensor-parallel ranks",
    )


def _staged_head(settings: Layout, version: str) -> Refusal | None:
    head = settings.speculative_method in HEAD_METHODS
    if not head or settings.pipeline_parallel_size == 1 or rules_of(version).draft_on_one_stage:
        return None
    return Refusal(
        "pipeline-parallel",
        f"vLLM {version} divides what drafts too, and no EAGLE head runs in stages: 0.30 is the first",
        help=("--pp 1", "use engine vllm@0.30"),
    )


def _own_layers(model: Model, settings: Layout, version: str) -> Refusal | None:
    """The model's own layers, or its assistant, draft (method mtp)."""
    count, assisted = settings.num_speculative_tokens, model.architecture in ASSISTED
    if settings.speculative_method != "mtp" or not count:
        return None
    since = _ASSISTED_SINCE if assisted else class_of(model.architecture).drafts_since
    if not reached(version, since):
        return Refusal(
            "speculative",
            f"vLLM {version} drafts with no layers of {model.architecture}: {since} is the first",
            help=("leave out --speculative", f"use engine vllm@{since}"),
        )
    if assisted:
        return None
    rule = lineage_of(model.model_type).prediction
    built = rule is None or rule.built_by_vllm(model.architecture)
    if not model.draft_layers or not built:
        what = f"{model.id} has no" if built else f"vLLM builds for {model.architecture} no"
        return Refusal(
            "speculative",
            f"{what} multi-token-prediction layers",
            help=("leave out --speculative",),
        )
    steps = _steps(model)
    if count > steps and count % steps:
        return Refusal(
            "speculative",
            f"{count} tokens to draft are no multiple of the {steps} that the layers of {model.id} predict",
            help=(f"--speculative mtp:{count // steps * steps}",),
        )
    if settings.pipeline_parallel_size > 1 and drafts_in_stages(model.model_type, version) is False:
        return Refusal(
            "pipeline-parallel",
            f"pipeline parallelism is not supported for the class that drafts for {model.model_type} in"
            f" vLLM {version} (it is no SupportsPP)",
            help=("--pp 1",),
        )
    return None


def _steps(model: Model) -> int:
    """Steps that the model's own layers predict: n_predict of vllm/config/speculative.py. A card keeps the
    keys of a config that no table of it has: there its layers say it."""
    stated = how_many(find_text_part(split_quant(model.config)[0])) if model.config else 0
    return stated or len(model.draft_layers)


_STRETCHED = frozenset({"default", "linear", "llama3", "ntk", "proportional"})
"""Rotations that a longer table serves (vllm/config/speculative.py, _CACHE_ONLY_ROPE_TYPES)."""


def draft_length(settings: Layout, rules: Rules) -> int | None:
    """The length that the draft's config states; None without a draft of its own."""
    draft = settings.speculative_model
    if draft is None or not settings.num_speculative_tokens:
        return None
    return lengths_of(draft, replace(settings, max_model_len=None, own=NO_OPTIONS), rules).max_model_len


def bounded(lengths: Lengths, model: Model, settings: Layout, rules: Rules) -> Lengths:
    """Since 0.33 the second runner's max_model_len is the draft's where that is less: it cannot leave out
    speculation for what is longer (vllm/config/vllm.py, _limit_max_model_len_to_draft). A head takes its
    target's positions (vllm/config/speculative.py, draft_shares_target_positions)."""
    own, draft = draft_length(settings, rules), settings.speculative_model
    if own is None or draft is None or own >= lengths.max_model_len or not rules.bounded_by_draft:
        return lengths
    rope = str(draft.facts.get("rope_type", "default"))
    if settings.speculative_method != "draft_model" and rope in _STRETCHED:
        return lengths
    return replace(lengths, max_model_len=own) if runner_of(model, settings, rules.release) == V2 else lengths


def shorter_draft(model: Model, settings: Layout, resolved: Resolved, rules: Rules) -> Refusal | None:
    """vllm/config/vllm.py, validate_mamba_block_size: without prefix caching a state has a block of the
    max_model_len that was asked for, and the config that a draft model is built with
    (v1/spec_decode/draft_model.py) is checked again, with the draft's own length."""
    if (
        resolved.prefix_caching
        or settings.speculative_method != "draft_model"
        or not has_kind(model, Kind.STATE)
    ):
        return None
    own, asked = draft_length(settings, rules), lengths_of(model, settings, rules).max_model_len
    if own is None or own >= asked:
        return None
    return Refusal(
        "speculative",
        f"without prefix caching a model with states takes no draft model of a length ({own:,}) below its own"
        f" max_model_len {asked:,}",
        help=(f"--max-model-len {own}", "--enable-prefix-caching"),
    )
