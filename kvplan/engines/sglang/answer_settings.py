"""The resolved arguments and the warnings of an answer.

The automatic ``mem_fraction_static`` of 0.4.6 to 0.5.9: sgl-project/sglang server_args.py, 0.4.6 to 0.5.2
(__post_init__), 0.5.3 to 0.5.9 (_handle_gpu_memory_settings); 0.4.6 to 0.4.8 model_executor/model_runner.py
(model_specific_adjustment).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.engines.base import has_kind
from kvplan.engines.sglang.cache_layout.cells import state_words
from kvplan.engines.sglang.cache_layout.stages import Sizes
from kvplan.engines.sglang.memory.prompt_graphs import draft_reserve, has_prompt_graphs
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.backends import is_large_hopper_vl
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.memory_defaults import (
    FLOOR,
    FLOOR_FROM,
    Serving,
    automatic_mem_fraction_static,
    for_images,
)
from kvplan.engines.sglang.start.models import SERVED, class_of, has_window_pool, is_multimodal, known_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.units import KIB, MIB

UNKNOWN = Fraction("0.88")
_BY_RANKS = ((16, "0.79"), (8, "0.81"), (4, "0.85"), (2, "0.87"), (1, "0.88"))
_RESERVED = ((35 * KIB, "2.8", "0.1"), (90 * KIB, "9.5", "0.5"), (160 * KIB, "12", "0.5"))
"""(below so many MiB, GiB kept free, GiB more a rank)."""
_LARGEST = 32 * KIB
OF_IMAGES = Fraction("0.9")
"""0.4.6 to 0.4.8: what image models have of the fraction, given or not."""

AITER_CONTEXT = 8192
ROW_MARGIN = 4
"""Columns of req_to_token beyond the context (mem_cache/allocation_sizing.py)."""


def shown_arguments(model: Model, arguments: Arguments) -> dict[str, Any]:
    """Every resolved argument that influenced the answer."""
    shown: dict[str, Any] = {
        "dtype": arguments.dtype.name,
        "kv_cache_dtype": arguments.latent.name,
        "attention_backend": arguments.backend,
        "decode_attention_backend": arguments.decode_backend,
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
    if arguments.decode_backend == arguments.backend:
        del shown["decode_attention_backend"]
    if arguments.attn_dp == 1:
        del shown["attn_dp_size"]
    if arguments.ep > 1:
        shown["ep_size"] = arguments.ep
    if arguments.role != "null":
        shown["disaggregation_mode"] = arguments.role
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
    """The sizes found; req_to_token is int32, (max_running_requests + 1) × (context + more)."""
    columns = arguments.context_len + _more_columns(arguments)
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


def _more_columns(arguments: Arguments) -> int:
    """4 and the drafts; under speculation with pages, what two decode steps may allocate, in whole pages
    (mem_cache/allocation_sizing.py, get_req_to_token_extra_context_len)."""
    more, page = ROW_MARGIN + arguments.draft_tokens, arguments.page_size * arguments.dcp
    if arguments.draft_tokens and page > 1:
        more = max(more, 2 * arguments.draft_tokens + page - 1)
    return more


def fraction_of(model: Model, arguments: Arguments) -> Fraction:
    """--mem-fraction-static as given, else the automatic one; AMD's aiter takes 0.85 of either for contexts
    above 8,192 (arg_groups/attention_hook.py)."""
    found = arguments.mem_fraction_static
    if found is None:
        found = _automatic(model, arguments)
    if not arguments.rules.image_factor and is_multimodal(model):
        found *= OF_IMAGES
    scaled = arguments.backend == "aiter" and arguments.context_len > AITER_CONTEXT
    return found * Fraction("0.85") if scaled else found


def _automatic(model: Model, arguments: Arguments) -> Fraction:
    multimodal = is_multimodal(model)
    rules = arguments.rules
    answers = rules.roles and arguments.role == "decode"  # images are read where prompts are
    serving = Serving(
        tp=arguments.tp,
        pp=arguments.pp,
        chunked_prefill_size=arguments.chunked_prefill_size,
        max_prefill_tokens=arguments.max_prefill_tokens,
        graph_batch=arguments.graph_max_batch,
        prefill_limit=_prefill_limit(model, arguments),
        decode_graphs=arguments.graphs or rules.graphs_counted,
        prefill_graphs=has_prompt_graphs(model, arguments),
        max_total_tokens=arguments.max_total_tokens,
        mla=has_kind(model, Kind.MLA),
        attn_dp=arguments.told_groups if arguments.told_groups > 1 else 0,
        deepep=arguments.moe_a2a_backend == "deepep" and not rules.graphs_counted,
        drafts=draft_reserve(arguments) if rules.prefill_graphs else _draft_reserve(arguments),
        role=arguments.role if rules.roles else "null",
        max_running_requests=arguments.given_requests,
        draft_tokens=arguments.draft_tokens or 1,
        vision=facts_of(model).vision if multimodal and rules.image_factor and not answers else None,
    )
    if not rules.prefill_graphs:
        return older_fraction(arguments.device.memory_mib, serving, rules.memory)
    return automatic_mem_fraction_static(arguments.device.memory_mib, serving=serving)


def _draft_reserve(arguments: Arguments) -> int:
    """MiB for a draft's weights and graphs, until 0.5.9: a model of its own (STANDALONE) has 6 GiB."""
    if not arguments.draft_tokens or arguments.rules.memory == "0.4.6":
        return 0
    return (6 if arguments.standalone else 2) * KIB


