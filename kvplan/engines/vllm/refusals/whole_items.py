"""A batch that is smaller than an item which vLLM does not cut (`encoder_profile.whole_items`)."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.vllm.encoder_profile.multimodal import limits_of, text_only
from kvplan.engines.vllm.encoder_profile.whole_items import items_of
from kvplan.engines.vllm.start.resolve import Resolved
from kvplan.engines.vllm.versions import rules_of
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout


def refusal_of_items(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """vLLM's refusal of a batch that is smaller than an item, of a model whose items are not cut."""
    rules, gpu, tokens = rules_of(version), settings.gpu, resolved.batch.tokens
    if gpu is None and settings.max_num_batched_tokens is None:
        return None
    if gpu is not None and gpu.vendor == "amd" and not rules.rocm_whole_items:
        return None
    limits = limits_of(settings)
    served = {
        kind: size for kind, size in items_of(model, settings, rules).items() if _count(limits.get(kind)) != 0
    }
    if not served or text_only(model, settings):
        return None
    kind = max(served, key=served.__getitem__)
    if served[kind] <= tokens:
        return None
    own = "" if settings.max_num_batched_tokens is not None else f", the default of vLLM {version} there"
    return Refusal(
        "max-num-batched-tokens",
        f"one {kind} of {served[kind]:,} tokens must fit into a batch: max_num_batched_tokens is"
        f" {tokens:,}{own}",
        help=(f"--max-num-batched-tokens {served[kind]}", "--language-model-only"),
    )


def _count(limit: object) -> object:
    return limit.get("count") if isinstance(limit, Mapping) else limit
