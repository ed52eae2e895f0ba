"""DeepSeek-V4 in SGLang: latents in padded pages, a window pool, states by page and by request.

sgl-project/sglang 0.5.12 to 0.5.23 model_executor/pool_configurator.py (DSV4PoolConfigurator),
mem_cache/deepseek_v4_memory_pool.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvplan.engines.sglang.cache_layout.stages import (
    LEAST_REQUESTS,
    MOST_REQUESTS,
    Compressed,
    PoolError,
    Pools,
    Sizes,
    running,
)
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.families import Kind
from kvplan.model import Layer
from kvplan.units import ceil_div

PAGE_UNIT = 576
"""A page of latents is rounded up to this many bytes (FlashMLA layout)."""
STATE_BYTES = 4


def _page_token_bytes(latent: int, tokens: int) -> Fraction:
    return Fraction(ceil_div(latent * tokens, PAGE_UNIT) * PAGE_UNIT, tokens)


def compressed_bytes(layers: Sequence[Layer], arguments: Arguments, beside: int = 0) -> Compressed:
    """Latents of 584 B in padded pages; states of ratio 4 by window page, of ratio 128 by request.

    Until 0.5.20 pages are priced as they are filled, and states of ratio 4 by the window's length, not by
    pages; until 0.5.14 those of ratio 128 by window tokens too; in 0.5.12 a prediction layer that the config
    lists (``beside``) has a window's latents of its own.
    """
    page, speculative, rules = arguments.page_size, bool(arguments.draft_tokens), arguments.rules
    parts = [part for layer in layers for part in layer.parts if part.kind is Kind.COMPRESSED]
    window = full = Fraction(0)
    row = layers_128 = 0
    for part in parts:
        latent = (part.head_dim - part.qk_rope_head_dim) + 2 * part.qk_rope_head_dim + 8
        window += _page_token_bytes(latent, page) if rules.padded_latents else latent
        rate = part.compress_rate
        if rate is None:
            continue
        full += (_page_token_bytes(latent, page // rate) if rules.padded_latents else latent) / Fraction(rate)
        over = page if rules.padded_latents else part.sliding_window
        if part.overlapping:
            index = part.index_head_dim or 0
            window += Fraction(16 if speculative else 8, over) * 4 * STATE_BYTES * (part.head_dim + index)
            full += Fraction(index + index // 128 * 4, rate)
        elif rules.fixed_states:
            layers_128 += 1
            row = 2 * part.head_dim * STATE_BYTES
        else:
            window += Fraction(256 if speculative else 128, over) * 2 * part.head_dim * STATE_BYTES
    counted = len(parts)
    if parts and not rules.stage_layers:
        counted += beside
        window += beside * (parts[0].head_dim + parts[0].qk_rope_head_dim + 8)
    inflation = Fraction(counted + 1, counted) if speculative and parts else Fraction(1)
    full += arguments.swa_ratio * window
    ring, longest = 256 if speculative else 128, max((part.sliding_window for part in parts), default=0)
    return Compressed(window * inflation, full * inflation, row, layers_128, ring, longest)


def solve_compressed(pools: Pools, memory: int) -> Sizes:
    arguments, page = pools.arguments, pools.arguments.page_size
    tokens = None
    own_window = 0
    for stage in pools.stages:
        sizes = stage.compressed
        assert sizes is not None
        own_window = max(own_window, sizes.sliding_window)
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
    if arguments.rules.window_floor and own_window + page >= window:
        raise PoolError(
            f"the window pool ({window:,} tokens) cannot hold one request of {own_window:,} and a page"
        )
    return Sizes(tokens, window, 0, running(arguments, tokens, 0))