def _prefill_limit(model: Model, arguments: Arguments) -> int | None:
    """The largest prefill graph where a class or a name bounds it: Muse-Glimmer (cuda_graph_hook.py), and
    every model whose path has ``llama-2`` (memory_hook.py); --context-length from 0.5.13 to 0.5.16."""
    limits = []
    if arguments.rules.graphs_in_context and arguments.given_context is not None:
        limits.append(arguments.given_context)
    if known_of(model).largest_prefill_graph:
        limits.append(known_of(model).largest_prefill_graph)
    if "llama-2" in model.id.lower():
        limits.append(4096)
    return min(limits, default=None)


def image_reserve(model: Model, arguments: Arguments) -> int:
    """Bytes for images that are allocated after the pools and taken from their budget, since 0.5.18.

    kv_cache_configurator.py (mm_runtime_reservation_gb): SGLANG_VLM_CACHE_SIZE_MB, 100 by default; Qwen3-VL
    on large Hopper GPUs keeps features on the GPU instead (model_overrides/qwen3_vl.py).
    """
    if not is_multimodal(model) or not arguments.rules.image_cache:
        return 0
    if arguments.rules.hopper_vl and is_large_hopper_vl(model, arguments.device):
        return (3072 if (arguments.given_requests or 0) >= 400 else 1024) * MIB
    return 100 * MIB


_PLAIN = frozenset((Kind.FULL, Kind.MLA, Kind.NONE))


def _plain(model: Model, arguments: Arguments) -> bool:
    """Whether a server of one role has the pools of every server: index keys, states, windows and images have
    rules of their own there (mem_cache/kv_cache_configurator.py, model_executor/pool_configurator.py)."""
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    windows = set() if arguments.role == "decode" else {Kind.SLIDING, Kind.CHUNKED}
    return kinds <= _PLAIN | windows and not is_multimodal(model)


def warnings_of(model: Model, arguments: Arguments, *, refused: bool) -> list[str]:
    found = []
    if has_kind(model, Kind.SLIDING, Kind.CHUNKED) and not arguments.window_pool:
        found.append(f"SGLang keeps all tokens of {model.model_type}'s window layers")
    if not refused and class_of(model) and class_of(model) not in SERVED:
        found.append(
            f"SGLang has no class of its own for {model.architecture}: it would run through transformers"
        )
    if arguments.role != "null" and not (arguments.rules.roles and _plain(model, arguments)):
        found.append(f"not counted: what --disaggregation-mode {arguments.role} changes in SGLang's pools")
    if (arguments.tree or arguments.two_batches) and arguments.rules.prompt_graphs:
        what = "a tree of drafts" if arguments.tree else "two-batch overlap"
        found.append(f"{what} was asked of SGLang 0.5.23 alone: older releases are taken to do the same")
    if not arguments.device.nvidia:
        found.append("AMD GPUs: asked of SGLang 0.5.23 on MI300X and MI355X alone, not of other releases")
    return found


def older_fraction(gpu_mem_mib: int | None, asked: Serving, table: str) -> Fraction:
    """table: since which release its defaults by memory are in force; asked.drafts: MiB kept for a draft."""
    if gpu_mem_mib is None:
        found = UNKNOWN
    elif table == "0.4.6":
        found = _by_ranks(gpu_mem_mib, asked.tp * asked.pp)
    else:
        reserved = _by_memory(gpu_mem_mib, asked) if table == "0.4.7" else _by_use(gpu_mem_mib, asked)
        found = Fraction(str(round((gpu_mem_mib - float(reserved)) / gpu_mem_mib, 3)))
    return for_images(found, asked.vision)


def _by_ranks(gpu_mem_mib: int, ranks: int) -> Fraction:
    found = UNKNOWN
    if gpu_mem_mib <= 80 * KIB:
        found = Fraction(next(share for least, share in _BY_RANKS if ranks >= least))
    if gpu_mem_mib > 96 * KIB:
        left = Fraction(gpu_mem_mib - 18 * KIB, gpu_mem_mib)
        found = min(found + 48 * KIB * (1 - found) / gpu_mem_mib, left)
    return found


def _by_memory(gpu_mem_mib: int, asked: Serving) -> Fraction:
    reserved = Fraction(_LARGEST)
    for below, fixed, more in _RESERVED:
        if gpu_mem_mib < below:
            reserved = (Fraction(fixed) + asked.tp * asked.pp * Fraction(more)) * KIB
            break
    return reserved + asked.drafts + (4 * KIB if asked.attn_dp else 0)


def _by_use(gpu_mem_mib: int, asked: Serving) -> Fraction:
    chunk, batch = asked.chunked_prefill_size or 0, asked.graph_batch or 0
    tokens = chunk if chunk > 0 else asked.max_prefill_tokens
    reserved = 512 + Fraction(3, 2) * max(tokens, 2048) + 2 * batch + Fraction(asked.tp * asked.pp * KIB, 8)
    reserved += 3 * batch * asked.attn_dp
    if batch > 300:
        reserved += Fraction(3, 2) * batch * asked.attn_dp
    if gpu_mem_mib > FLOOR_FROM:
        reserved = max(reserved, Fraction(FLOOR))
    return reserved + asked.drafts
