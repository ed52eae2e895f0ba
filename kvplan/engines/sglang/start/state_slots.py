"""How states are kept for reuse, what speculation adds, and the slots that follow.

sgl-project/sglang 0.5.23 arg_groups/overrides.py (_mamba_radix_cache_resolution), speculative_hook.py,
mem_cache/kv_cache_configurator.py (_calculate_mamba_ratio),
model_runner_components/spec_aux_hidden_state.py.
"""

from __future__ import annotations

from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.backends import NGRAM
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.models import (
    has_extra_buffer,
    has_window_pool,
    known_of,
    uses_state_radix,
    window_layers,
)
from kvplan.engines.sglang.versions import Rules
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.settings import Serving


def speculation(model: Model, settings: Serving, options: SglangOptions) -> tuple[int, int]:
    """Draft tokens (of a chain its steps + 1, of a tree those that are verified) and the layers of the draft;
    0 and 0 without speculation. Raises KvplanError(no-draft | bad-setting).
    """
    if settings.speculative_method is None:
        return 0, 0
    if settings.speculative_method == NGRAM:
        return settings.num_speculative_tokens + 1, 0
    given = options.draft_layers
    draft = settings.speculative_model
    own = len(model.draft_layers) if draft is None else draft.num_layers
    charged = own if draft is not None else facts_of(model).drafts
    layers = given if given is not None else charged
    if not own and not given:
        raise KvplanError(
            "no-draft",
            f"{model.id} has no prediction layers of its own: the draft model's layers are not known",
            help=("--speculative-model llama-3.2-1b", "--draft-layers 1 (an EAGLE head has one)"),
        )
    return _verified(settings, options), layers


def _verified(settings: Serving, options: SglangOptions) -> int:
    """Tokens of one verification. A chain is made steps + 1 whatever was asked for (speculative_hook.py)."""
    chain = settings.num_speculative_tokens + 1
    if (options.speculative_eagle_topk or 1) == 1:
        return chain
    if options.speculative_num_draft_tokens is None:
        raise KvplanError(
            "bad-setting",
            "a tree of drafts (speculative_eagle_topk above 1) says how many tokens a step verifies",
            help="--speculative-num-draft-tokens 16",
        )
    return options.speculative_num_draft_tokens


def charges_draft(model: Model, settings: Serving, options: SglangOptions, rules: Rules) -> bool:
    """Whether the pools are divided with the draft's layers: from 0.5.14 to 0.5.19 where a draft is named, by
    the command or by speculative_hook.py for these classes (spec_aux_hidden_state.py)."""
    named = settings.speculative_model is not None or options.draft_layers is not None
    return rules.drafts and (rules.drafts_unnamed or named or known_of(model).named_draft)


def draft_windows(model: Model, settings: Serving, options: SglangOptions) -> int:
    """Window layers of the config that is read for the draft: the draft's, without one the target's."""
    if options.draft_layers is not None:
        return 0
    source = settings.speculative_model or model
    return window_layers(source) if has_window_pool(source) else 0


def strategy_of(
    model: Model, settings: Serving, options: SglangOptions, *, radix: bool, paged: bool
) -> tuple[str, bool]:
    """(strategy, whether scheduling overlaps): extra_buffer where the class supports it and scheduling
    overlaps or pages are larger than 1, else no_buffer (overrides.py, _mamba_radix_cache_resolution)."""
    strategy = options.mamba_radix_cache_strategy
    overlap = not options.disable_overlap_schedule and settings.pipeline_parallel_size == 1
    if strategy != "auto" or not radix or not uses_state_radix(model):
        return strategy, overlap
    wanted = not options.disable_overlap_schedule or paged
    if wanted and has_extra_buffer(model):
        return "extra_buffer", overlap
    return "no_buffer", False


def slots_of_request(strategy: str, rules: Rules, *, radix: bool, overlap: bool) -> int:
    """State slots that one running request is charged (kv_cache_configurator.py, _calculate_mamba_ratio)."""
    if not radix:
        return 1
    if not rules.extra_buffer and strategy == "no_buffer":
        return rules.state_slots
    if strategy == "extra_buffer_lazy":
        return 4
    if strategy == "extra_buffer":
        return 5 if overlap else 4
    return 3
