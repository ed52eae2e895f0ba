"""TensorRT-LLM, PyTorch backend of 1.2: blocks of tokens_per_block, one pool for each window size.

Mirrors NVIDIA/TensorRT-LLM tensorrt_llm/_torch/pyexecutor/resource_manager.py (KVCacheManager:
get_cache_bytes_per_token, calculate_max_num_blocks, adjust_window_sizes_for_vswa,
calculate_max_num_blocks_for_vswa), mamba_cache_manager.py, model_loader.py (dtypes) and llmapi/llm_args.py
(defaults). kv_cache_memory is what the fraction leaves for the cache (max_gpu_total_bytes). Other names:
block_size is tokens_per_block, max_num_seqs max_batch_size, max_model_len max_seq_len.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.dtypes import KV_DTYPES, KvDtype, Packing, kv_dtype, scalar
from kvplan.engines.base import (
    encoder_length,
    has_kind,
    layer_answers,
    part_terms,
    request_tokens,
    served_dtype,
)
from kvplan.engines.generic import split_evenly
from kvplan.engines.options import EngineOption, Options, resolve
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, Kind, Part, SlidingWindow, Store
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.results import EngineRef, ModelRef, PerGpu, Pool, PoolGroup, Refusal, Request, SizeResult, Total
from kvplan.settings import Settings
from kvplan.terms import Grows
from kvplan.units import GIB, ceil_div

TOKENS_PER_BLOCK = 32
MAX_BATCH_SIZE = 2048
MAX_NUM_TOKENS = 8192
FP8_FROM, NVFP4_FROM = (8, 9), (9, 0)
ASSUMED_CAPABILITY = (9, 0)
OPTIONS = (
    EngineOption("max_attention_window", "counts", "Window of each layer, repeated over the layers (default: none)."),
    EngineOption("window_size_shares", "shares", "Part of the memory of each window size, smallest first (default: equal)."),
    EngineOption("max_tokens", "count", "Upper bound of the pool's tokens; not for several windows."),
    EngineOption("mamba_state_cache_interval", "count", "Tokens between snapshots of a state (default: no reuse of states)."),
    EngineOption("enable_attention_dp", "flag", "Attention data-parallel: every rank keeps all heads.", default=False),
)  # fmt: skip
_STATES = ("mamba2", "gated_delta_net")
_ATTENTION = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED, Kind.MLA, Kind.INDEXER, Kind.NONE)


@record()
class Rank:
    """One pipeline stage on one GPU. windows: bytes of a token and number of layers of each window size, sorted."""

    windows: tuple[tuple[int, int, int], ...]
    state: int

    @property
    def token(self) -> int:
        return sum(size for _, size, _ in self.windows)


@record()
class Plan:
    """What does not depend on memory."""

    ranks: tuple[Rank, ...]
    block: int
    max_seq_len: int
    max_batch_size: int
    interval: int | None
    shares: tuple[Fraction, ...]
    max_tokens: int | None

    @property
    def fullest(self) -> Rank:
        return max(self.ranks, key=lambda rank: (rank.token, rank.state))

    @property
    def resident(self) -> int:
        """Requests that own a state slot: max_batch_size for each pipeline stage."""
        return self.max_batch_size * len(self.ranks)


@record()
class Blocks:
    """A window's pool after start-up: the window may have been reduced."""

    window: int
    token_bytes: int
    layers: int
    blocks: int


