"""SGLang 0.5.23: a pool of tokens (pages of page_size), one more for windows, slots for states.

Rules: `kvplan.engines.sglang.arguments` (defaults), `.cells` (bytes of a token), `.pools` (from bytes to tokens),
`.budget` (the automatic memory fraction), `.models` (which classes). kv_cache_memory is what SGLang has for KV and
states on one GPU after weights and slack (its "rest memory"). Of options that map to another name: block_size is
--page-size, max_num_seqs --max-running-requests, max_model_len --context-length.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.engines.base import encoder_length, has_kind, layer_answers, request_tokens
from kvplan.engines.options import EngineOption, resolve
from kvplan.engines.sglang.arguments import OPTIONS, Arguments, resolve_arguments
from kvplan.engines.sglang.budget import Serving, automatic_mem_fraction_static
from kvplan.engines.sglang.cells import cell_of, state_words, store_of
from kvplan.engines.sglang.models import SERVED, has_window_pool, refusal_of
from kvplan.engines.sglang.pools import (
    PoolError,
    Pools,
    Sizes,
    Stage,
    build_pools,
    compressed_bytes,
    solve,
    trailing,
)
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, CompressedAttention, Kind, SlidingWindow
from kvplan.model import Model
from kvplan.record import record
from kvplan.results import EngineRef, ModelRef, PerGpu, Pool, PoolGroup, Refusal, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.units import GIB, round_up

ROW_MARGIN = 4
"""Columns of req_to_token beyond the context (mem_cache/allocation_sizing.py)."""


class Sglang:
    """Engine ``sglang``."""

    name: str = "sglang"
    versions: tuple[str, ...] = ("0.5.23",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Pages and slots that the requests hold; with kv_cache_memory the pools and who fits."""
        arguments = _arguments(model, settings)
        tokens = settings.tokens if settings.tokens is not None else arguments.context_len
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        refusal = refusal_of(model)
        if refusal is None and tokens > arguments.context_len:
            refusal = Refusal(
                "request-too-long",
                f"a request of {tokens:,} tokens is longer than the context of {arguments.context_len:,}",
                largest_max_model_len=arguments.context_len,
                help=(f"--tokens {arguments.context_len}",),
            )
        per_gpu, total, pool, sizes = PerGpu(0, 0, 0, Fraction(0), 0), Total(0, 0), None, None
        if refusal is None or refusal.code == "request-too-long":
            pools = _pools(model, arguments)
            per_gpu, total = _held(pools, tokens, settings.requests)
            if settings.kv_cache_memory is not None and refusal is None:
                try:
                    sizes = solve(pools, settings.kv_cache_memory)
                    pool = _pool(pools, sizes, tokens, settings.kv_cache_memory)
                except PoolError as error:
                    refusal = Refusal("not-enough-memory", str(error))
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings=_shown(model, arguments, sizes),
            request=Request(tokens, encoder_tokens, settings.requests),
            per_gpu=per_gpu,
            total=total,
            layers=layer_answers(model, lambda part: store_of(arguments, part)),
            pool=pool,
            refusal=refusal,
            warnings=(*model.warnings, *([warning] if warning else []), *_warnings(model, arguments)),
        )


@record()
class Allocation:
    """One line of the log: ``KV Cache is allocated. #tokens: N, K size: x GB, V size: y GB``. Bytes of one GPU."""

    name: str
    tokens: int
    k_bytes: int
    v_bytes: int

    def words(self) -> str:
        if not self.v_bytes:
            return f"#tokens: {self.tokens}, KV size: {_gib(self.k_bytes)} GB"
        return f"#tokens: {self.tokens}, K size: {_gib(self.k_bytes)} GB, V size: {_gib(self.v_bytes)} GB"


def allocations(model: Model, settings: Settings) -> list[Allocation]:
    """The tensors really allocated: each pool has one page more than its tokens. Raises KvplanError."""
    if settings.kv_cache_memory is None:
        raise KvplanError("no-memory", "how much memory the cache may take was not given")
    pools = _pools(model, _arguments(model, settings))
    sizes, page = solve(pools, settings.kv_cache_memory), pools.arguments.page_size
    stage = max(pools.stages, key=lambda stage: stage.full + stage.window)
    cell, found = stage.target, []
    if cell.full:
        rows = sizes.max_total_num_tokens + page
        found.append(
            Allocation(
                "full", sizes.max_total_num_tokens, cell.full_k * rows, (cell.full - cell.full_k) * rows
            )
        )
    if cell.window:
        rows = sizes.window_tokens + page
        found.append(
            Allocation(
                "window", sizes.window_tokens, cell.window_k * rows, (cell.window - cell.window_k) * rows
            )
        )
    if cell.slot:
        slots = sizes.state_slots + 1
        found.append(Allocation("state", sizes.state_slots, cell.conv * slots, cell.ssm * slots))
    return found


