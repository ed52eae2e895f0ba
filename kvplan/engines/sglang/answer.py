"""What a request holds of SGLang's pools, and the pools as the answer shows them."""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.sglang.pools import EVICTION_INTERVAL, trailing
from kvplan.engines.sglang.stages import Pools, Sizes, Stage
from kvplan.results import PerGpu, Pool, PoolGroup, Total
from kvplan.units import round_up


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
    if stage.compressed is not None:
        sizes = stage.compressed
        window = sizes.window
        full = sizes.full - arguments.swa_ratio * window
        held = min(_pages(tokens, page), _pages(sizes.sliding_window + EVICTION_INTERVAL + page, page))
        state = sizes.ring * sizes.state_row * sizes.layers_128
        return int(full * _pages(tokens, page) + window * held) + state, full, state
    window_tokens = _window_held(pools, tokens)
    growing = stage.window if window_tokens and tokens < trailing(pools) else 0
    fixed = stage.target.slot * arguments.slots_per_request
    held_bytes = stage.full * _pages(own, page) + stage.window * window_tokens + fixed
    return held_bytes, Fraction(stage.full, arguments.dcp) + growing, fixed


def held_by_requests(pools: Pools, tokens: int, requests: int) -> tuple[PerGpu, Total]:
    """Pages of the full pool, the tail that the window pool keeps, and the request's state slots."""
    stages = [_stage_bytes(pools, stage, tokens) for stage in pools.stages]
    most, growth, fixed = max(stages, key=lambda stage: stage[0])
    replica = sum(held for held, _, _ in stages) * pools.arguments.attn_tp
    return PerGpu(most, most * requests, most * requests, growth, fixed), Total(replica, replica * requests)


def pool_of(pools: Pools, sizes: Sizes, tokens: int, memory: int) -> Pool:
    arguments = pools.arguments
    page = arguments.page_size
    stage = max(pools.stages, key=pools.cell)
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
        bytes_per_block=int(pools.cell(stage) * page),
        num_blocks=sizes.max_total_num_tokens // page,
        groups=_groups(pools, stage, sizes),
        kv_tokens=logical,
        max_concurrency=logical / arguments.context_len,
        max_requests=min(fitting, sizes.max_running_requests),
        requests_that_fit=fitting,
        max_num_seqs=sizes.max_running_requests,
        max_running=min(fitting, sizes.max_running_requests),
    )


def _groups(pools: Pools, stage: Stage, sizes: Sizes) -> tuple[PoolGroup, ...]:
    """The pools; blocks_per_request at the context's length."""
    arguments = pools.arguments
    page, length = arguments.page_size, arguments.context_len
    if stage.compressed is not None:
        found = stage.compressed
        full = int((found.full - arguments.swa_ratio * found.window) * page)
        return (
            PoolGroup("compressed", stage.layers, page, full, -(-length // page)),
            PoolGroup(
                "window",
                stage.layers,
                page,
                int(found.window * page),
                -(-(found.sliding_window + EVICTION_INTERVAL + page) // page),
            ),
        )
    keeping, windows, states = stage.keeping
    groups = []
    if stage.full:
        groups.append(
            PoolGroup("full", keeping, page, stage.full * page, -(-length // (page * arguments.dcp)))
        )
    if stage.window:
        groups.append(
            PoolGroup("window", windows, page, stage.window * page, _window_held(pools, length) // page)
        )
    if stage.target.slot:
        groups.append(PoolGroup("state", states, 1, stage.target.slot, arguments.slots_per_request))
    return tuple(groups)
