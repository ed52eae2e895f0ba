"""TensorRT-LLM's KVCacheManagerV2 (use_kv_cache_manager_v2, a prototype that is off by default in 1.2).

NVIDIA/TensorRT-LLM 1.2: tensorrt_llm/_torch/pyexecutor/resource_manager.py (KVCacheManagerV2: the quota,
max_seq_len), tensorrt_llm/runtime/kv_cache_manager_v2/_storage/_config.py (buffers of one size and one window
form a slot; windows whose slots are alike share a pool), _storage_manager.py and _storage/_core.py (from the
quota to slots), _life_cycle_registry.py (blocks behind a window). Later releases are not described.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from kvplan.engines.base import has_kind, part_terms
from kvplan.engines.generic import split_evenly
from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.engines.trtllm.plan import MAX_BATCH_SIZE
from kvplan.engines.trtllm.store import part_store, tokens_per_block
from kvplan.engines.trtllm.windows import windows_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, Storage
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.results import PerGpu, Pool, PoolGroup, Refusal, Total, plain_number
from kvplan.settings import Serving, Settings
from kvplan.terms import Grows
from kvplan.units import GIB, MIB, ceil_div, round_up

PAGE = 2 * MIB
"""The smallest piece of memory that a pool grows by; 16 times as much from 16 GiB on."""


@record()
class Cycle:
    """Layers of one window (None: all tokens). slots: bytes of one block, one entry for each buffer size."""

    window: int | None
    slots: tuple[int, ...]
    layers: int

    def held(self, tokens: int, block: int) -> int:
        """Blocks of a sequence: all but those that lie behind the window (get_stale_range)."""
        stale = 0 if self.window is None else max(0, (tokens + 1 - self.window) // block)
        return ceil_div(tokens, block) - stale


@record()
class PlanV2:
    """Everything that does not depend on memory; ranks: the cycles of each pipeline stage."""

    ranks: tuple[tuple[Cycle, ...], ...]
    block: int
    max_seq_len: int
    max_batch_size: int
    util: Fraction
    max_tokens: int | None

    def bytes_of(self, rank: tuple[Cycle, ...], tokens: int) -> int:
        return sum(cycle.held(tokens, self.block) * sum(cycle.slots) for cycle in rank)

    def quota(self, rank: tuple[Cycle, ...], memory: int) -> int:
        """Of the memory; at most what max_tokens take at the utilisation up to which requests resume."""
        if self.max_tokens is None:
            return memory
        token = sum(sum(cycle.slots) for cycle in rank) // self.block
        return min(memory, int((self.max_tokens * token + self.util - 1) // self.util))


def plan_v2(
    model: Model, store: Storage, settings: Serving, options: TrtllmOptions, max_seq_len: int
) -> PlanV2:
    """Raises KvplanError(unsupported-setting | unsupported-dtype) for what this manager does not take."""
    _check(model, store, settings, options)
    tp = 1 if options.enable_attention_dp else settings.tensor_parallel_size
    block = tokens_per_block(model, settings)
    pattern = tuple(min(max_seq_len, window) for window in windows_of(options)) or (max_seq_len,)
    util = options.max_util_for_resume
    assert util is not None
    return PlanV2(
        tuple(
            _cycles(stage, store, tp, block, pattern, max_seq_len)
            for stage in split_evenly(model.layers(), settings.pipeline_parallel_size)
        ),
        block,
        max_seq_len,
        settings.max_num_seqs or MAX_BATCH_SIZE,
        util,
        options.max_tokens,
    )


def _check(model: Model, store: Storage, settings: Serving, options: TrtllmOptions) -> None:
    without = "leave use_kv_cache_manager_v2 out"
    refused = None
    if has_kind(model, Kind.STATE, Kind.INDEXER):
        refused = "keeps no states and no index keys in 1.2"
    elif settings.speculative_method is not None:
        refused = "with speculation needs the extra tokens of each method, which are not known here"
    elif options.window_size_shares:
        refused = "divides its memory by itself: window_size_shares are of the other manager"
    elif any(all(part.kind is Kind.NONE for part in run.layer.parts) for run in model.runs):
        refused = "has no rule for layers without a cache of their own"
    if refused is not None:
        raise KvplanError("unsupported-setting", f"KVCacheManagerV2 {refused}", help=without)
    if store.kv.name == "nvfp4":
        raise KvplanError(
            "unsupported-dtype", "KVCacheManagerV2 takes no nvfp4 cache in 1.2", help=("use fp8", without)
        )


def _cycles(
    layers: Iterable[Layer],
    store: Storage,
    tp: int,
    block: int,
    pattern: tuple[int, ...],
    max_seq_len: int,
) -> tuple[Cycle, ...]:
    """The pattern of windows repeats over the layers of the stage; a window of max_seq_len is none."""
    sizes: dict[int | None, Counter[int]] = {}
    counts: Counter[int | None] = Counter()
    for place, layer in enumerate(layers):
        window = pattern[place % len(pattern)]
        key = None if window == max_seq_len else window
        counts[key] += 1
        for part in layer.parts:
            for term in part_terms(part, part_store(store, part)):
                if term.grows is Grows.TOKEN:
                    sizes.setdefault(key, Counter())[term.on_rank(tp).entry_bytes * block] += 1
    return tuple(
        Cycle(
            window,
            tuple(sorted((size * times for size, times in buffers.items()), reverse=True)),
            counts[window],
        )
        for window, buffers in sizes.items()
    )


def held(plan: PlanV2, tokens: int, settings: Settings) -> tuple[PerGpu, Total]:
    """Whole blocks of every window on the fullest GPU, and on all."""
    each = [plan.bytes_of(rank, tokens) for rank in plan.ranks]
    most, rank = max(zip(each, plan.ranks, strict=True), key=lambda pair: pair[0])
    growing = (cycle for cycle in rank if cycle.window is None or tokens < cycle.window)
    growth = Fraction(sum(sum(cycle.slots) for cycle in growing), plan.block)
    count, replica = settings.requests, sum(each) * settings.tensor_parallel_size
    return PerGpu(most, most * count, most * count, plain_number(growth), 0), Total(replica, replica * count)


def answer(plan: PlanV2, tokens: int, memory: int) -> tuple[Refusal | None, Pool | None]:
    """The pools of a quota, the longest sequence that they hold, and how many requests."""
    counts = [slots_of(plan, rank, memory) for rank in plan.ranks]
    most = min(_longest(plan, rank, own) for rank, own in zip(plan.ranks, counts, strict=True))
    longest = min(plan.max_seq_len, int(most * plan.util))
    if longest < 1:
        return Refusal("not-enough-memory", f"{memory:,} bytes hold no block of {plan.block} tokens"), None
    if tokens > longest:
        message = f"a request of {tokens:,} tokens is longer than max_seq_len {longest:,}"
        help_lines = (f"--tokens {longest}",)
        return Refusal("request-too-long", message, largest_max_model_len=longest, help=help_lines), None
    fitting = min(
        own[slots] // max(amount, 1)
        for rank, own in zip(plan.ranks, counts, strict=True)
        for slots, amount in _needs(plan, rank, tokens).items()
    )
    rank, own = max(zip(plan.ranks, counts, strict=True), key=lambda pair: plan.bytes_of(pair[0], longest))
    full = max(rank, key=lambda cycle: (cycle.window is None, cycle.window or 0))
    return None, Pool(
        bytes=memory,
        bytes_per_block=sum(full.slots),
        num_blocks=own[full.slots],
        groups=tuple(
            PoolGroup(
                "full" if cycle is full else "window",
                cycle.layers,
                plan.block,
                sum(cycle.slots),
                cycle.held(longest, plan.block),
            )
            for cycle in rank
        ),
        kv_tokens=most,
        max_concurrency=most / longest,
        max_requests=min(fitting, plan.max_batch_size),
        requests_that_fit=fitting,
        max_num_seqs=plan.max_batch_size,
        max_running=min(fitting, plan.max_batch_size),
    )


Slots = dict[tuple[int, ...], int]


def _needs(plan: PlanV2, rank: tuple[Cycle, ...], tokens: int) -> Slots:
    """Blocks of one sequence in each pool; windows whose blocks are alike draw on one."""
    needed: Slots = {}
    for cycle in rank:
        needed[cycle.slots] = needed.get(cycle.slots, 0) + cycle.held(tokens, plan.block)
    return needed


def slots_of(plan: PlanV2, rank: tuple[Cycle, ...], memory: int) -> Slots:
    """Blocks of each pool of one rank: the quota in grains, divided by the bytes of a block of all cycles.
    Later releases divide it among unlike pools by a typical batch."""
    variants = Counter(cycle.slots for cycle in rank)
    quota = plan.quota(rank, memory)
    grain = grain_of(quota)
    pools = sum(len(slots) for slots in variants)
    rest = max(pools, round_up(quota, grain) // grain)
    weights = {slots: sum(slots) * times for slots, times in variants.items()}
    found: Slots = {}
    order = sorted(variants, key=lambda slots: weights[slots])
    for place, slots in enumerate(order):
        share = Fraction(weights[slots], sum(weights[other] for other in order[place:]))
        grains = max(round(rest * share), sum(ceil_div(size, grain) for size in slots))
        found[slots] = _blocks(slots, grains, grain)
        rest -= grains
    return found


def grain_of(quota: int) -> int:
    """2 MiB, doubled with the quota from 2 GiB on, up to 32 MiB."""
    return PAGE << min(4, max(0, (quota // GIB).bit_length() - 1))


def _blocks(slots: tuple[int, ...], grains: int, grain: int) -> int:
    """The fewest that any of the group's pools has; the smallest pool takes its share first."""
    found, sizes = 1 << 63, sorted(slots)
    for place, size in enumerate(sizes):
        own = max(ceil_div(size, grain), round(grains * Fraction(size, sum(sizes[place:]))))
        found = min(found, own * grain // size)
        grains -= own
    return found


def _longest(plan: PlanV2, rank: tuple[Cycle, ...], counts: Slots) -> int:
    """The longest sequence that the pools hold, in whole blocks (clamp_max_seq_len_for_mem).

    Windows alone hold any length; then it is twice max_seq_len.
    """
    most = max(max(counts[cycle.slots] for cycle in rank) * plan.block, 2 * plan.max_seq_len)

    def fits(blocks: int) -> bool:
        needed = _needs(plan, rank, blocks * plan.block)
        return all(amount <= counts[slots] for slots, amount in needed.items())

    low, high = 0, ceil_div(most, plan.block) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * plan.block
