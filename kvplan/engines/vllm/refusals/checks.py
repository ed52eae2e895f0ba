"""Configurations that vLLM refuses before it plans: the checks of its configuration classes that touch the
cache.

vllm-project/vllm 0.32 vllm/config/model.py (verify_with_parallel_config, _get_and_verify_max_len).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.base import has_kind, undividable
from kvplan.engines.release_rules import reached
from kvplan.engines.supported import check_class
from kvplan.engines.vllm.backends.table import backend_rows, row_of
from kvplan.engines.vllm.refusals.classes import (
    check_own_rules,
    class_refusal,
    family_refusal,
    own_refusal,
    rotation_refusal,
)
from kvplan.engines.vllm.refusals.division import (
    context_refusal,
    divides,
    experts_refusal,
    heads_refusal,
    nameless_refusal,
    parallel_refusal,
)
from kvplan.engines.vllm.refusals.formats import dtype_refusal, quantisation_refusal
from kvplan.engines.vllm.start.draft_layers import AHEAD
from kvplan.engines.vllm.start.resolve import OWN_CACHE, Resolved, asked_word
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import Refusal
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.engines.vllm.refusals import divided_blocks, whole_items
    from kvplan.engines.vllm.start import connectors, draft_stages
else:
    connectors = later("kvplan.engines.vllm.start", "connectors")
    divided_blocks = later("kvplan.engines.vllm.refusals", "divided_blocks")
    draft_stages = later("kvplan.engines.vllm.start", "draft_stages")
    whole_items = later("kvplan.engines.vllm.refusals", "whole_items")


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
        _unserved(model, settings, version)
        or _unscheduled(model, settings, resolved, version)
        or _undivided(model, settings, resolved, version)
        or _asynchronous(settings, version)
        or quantisation_refusal(model, settings, resolved, version)
        or dtype_refusal(model, settings, resolved, version)
        or _connected(settings, resolved, version)
        or (whole_items.refusal_of_items(model, settings, resolved, version) if resolved.mm_prefix else None)
        or _unbuilt(model, settings, resolved, version)
    )


def _unserved(model: Model, settings: Layout, version: str) -> Refusal | None:
    """Backends, classes and families that the release does not have."""
    return (
        _backend_of_release(settings, version)
        or class_refusal(model, version)
        or check_class(model, "vLLM")
        or family_refusal(model, version)
    )


def _unscheduled(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """Lengths, batches and drafts."""
    if settings.speculative_method is None and settings.speculative_model is None:
        return _length(settings, resolved) or refusal_of_batch(resolved)
    return (
        _length(settings, resolved)
        or draft_stages.draft_refusal(model, settings, version)
        or refusal_of_batch(resolved)
        or draft_stages.shorter_draft(model, settings, resolved, rules_of(version))
    )


def _undivided(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """Heads, experts and contexts that cannot be divided among the ranks."""
    return (
        heads_refusal(model, resolved, version)
        or experts_refusal(model, settings)
        or _prefill_context(model, settings, version)
        or context_refusal(model, settings, resolved)
        or nameless_refusal(model, resolved, version)
    )


def _unbuilt(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """Reasons that stop the workers while they build the model."""
    in_blocks = bool(settings.quantization or model.quantization)
    return (
        rotation_refusal(model, version)
        or parallel_refusal(model, settings, resolved, version)
        or (divided_blocks.part_refusal(model, settings, resolved) if resolved.tp > 1 else None)
        or (divided_blocks.divided_refusal(model, settings, resolved, version) if in_blocks else None)
        or undividable(model, settings)
        or _index_keys(model, resolved)
        or own_refusal(model, resolved, version)
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
            divides(model, tp, version)
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


def _backend_of_release(settings: Layout, version: str) -> Refusal | None:
    """vllm/v1/attention/backends/registry.py: a name that the release does not know stops the arguments."""
    name = (settings.attention_backend or "").upper()
    rows = backend_rows().get(name, ())
    if not rows or not rules_of(version).backend_names_read or row_of(name, version) is not None:
        return None
    since = next((row.since for row in rows if not reached(version, row.since)), None)
    return Refusal(
        "cannot-start",
        f"vLLM {version} has no attention backend {name}" + (f": {since} is the first" if since else ""),
        help=(f"use engine vllm@{since}",) if since else ("leave out --attention-backend",),
    )


def _connected(settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    if not settings.own:
        return None
    return connectors.connector_refusal(settings, resolved.disable_hybrid, version, rules_of(version))


def _adapters(model: Model, settings: Layout) -> Refusal | None:
    if not settings.own:
        return None
    from kvplan.engines.vllm.start.adapters import lora_refusal

    return lora_refusal(model, settings)


def _check_large_blocks(model: Model, settings: Layout, version: str) -> None:
    """Raises KvplanError(unknown-rule): 0.32 and 0.33 pack more bytes into DeepSeek-V4's blocks of 512 tokens
    than their pages have (asked; equal up to 256, and until 0.31)."""
    size = settings.block_size or 0
    if size > 256 and has_kind(model, Kind.COMPRESSED) and not rules_of(version).large_compressed_blocks:
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
                "--any-length: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, where the model bears it",
            ),
        )
    return None


def refusal_of_batch(resolved: Resolved) -> Refusal | None:
    """vllm/config/scheduler.py, verify_max_model_len (since 0.8): a step has a token for each request."""
    tokens, seqs, length = resolved.batch.tokens, resolved.batch.seqs, resolved.lengths.max_model_len
    if resolved.whole_prompts and tokens < length:
        return Refusal(
            "max-num-batched-tokens",
            f"max_num_batched_tokens {tokens:,} is less than max_model_len {length:,}, and prompts are not"
            " divided",
            help=("--enable-chunked-prefill", f"--max-num-batched-tokens {length}"),
        )
    if resolved.mamba_mode == "align" and not resolved.chunked and resolved.prefix_caching:
        return Refusal(
            "cannot-start",
            "prefix caching keeps states at the ends of blocks, and wants prompts that may be divided",
            help=("--enable-chunked-prefill", "--no-enable-prefix-caching"),
        )
    if tokens >= seqs:
        return None
    return Refusal(
        "max-num-batched-tokens",
        f"max_num_batched_tokens {tokens:,} is less than max_num_seqs {seqs:,}",
        help=(f"--max-num-batched-tokens {seqs}", f"--max-num-seqs {tokens}"),
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


def _prefill_context(model: Model, settings: Layout, version: str) -> Refusal | None:
    if not settings.own:
        return None
    from kvplan.engines.vllm.start import prefill_context

    return prefill_context.refusal_of(model, settings, version)


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
