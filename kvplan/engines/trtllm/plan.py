"""Blocks, windows and state slots (KVCacheManager of resource_manager.py, mamba_cache_manager.py)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kvplan.architectures.config.view import MAX_LAYERS
from kvplan.engines.base import has_kind, part_terms
from kvplan.engines.generic import split_evenly
from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.engines.trtllm.store import part_store, tokens_per_block
from kvplan.engines.trtllm.windows import windows_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, Storage
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.settings import Serving
from kvplan.terms import Grows
from kvplan.units import ceil_div

MAX_BATCH_SIZE = 2048
MAX_NUM_TOKENS = 8192


@record()
class Rank:
    """One pipeline stage on one GPU.

    Windows: bytes of a token and number of layers of each window size, sorted.
    """

    windows: tuple[tuple[int, int, int], ...]
    state: int

    @property
    def token(self) -> int:
        return sum(size for _, size, _ in self.windows)


@record()
class Plan:
    """Everything that does not depend on memory. pattern: the windows that repeat over the layers."""

    ranks: tuple[Rank, ...]
    tensor_parallel_size: int
    pattern: tuple[int, ...]
    block: int
    max_seq_len: int
    max_batch_size: int
    interval: int | None
    shares: tuple[Fraction, ...]
    max_tokens: int | None
    max_num_tokens: int = MAX_NUM_TOKENS

    @property
    def fullest(self) -> Rank:
        return max(self.ranks, key=lambda rank: (rank.token, rank.state))

    @property
    def resident(self) -> int:
        """Requests that own a state slot."""
        return self.max_batch_size if self.interval is None else self.max_batch_size * len(self.ranks)


@record()
class Blocks:
    """A window's pool after start-up: the window may have been reduced."""

    window: int
    token_bytes: int
    layers: int
    blocks: int


def make_plan(
    model: Model, store: Storage, settings: Serving, options: TrtllmOptions, max_seq_len: int
) -> Plan:
    tp = 1 if options.enable_attention_dp else settings.tensor_parallel_size
    layers = model.layers()
    stages = split_evenly(layers, settings.pipeline_parallel_size)
    stages[-1] = [*stages[-1], *draft_layers(model, settings)]
    pattern = tuple(min(max_seq_len, window) for window in windows_of(options)) or (max_seq_len,)
    if has_kind(model, Kind.MLA):
        pattern = (max_seq_len,)
    plan = Plan(
        tuple(_rank(stage, store, settings.mamba_ssm_cache_dtype, tp, pattern) for stage in stages),
        tp,
        pattern,
        tokens_per_block(model, settings),
        max_seq_len,
        settings.max_num_seqs or MAX_BATCH_SIZE,
        options.mamba_state_cache_interval,
        options.window_size_shares,
        options.max_tokens,
        settings.max_num_batched_tokens or MAX_NUM_TOKENS,
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


def draft_layers(model: Model, settings: Serving) -> list[Layer]:
    """A layer of the cache for each token drafted, though one prediction layer makes them all.

    _torch/speculative/utils.py (get_num_spec_layers: num_nextn_predict_layers, as asked;
    NVIDIA/TensorRT-LLM#12683 has three of DeepSeek-V3.2's one).
    Raises KvplanError(no-draft | unsupported-setting).
    """
    if settings.speculative_method is None:
        return []
    if has_kind(model, Kind.STATE):
        raise KvplanError(
            "unsupported-setting",
            "TensorRT-LLM 1.2 does not speculate beside states (NVIDIA/TensorRT-LLM#11533)",
            help="leave out --speculative",
        )
    if not model.draft_layers:
        raise KvplanError(
            "no-draft",
            f"{model.id} has no prediction layers of its own",
            help="size the draft model by itself",
        )
    own = model.draft_layers
    if settings.num_speculative_tokens > MAX_LAYERS:
        raise KvplanError(
            "bad-setting", f"num_speculative_tokens is {settings.num_speculative_tokens:,}",
            help=f"each token drafted has a layer of its own here, of {MAX_LAYERS:,} at most",
        )  # fmt: skip
    return [own[place % len(own)] for place in range(max(1, settings.num_speculative_tokens))]


def _rank(layers: Iterable[Layer], store: Storage, ssm: str, tp: int, pattern: tuple[int, ...]) -> Rank:
    """Token bytes by window and the bytes of a state slot.

    The pattern repeats over all layers; beside states only over those that have a cache.
    """
    windows: dict[int, list[int]] = {}
    tokens: list[int] = []
    state = 0
    for layer in layers:
        token = 0
        for part in layer.parts:
            for term in part_terms(part, part_store(store, part, ssm)):
                size = term.on_rank(tp).entry_bytes
                if term.grows is Grows.TOKEN:
                    token += size
                elif term.grows is Grows.REQUEST:
                    state += size
        tokens.append(token)
    if state:
        tokens = [token for token in tokens if token]
    for place, token in enumerate(tokens):
        entry = windows.setdefault(pattern[place % len(pattern)], [0, 0])
        entry[0] += token
        entry[1] += bool(token)
    found = tuple((window, size, count) for window, (size, count) in sorted(windows.items()) if size)
    return Rank(found, state)


def state_slots(plan: Plan) -> int:
    """max_batch_size (MambaCacheManager); with snapshots, which later releases have, one more for padding."""
    return plan.resident + (plan.interval is not None)


def rank_bytes(plan: Plan, rank: Rank, tokens: int) -> int:
    snapshots = 0 if plan.interval is None else tokens // plan.interval
    blocks = sum(blocks_held(plan, window, tokens) * plan.block * size for window, size, _ in rank.windows)
    return blocks + rank.state * (1 + snapshots)


def blocks_held(plan: Plan, window: int, tokens: int) -> int:
    whole = ceil_div(tokens, plan.block)
    return whole if window >= plan.max_seq_len else min(whole, ceil_div(window, plan.block) + 1)


def room_of(plan: Plan, window: int) -> int:
    """Tokens of one request that a window's pool has room for: beside the window the chunk in prefill.

    cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp: getRemainingBlocksToCompletion counts min(prompt + new,
    window + temporaryAttentionWindow), and that is min(max_num_tokens, max_input_len - window), with
    max_input_len = max_seq_len - 1 (resource_manager.py, _set_temp_attention_window_inputs).
    """
    return window + max(0, min(plan.max_num_tokens, plan.max_seq_len - 1 - window))


def blocks_charged(plan: Plan, window: int, tokens: int) -> int:
    """Blocks that a request is admitted with."""
    whole = window >= plan.max_seq_len
    return ceil_div(tokens if whole else min(tokens, room_of(plan, window)), plan.block)


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