def _gib(amount: int) -> str:
    hundredths = (amount * 200 + GIB) // (2 * GIB)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _arguments(model: Model, settings: Settings) -> Arguments:
    options = resolve(OPTIONS, dict(settings.engine_options), Sglang.name)
    return resolve_arguments(model, settings, options, _context(model, settings))


def _context(model: Model, settings: Settings) -> int:
    """--context-length, else the model's own; else as long as the request."""
    if settings.max_model_len is not None:
        return settings.max_model_len
    served = model.facts.get("serving_model_len")
    return max(
        1,
        int(served)
        if isinstance(served, int) and served
        else model.max_model_len or request_tokens(model, settings),
    )


@lru_cache(maxsize=256)
def _pools(model: Model, arguments: Arguments) -> Pools:
    return build_pools(model, arguments)


def _pages(tokens: int, page: int) -> int:
    return round_up(tokens, page)


def _window_held(pools: Pools, tokens: int) -> int:
    """Tokens of the window pool that a running request keeps."""
    if pools.window is None:
        return 0
    page = pools.arguments.page_size
    return min(_pages(tokens, page), _pages(trailing(pools), page))


def _stage_bytes(pools: Pools, stage: Stage, tokens: int) -> tuple[int, Fraction, int]:
    """(bytes of one request, growth by a token, fixed bytes) on one GPU of the stage."""
    arguments = pools.arguments
    page, own = arguments.page_size, -(-tokens // arguments.dcp)
    if pools.compressed:
        sizes = compressed_bytes(stage, arguments)
        window = sizes.window
        full = sizes.full - arguments.swa_ratio * window
        held = min(_pages(tokens, page), _pages(_ring(stage) + 128 + page, page))
        state = sizes.ring * sizes.state_row * sizes.layers_128
        return int(full * _pages(tokens, page) + window * held) + state, full, state
    window_tokens = _window_held(pools, tokens)
    growing = stage.window if window_tokens and tokens < trailing(pools) else 0
    fixed = stage.target.slot * arguments.slots_per_request
    held_bytes = stage.full * _pages(own, page) + stage.window * window_tokens + fixed
    return held_bytes, Fraction(stage.full, arguments.dcp) + growing, fixed


def _ring(stage: Stage) -> int:
    """The window of compressed layers."""
    return max(
        part.sliding_window
        for layer in stage.layers
        for part in layer.parts
        if isinstance(part, CompressedAttention)
    )


def _held(pools: Pools, tokens: int, requests: int) -> tuple[PerGpu, Total]:
    """Pages of the full pool, the tail that the window pool keeps, and the request's state slots."""
    stages = [_stage_bytes(pools, stage, tokens) for stage in pools.stages]
    most, growth, fixed = max(stages, key=lambda stage: stage[0])
    replica = sum(held for held, _, _ in stages) * pools.arguments.attn_tp
    return PerGpu(most, most * requests, most * requests, growth, fixed), Total(replica, replica * requests)


def _pool(pools: Pools, sizes: Sizes, tokens: int, memory: int) -> Pool:
    arguments = pools.arguments
    page = arguments.page_size
    stage = max(pools.stages, key=lambda stage: _cell(pools, stage))
    logical = sizes.max_total_num_tokens
    if pools.window is None and not pools.compressed:
        logical *= arguments.dcp
    fitting = logical // max(_pages(tokens, page * arguments.dcp), 1)
    if sizes.window_tokens and pools.window is not None:
        fitting = min(fitting, sizes.window_tokens // max(_window_held(pools, tokens), 1))
    if sizes.state_slots:
        fitting = min(fitting, sizes.state_slots // arguments.slots_per_request)
    return Pool(
        bytes=memory,
        bytes_per_block=int(_cell(pools, stage) * page),
        num_blocks=sizes.max_total_num_tokens // page,
        groups=_groups(pools, stage, sizes),
        kv_tokens=logical,
        max_concurrency=logical / arguments.context_len,
        max_requests=min(fitting, sizes.max_running_requests),
        requests_that_fit=fitting,
        max_num_seqs=sizes.max_running_requests,
    )


def _cell(pools: Pools, stage: Stage) -> Fraction:
    return compressed_bytes(stage, pools.arguments).full if pools.compressed else pools.cell(stage)


def _groups(pools: Pools, stage: Stage, sizes: Sizes) -> tuple[PoolGroup, ...]:
    """The pools; blocks_per_request at the context's length."""
    arguments = pools.arguments
    page, length = arguments.page_size, arguments.context_len
    if pools.compressed:
        found = compressed_bytes(stage, arguments)
        full = int((found.full - arguments.swa_ratio * found.window) * page)
        return (
            PoolGroup("compressed", len(stage.layers), page, full, -(-length // page)),
            PoolGroup(
                "window",
                len(stage.layers),
                page,
                int(found.window * page),
                -(-(_ring(stage) + 128 + page) // page),
            ),
        )
    kinds = [cell_of(layer, arguments) for layer in stage.layers]
    groups = []
    if stage.full:
        count = sum(bool(cell.full) for cell in kinds)
        groups.append(PoolGroup("full", count, page, stage.full * page, -(-length // (page * arguments.dcp))))
    if stage.window:
        count = sum(bool(cell.window) for cell in kinds)
        groups.append(
            PoolGroup("window", count, page, stage.window * page, _window_held(pools, length) // page)
        )
    if stage.target.slot:
        count = sum(bool(cell.slot) for cell in kinds)
        groups.append(PoolGroup("state", count, 1, stage.target.slot, arguments.slots_per_request))
    return tuple(groups)


def _shown(model: Model, arguments: Arguments, sizes: Sizes | None) -> dict[str, Any]:
    """Every resolved argument that influenced the answer."""
    shown: dict[str, Any] = {
        "dtype": arguments.dtype.name,
        "kv_cache_dtype": arguments.latent.name,
        "attention_backend": arguments.backend,
        "page_size": arguments.page_size,
        "context_len": arguments.context_len,
        "chunked_prefill_size": arguments.chunked_prefill_size,
        "cuda_graph_max_bs": arguments.graph_max_batch,
        "tensor_parallel_size": arguments.tp,
        "pipeline_parallel_size": arguments.pp,
        "attn_tp_size": arguments.attn_tp,
        "decode_context_parallel_size": arguments.dcp,
        "disable_radix_cache": not arguments.radix,
        "disable_overlap_schedule": not arguments.overlap,
        "gpu": arguments.device.name,
        "mem_fraction_static": float(automatic_fraction(model, arguments)),
    }
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
    if sizes is not None:
        shown["max_total_num_tokens"] = sizes.max_total_num_tokens
        shown["max_running_requests"] = sizes.max_running_requests
        columns = arguments.context_len + ROW_MARGIN + arguments.draft_tokens
        shown["req_to_token_bytes"] = 4 * (sizes.max_running_requests + 1) * columns
        if sizes.window_tokens:
            shown["swa_max_total_num_tokens"] = sizes.window_tokens
        if sizes.state_slots:
            shown["max_mamba_cache_size"] = sizes.state_slots
    return shown


def automatic_fraction(model: Model, arguments: Arguments) -> Fraction:
    """--mem-fraction-static where it is not given, before any image encoder."""
    serving = Serving(
        tp=arguments.tp,
        pp=arguments.pp,
        chunked_prefill_size=arguments.chunked_prefill_size,
        max_running_requests=arguments.max_running_requests,
        max_total_tokens=arguments.max_total_tokens,
        mla=has_kind(model, Kind.MLA),
        attn_dp=arguments.attn_dp if arguments.attn_dp > 1 else 0,
    )
    return automatic_mem_fraction_static(arguments.device.memory_mib, serving=serving)


def _warnings(model: Model, arguments: Arguments) -> list[str]:
    found = []
    windows = any(
        isinstance(part, (SlidingWindow, ChunkedAttention)) for run in model.runs for part in run.layer.parts
    )
    if windows and not arguments.window_pool:
        found.append(f"SGLang keeps all tokens of {model.model_type}'s window layers")
    if model.architecture is not None and model.architecture not in SERVED:
        found.append(
            f"SGLang has no class of its own for {model.architecture}: it would run through transformers"
        )
    if not arguments.device.nvidia:
        found.append("AMD GPUs: page sizes are those of the default backend, not checked against an engine")
    return found
