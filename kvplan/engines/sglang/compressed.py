"""DeepSeek-V4 in SGLang: latents in padded pages, a window pool, states by page and by request.

sgl-project/sglang 0.5.23 model_executor/pool_configurator.py (DSV4PoolConfigurator), mem_cache/deepseek_v4_memory_pool.py.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.sglang.arguments import Arguments
from kvplan.engines.sglang.stages import (
    LEAST_REQUESTS,
    MOST_REQUESTS,
    PoolError,
    Pools,
    Sizes,
    Stage,
    running,
)
from kvplan.families import CompressedAttention
from kvplan.record import record
from kvplan.units import ceil_div, round_up


@record()
class Compressed:
    """DeepSeek-V4's bytes: of a window token, of a full token, and of the request-scoped states."""

    window: Fraction
    full: Fraction
    state_row: int
    layers_128: int
    ring: int

    def fixed(self, requests: int) -> int:
        """ceil128((requests + 1) · ring + ring + 1) rows of value and score in fp32 for each ratio-128 layer."""
        if not self.layers_128:
            return 0
        return round_up((requests + 2) * self.ring + 1, 128) * self.state_row * self.layers_128


PAGE_UNIT = 576
"""A page of latents is rounded up to this many bytes (FlashMLA layout)."""
STATE_BYTES = 4


def _page_token_bytes(latent: int, tokens: int) -> Fraction:
    return Fraction(ceil_div(latent * tokens, PAGE_UNIT) * PAGE_UNIT, tokens)


def compressed_bytes(stage: Stage, arguments: Arguments) -> Compressed:
    """DSV4PoolConfigurator: 584 B latents in padded pages, states of ratio 4 by window page, of 128 by request."""
    page, speculative = arguments.page_size, bool(arguments.draft_tokens)
    parts = [part for layer in stage.layers for part in layer.parts if isinstance(part, CompressedAttention)]
    window = full = Fraction(0)
    row = layers_128 = 0
    for part in parts:
        latent = (part.head_dim - part.qk_rope_head_dim) + 2 * part.qk_rope_head_dim + 8
        window += _page_token_bytes(latent, page)
        rate = part.compress_rate
        if rate is None:
            continue
        full += _page_token_bytes(latent, page // rate) / rate
        if part.overlapping:
            index = part.index_head_dim or 0
            window += Fraction(16 if speculative else 8, page) * 4 * STATE_BYTES * (part.head_dim + index)
            full += Fraction(index + index // 128 * 4, rate)
        else:
            layers_128 += 1
            row = 2 * part.head_dim * STATE_BYTES
    inflation = Fraction(len(parts) + 1, len(parts)) if speculative else Fraction(1)
    full += arguments.swa_ratio * window
    return Compressed(window * inflation, full * inflation, row, layers_128, 256 if speculative else 128)


def solve_compressed(pools: Pools, memory: int) -> Sizes:
    arguments, page = pools.arguments, pools.arguments.page_size
    tokens = None
    for stage in pools.stages:
        sizes = compressed_bytes(stage, arguments)
        if arguments.max_running_requests is not None:
            requests = max(1, arguments.max_running_requests // arguments.attn_dp)
        else:
            first = int(memory / sizes.full)
            requests = min(
                max(min(512 * first // arguments.context_len, MOST_REQUESTS), LEAST_REQUESTS), first // 2
            )
        own = int(max(memory - sizes.fixed(requests), 0) / sizes.full) // page * page
        tokens = own if tokens is None else min(tokens, own)
    assert tokens is not None
    if arguments.max_total_tokens is not None:
        tokens = min(tokens, arguments.max_total_tokens) // page * page
    if tokens <= 0:
        raise PoolError(f"{memory:,} bytes hold no page of {page} tokens: raise --mem-fraction-static")
    window = int(tokens * arguments.swa_ratio) // page * page
    own_window = _compressed_window(pools)
    if own_window + page >= window:
        raise PoolError(
            f"the window pool ({window:,} tokens) cannot hold one request of {own_window:,} and a page"
        )
    return Sizes(tokens, window, 0, running(arguments, tokens, 0))


def _compressed_window(pools: Pools) -> int:
    return max(
        part.sliding_window
        for stage in pools.stages
        for layer in stage.layers
        for part in layer.parts
        if isinstance(part, CompressedAttention)
    )