class TrtLlm:
    """Engine ``trtllm``."""

    name: str = "trtllm"
    versions: tuple[str, ...] = ("1.2",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Blocks and state slots of the requests; with kv_cache_memory the pools and who fits."""
        options = resolve(OPTIONS, dict(settings.engine_options), self.name)
        store = _store(model, settings)
        refusal = _unsupported(model)
        max_seq_len = _max_seq_len(model, settings)
        tokens = settings.tokens if settings.tokens is not None else max_seq_len
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        if refusal is None and tokens > max_seq_len:
            refusal = _too_long(tokens, max_seq_len)
        per_gpu, total, pool, slots = PerGpu(0, 0, 0, Fraction(0), 0), Total(0, 0), None, None
        if refusal is None or refusal.code == "request-too-long":
            plan = make_plan(model, store, settings, options, max_seq_len)
            per_gpu, total = _held(plan, tokens, settings)
            if settings.kv_cache_memory is not None and refusal is None:
                refusal, pool = _answer(plan, tokens, settings.kv_cache_memory)
            slots = state_slots(plan) if plan.fullest.state else None
        return SizeResult(
            model=ModelRef(model.id, model.source),
            engine=EngineRef(self.name, version),
            settings=_shown(store, settings, options, max_seq_len, slots),
            request=Request(tokens, encoder_tokens, settings.requests),
            per_gpu=per_gpu,
            total=total,
            layers=layer_answers(
                model, lambda part: _part_store(store, part, settings.mamba_ssm_cache_dtype)
            ),
            pool=pool,
            refusal=refusal,
            warnings=(*model.warnings, *([warning] if warning else []), *_warnings(model, options)),
        )


def allocated_words(model: Model, settings: Settings) -> str:
    """The engine's line: ``Allocated 7.31 GiB for max tokens in paged KV cache (273792).``"""
    if settings.kv_cache_memory is None:
        raise KvplanError("no-memory", "how much memory the cache may take was not given")
    options = resolve(OPTIONS, dict(settings.engine_options), TrtLlm.name)
    plan = make_plan(model, _store(model, settings), settings, options, _max_seq_len(model, settings))
    pools = pool_blocks(plan, settings.kv_cache_memory)
    amount = sum(pool.blocks * plan.block * pool.token_bytes for pool in pools)
    hundredths = (amount * 200 + GIB) // (2 * GIB)
    size = f"{hundredths // 100}.{hundredths % 100:02d}"
    tokens = max(pools, key=lambda pool: pool.window).blocks * plan.block
    return f"Allocated {size} GiB for max tokens in paged KV cache ({tokens})."


def _max_seq_len(model: Model, settings: Settings) -> int:
    return max(1, settings.max_model_len or model.max_model_len or request_tokens(model, settings))


def make_plan(model: Model, store: Store, settings: Settings, options: Options, max_seq_len: int) -> Plan:
    tp = 1 if options.flag("enable_attention_dp") else settings.tensor_parallel_size
    layers = model.layers()
    stages = split_evenly(layers, settings.pipeline_parallel_size)
    if settings.speculative_method is not None:
        if not model.draft_layers:
            raise KvplanError(
                "no-draft",
                f"{model.id} has no prediction layers of its own",
                help="size the draft model by itself",
            )
        stages[-1] = [*stages[-1], *model.draft_layers]
    pattern = tuple(min(max_seq_len, window) for window in _windows(options)) or (max_seq_len,)
    if has_kind(model, Kind.MLA):
        pattern = (max_seq_len,)
    plan = Plan(
        tuple(_rank(stage, store, settings.mamba_ssm_cache_dtype, tp, pattern) for stage in stages),
        settings.block_size or TOKENS_PER_BLOCK,
        max_seq_len,
        settings.max_num_seqs or MAX_BATCH_SIZE,
        options.count("mamba_state_cache_interval"),
        options.numbers("window_size_shares"),
        options.count("max_tokens"),
    )
    if plan.block & (plan.block - 1):
        raise KvplanError(
            "bad-setting", f"tokens_per_block {plan.block} is no power of two", help="--block-size 32"
        )
    if plan.shares and (len(plan.shares) != len(set(pattern)) or sum(plan.shares) != 1):
        raise KvplanError(
            "bad-setting",
            f"window_size_shares must be {len(set(pattern))} parts that make 1",
            help="leave it out",
        )
    return plan


def _windows(options: Options) -> tuple[int, ...]:
    return tuple(int(entry) for entry in options.numbers("max_attention_window"))


def _rank(layers: Iterable[Layer], store: Store, ssm: str, tp: int, pattern: tuple[int, ...]) -> Rank:
    """Token bytes by window (the pattern repeats over the layers that have a cache) and the bytes of a slot."""
    windows: dict[int, list[int]] = {}
    state = place = 0
    for layer in layers:
        token = 0
        for part in layer.parts:
            for term in part_terms(part, _part_store(store, part, ssm)):
                size = term.on_rank(tp).entry_bytes
                if term.grows is Grows.TOKEN:
                    token += size
                elif term.grows is Grows.REQUEST:
                    state += size
        entry = windows.setdefault(pattern[place % len(pattern)], [0, 0])
        entry[0] += token
        entry[1] += bool(token)
        place += 1
    found = tuple((window, size, count) for window, (size, count) in sorted(windows.items()) if size)
    return Rank(found, state)


def state_slots(plan: Plan) -> int:
    """max_batch_size · pipeline stages, and one for padding."""
    return plan.resident + 1


def _held(plan: Plan, tokens: int, settings: Settings) -> tuple[PerGpu, Total]:
    """Whole blocks of every window (one more than the window's, where it is full), one state slot and its snapshots."""
    held = [_rank_bytes(plan, rank, tokens) for rank in plan.ranks]
    most, rank = max(zip(held, plan.ranks, strict=True), key=lambda pair: pair[0])
    growth = Fraction(
        sum(size for window, size, _ in rank.windows if tokens < window or window == plan.max_seq_len)
    )
    if plan.interval is not None:
        growth += Fraction(rank.state, plan.interval)
    ranks, count = settings.tensor_parallel_size, settings.requests
    replica = sum(held) * ranks
    return PerGpu(most, most * count, most * count, growth, rank.state), Total(replica, replica * count)


def _rank_bytes(plan: Plan, rank: Rank, tokens: int) -> int:
    snapshots = 0 if plan.interval is None else tokens // plan.interval
    blocks = sum(_blocks_held(plan, window, tokens) * plan.block * size for window, size, _ in rank.windows)
    return blocks + rank.state * (1 + snapshots)


def _blocks_held(plan: Plan, window: int, tokens: int) -> int:
    whole = ceil_div(tokens, plan.block)
    return whole if window >= plan.max_seq_len else min(whole, ceil_div(window, plan.block) + 1)


def pool_blocks(plan: Plan, memory: int) -> tuple[Blocks, ...]:
    """The blocks of each window for ``memory`` bytes, as the smallest rank has them; empty: nothing fits."""
    found: list[Blocks] = []
    for rank in plan.ranks:
        own = _rank_blocks(plan, rank, memory)
        if not found:
            found = list(own)
        else:
            found = [
                Blocks(mine.window, mine.token_bytes, mine.layers, min(mine.blocks, other.blocks))
                for mine, other in zip(found, own, strict=False)
            ]
    return tuple(found)


def _rank_blocks(plan: Plan, rank: Rank, memory: int) -> list[Blocks]:
    windows = list(rank.windows)
    if len(windows) > 1:
        windows = _adjusted(windows, memory)
        shares = plan.shares or (Fraction(1, len(windows)),) * len(windows)
        return [
            Blocks(window, size, layers, int(memory * share / size) // plan.block)
            for (window, size, layers), share in zip(windows, shares, strict=False)
        ]
    slope = rank.token
    rest = memory - state_slots(plan) * rank.state if rank.state else memory
    if plan.interval is not None and rank.state:
        slope += ceil_div(rank.state, plan.interval)
    if not windows:
        return []
    tokens = max(rest, 0) // slope
    if plan.max_tokens is not None:
        tokens = min(tokens, plan.max_tokens)
    (window, size, layers) = windows[0]
    return [Blocks(window, size, layers, tokens // plan.block)]


def _adjusted(windows: list[tuple[int, int, int]], memory: int) -> list[tuple[int, int, int]]:
    """Windows shrink where not even one sequence fits; windows that become equal share a pool."""
    if sum(window * size for window, size, _ in windows) < memory:
        return windows
    remaining, rest, reached, before = memory, sum(size for _, size, _ in windows), 0, 0
    merged: dict[int, list[int]] = {}
    for window, size, layers in windows:
        if remaining > 0 and rest:
            more = min(remaining // rest, window - before)
            remaining -= more * rest
            reached += more
            if reached < window:
                remaining = 0
        entry = merged.setdefault(reached, [0, 0])
        entry[0] += size
        entry[1] += layers
        rest -= size
        before = window
    return [(window, size, layers) for window, (size, layers) in merged.items()]


def _answer(plan: Plan, tokens: int, memory: int) -> tuple[Refusal | None, Pool | None]:
    found = pool_blocks(plan, memory)
    rank = plan.fullest
    if rank.state and (state_slots(plan) + 1) * rank.state > memory and rank.windows:
        fitting = memory // rank.state // len(plan.ranks) - 2
        return (
            Refusal(
                "not-enough-memory",
                f"{state_slots(plan):,} state slots of {rank.state:,} bytes (max_batch_size {plan.max_batch_size:,})"
                f" are more than {memory:,} bytes",
                help=(f"--max-num-seqs {fitting // 2}",) if fitting > 1 else (),
            ),
            None,
        )
    if any(pool.blocks < 1 for pool in found):
        return Refusal("not-enough-memory", f"{memory:,} bytes hold no block of {plan.block} tokens"), None
    longest = max((min(pool.window, pool.blocks * plan.block) for pool in found), default=plan.max_seq_len)
    if tokens > longest:
        return _too_long(tokens, longest), None
    fitting = min(
        (pool.blocks // max(_blocks_held(plan, pool.window, tokens), 1) for pool in found),
        default=plan.max_batch_size,
    )
    largest = max(found, key=lambda pool: pool.window, default=None)
    kv_tokens = 0 if largest is None else largest.blocks * plan.block
    groups = tuple(
        PoolGroup(
            "full" if pool is largest else "window",
            pool.layers,
            plan.block,
            pool.token_bytes * plan.block,
            _blocks_held(plan, pool.window, longest),
        )
        for pool in found
    )
    if rank.state:
        groups += (PoolGroup("state", 0, 1, rank.state, 1),)
    return None, Pool(
        bytes=memory,
        bytes_per_block=0 if largest is None else largest.token_bytes * plan.block,
        num_blocks=0 if largest is None else largest.blocks,
        groups=groups,
        kv_tokens=kv_tokens,
        max_concurrency=kv_tokens / longest,
        max_requests=min(fitting, plan.max_batch_size),
        requests_that_fit=fitting,
        max_num_seqs=plan.max_batch_size,
    )


def _too_long(tokens: int, longest: int) -> Refusal:
    return Refusal(
        "request-too-long",
        f"a request of {tokens:,} tokens is longer than max_seq_len {longest:,}",
        largest_max_model_len=longest,
        help=(f"--tokens {longest}",),
    )


def _store(model: Model, settings: Settings) -> Store:
    element = served_dtype(model, settings)
    return Store(
        kv=_kv_dtype(model, settings, element),
        dtype=element,
        conv_state=element if settings.mamba_cache_dtype == "auto" else scalar(settings.mamba_cache_dtype),
        recurrent_state=element
        if settings.mamba_ssm_cache_dtype == "auto"
        else scalar(settings.mamba_ssm_cache_dtype),
        index_key=KV_DTYPES["fp8_per_token_head"],
    )


@lru_cache(maxsize=1024)
def _part_store(store: Store, part: Part, ssm: str = "auto") -> Store:
    """A recurrent state is as asked, else as the config names it, else in the model's dtype."""
    word = part.state_dtype if ssm == "auto" else ssm
    return replace(store, recurrent_state=scalar(word)) if word else store


def _kv_dtype(model: Model, settings: Settings, element: Packing) -> KvDtype:
    """auto: what the checkpoint's quantisation says, else the model's dtype; else fp8 or nvfp4."""
    word = settings.kv_cache_dtype
    if word == "auto":
        scheme = model.kv_cache_scheme or ""
        found = kv_dtype(
            "fp8_e4m3" if scheme.startswith("fp8") else "nvfp4" if scheme == "nvfp4" else element.name
        )
    else:
        found = kv_dtype(word)
    if found.name not in ("fp8_e4m3", "nvfp4", element.name):
        raise KvplanError(
            "unsupported-dtype",
            f"TensorRT-LLM has no KV cache dtype {word!r}",
            help="use fp8; known: auto, fp8, nvfp4",
        )
    gpu = settings.gpu
    capability = ASSUMED_CAPABILITY if gpu is None else gpu.compute_capability
    if gpu is not None and capability is None:
        raise KvplanError(
            "engine-gpu", f"TensorRT-LLM does not run on {gpu.name}", help="choose an NVIDIA GPU"
        )
    assert capability is not None
    for name, since in (("fp8_e4m3", FP8_FROM), ("nvfp4", NVFP4_FROM)):
        if found.name == name and capability < since:
            other = "fp8" if capability >= FP8_FROM else element.name
            raise KvplanError(
                "unsupported-dtype",
                f"an {name} cache needs compute capability {since[0]}.{since[1]},"
                f" which {gpu.name if gpu else 'the GPU'} ({capability[0]}.{capability[1]}) has not",
                help=f"use {other}",
            )
    return found


def _unsupported(model: Model) -> Refusal | None:
    for run in model.runs:
        for part in run.layer.parts:
            if part.kind not in _ATTENTION and part.family not in _STATES:
                what = model.architecture or model.model_type
                return Refusal(
                    "unsupported-model",
                    f"TensorRT-LLM 1.2's cache managers have no {part.family} layers ({what})",
                )
    return None


def _shown(
    store: Store, settings: Settings, options: Options, max_seq_len: int, slots: int | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "dtype": store.dtype.name,
        "kv_cache_dtype": store.kv.name,
        "tokens_per_block": settings.block_size or TOKENS_PER_BLOCK,
        "max_seq_len": max_seq_len,
        "max_batch_size": settings.max_num_seqs or MAX_BATCH_SIZE,
        "max_num_tokens": settings.max_num_batched_tokens or MAX_NUM_TOKENS,
        "max_attention_window": list(_windows(options)) or None,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
        "enable_attention_dp": options.flag("enable_attention_dp"),
    }
    if slots is not None:
        shown["mamba_cache_dtype"] = store.conv_state.name
        shown["mamba_ssm_cache_dtype"] = settings.mamba_ssm_cache_dtype
        shown["state_slots"] = slots
    return shown


def _warnings(model: Model, options: Options) -> list[str]:
    windows = [
        part.sliding_window if isinstance(part, SlidingWindow) else 0
        for layer in model.layers()
        for part in layer.parts
        if part.kind in (Kind.FULL, Kind.SLIDING, Kind.CHUNKED)
    ]
    chunked = any(isinstance(part, ChunkedAttention) for run in model.runs for part in run.layer.parts)
    found = []
    if any(windows) and not _windows(options):
        longest = model.max_model_len or 0
        pattern = ",".join(str(size or longest) for size in windows[: _period(windows)])
        found.append(f"every layer keeps all tokens unless --max-attention-window says otherwise: {pattern}")
    if chunked:
        found.append("TensorRT-LLM keeps all tokens of chunked layers")
    return found


def _period(windows: list[int]) -> int:
    """The length of the shortest pattern that repeats over all layers."""
    for period in range(1, len(windows)):
        if all(size == windows[index % period] for index, size in enumerate(windows)):
            return period
    return len(windows)
