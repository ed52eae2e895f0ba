"""The resolved arguments and the warnings of an answer."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.engines.base import has_kind
from kvplan.engines.sglang.arguments import Arguments
from kvplan.engines.sglang.capacity import Serving, automatic_mem_fraction_static
from kvplan.engines.sglang.cells import state_words
from kvplan.engines.sglang.models import SERVED, has_window_pool
from kvplan.engines.sglang.stages import Sizes
from kvplan.families import ChunkedAttention, Kind, SlidingWindow
from kvplan.model import Model

ROW_MARGIN = 4
"""Columns of req_to_token beyond the context (mem_cache/allocation_sizing.py)."""


def shown_arguments(model: Model, arguments: Arguments) -> dict[str, Any]:
    """Every resolved argument that influenced the answer."""
    shown: dict[str, Any] = {
        "dtype": arguments.dtype.name,
        "kv_cache_dtype": arguments.latent.name,
        "attention_backend": arguments.backend,
        "page_size": arguments.page_size,
        "context_len": arguments.context_len,
        "chunked_prefill_size": arguments.rank_prefill_size,
        "cuda_graph_max_bs": arguments.graph_max_batch,
        "tensor_parallel_size": arguments.tp,
        "pipeline_parallel_size": arguments.pp,
        "attn_tp_size": arguments.attn_tp,
        "attn_dp_size": arguments.attn_dp,
        "decode_context_parallel_size": arguments.dcp,
        "disable_radix_cache": not arguments.radix,
        "disable_overlap_schedule": not arguments.overlap,
        "gpu": arguments.device.name,
        "mem_fraction_static": float(fraction_of(model, arguments)),
    }
    if arguments.attn_dp == 1:
        del shown["attn_dp_size"]
    if arguments.ep > 1:
        shown["ep_size"] = arguments.ep
    if arguments.moe_a2a_backend != "none":
        shown["moe_a2a_backend"] = arguments.moe_a2a_backend
    if has_window_pool(model) or has_kind(model, Kind.COMPRESSED):
        shown["hybrid_swa_memory"] = arguments.window_pool
        shown["swa_full_tokens_ratio"] = float(arguments.swa_ratio)
    if has_kind(model, Kind.STATE):
        shown["mamba_full_memory_ratio"] = float(arguments.state_ratio)
        shown["mamba_radix_cache_strategy"] = arguments.strategy
        shown["state_slots_per_request"] = arguments.slots_per_request
        shown.update(state_words(model, arguments))
    if arguments.draft_tokens:
        shown["speculative_num_draft_tokens"] = arguments.draft_tokens
        shown["draft_layers"] = arguments.draft_layers
    return shown


def shown_sizes(arguments: Arguments, sizes: Sizes) -> dict[str, Any]:
    """The sizes found; req_to_token is int32, (max_running_requests + 1) × (context + 4 + drafts)."""
    columns = arguments.context_len + ROW_MARGIN + arguments.draft_tokens
    shown = {
        "max_total_num_tokens": sizes.max_total_num_tokens,
        "max_running_requests": sizes.max_running_requests,
        "req_to_token_bytes": 4 * (sizes.max_running_requests + 1) * columns,
    }
    if sizes.window_tokens:
        shown["swa_max_total_num_tokens"] = sizes.window_tokens
    if sizes.state_slots:
        shown["max_mamba_cache_size"] = sizes.state_slots
    return shown


def fraction_of(model: Model, arguments: Arguments, vision: tuple[int, int] | None = None) -> Fraction:
    """--mem-fraction-static as given, else the automatic one; vision: an image encoder's layers and width."""
    if arguments.mem_fraction_static is not None:
        return arguments.mem_fraction_static
    serving = Serving(
        tp=arguments.tp,
        pp=arguments.pp,
        chunked_prefill_size=arguments.chunked_prefill_size,
        max_running_requests=arguments.max_running_requests,
        max_total_tokens=arguments.max_total_tokens,
        mla=has_kind(model, Kind.MLA),
        attn_dp=arguments.attn_dp if arguments.attn_dp > 1 else 0,
        deepep=arguments.moe_a2a_backend == "deepep",
        vision=vision,
    )
    return automatic_mem_fraction_static(arguments.device.memory_mib, serving=serving)


def warnings_of(model: Model, arguments: Arguments, *, refused: bool) -> list[str]:
    found = []
    windows = any(
        isinstance(part, (SlidingWindow, ChunkedAttention)) for run in model.runs for part in run.layer.parts
    )
    if windows and not arguments.window_pool:
        found.append(f"SGLang keeps all tokens of {model.model_type}'s window layers")
    if not refused and model.architecture is not None and model.architecture not in SERVED:
        found.append(
            f"SGLang has no class of its own for {model.architecture}: it would run through transformers"
        )
    if not arguments.device.nvidia:
        found.append("AMD GPUs: page sizes are those of the default backend, not checked against an engine")
    return found
