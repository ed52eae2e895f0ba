"""What a draft's own length does to its target's (vllm-project/vllm, read in 0.20 to 0.33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.base import has_kind
from kvplan.engines.vllm.defaults import Lengths, lengths_of
from kvplan.engines.vllm.runner import V2, runner_of
from kvplan.engines.vllm.versions import Rules
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.own_options import NO_OPTIONS
from kvplan.record import replace
from kvplan.results import Refusal
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.engines.vllm.resolve import Resolved

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
    return replace(lengths, max_model_len=own) if runner_of(model, settings, rules.runners) == V2 else lengths


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
