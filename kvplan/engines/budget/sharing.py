"""The share of one pool that requests of a mix take where their prompts have blocks in common.

    request of a shape = samples · share(shape) − (samples − 1) · hit(prompt, prompt) − hit(prompt, prefix)
    requests           = Σ requests of the mix + whole(prefix) − dropped + the largest excess of a shape

Only whole blocks of layers that keep every token are the same for two requests, and only where the engine
keeps prefixes (vllm-project/vllm v1/core/kv_cache_manager.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from kvplan.engines.traits import traits_of
from kvplan.named import NamedTuple
from kvplan.results import PoolGroup, SizeResult
from kvplan.settings import EAGLE_LIKE

Share = Callable[[int], "Fraction | None"]
"""The share of one pool that so many tokens take; None where the engine does not take them."""


class Taken(NamedTuple):
    """Shares of one pool, by the engine's own allocator."""

    share: Fraction
    """what a request takes once its prompt is computed"""
    excess: Fraction = Fraction(0)
    """what must be free beyond that to admit it (a window's tokens in flight), for one request at a time"""


Takes = Callable[[int, int], "Taken | None"]
"""The share of a pool that a request takes, by its tokens and the generated ones of them; None: the engine
does not take it."""
_FULL = ("full_attention", "mla_attention")
"""Groups whose blocks depend on the tokens before them alone."""


class Sharing(NamedTuple):
    """block: tokens of the largest unit that is shared, 0 where nothing is. prefix: tokens that all prompts
    begin with; samples: sequences of one prompt; dropped: tokens at the end of what is found that are not
    taken."""

    block: int = 0
    prefix: int = 0
    samples: int = 1
    dropped: int = 0

    @property
    def apart(self) -> bool:
        """Whether every request is one sequence that has no block in common with another."""
        return self.samples == 1 and (not self.block or self.prefix < self.block)

    def _whole(self, tokens: int, share: Share) -> Fraction:
        """The share of the whole blocks of so many tokens, where equal ones are held once; else 0."""
        whole = tokens // self.block * self.block - self.dropped if self.block else 0
        return (share(whole) or Fraction(0)) if whole > 0 else Fraction(0)

    def hit(self, prompt: int, head: int, share: Share) -> Fraction:
        """The share of what of a prompt's first ``head`` tokens is found in the pool. A prompt's last token
        is always computed again, and its block with it (get_computed_blocks)."""
        return self._whole(min(head, prompt - 1), share)

    def request(self, prompt: int, answer: int, takes: Takes, share: Share) -> Taken | None:
        """The share that one request of the shape takes, all its samples, without the blocks that it shares
        with others."""
        one = takes(prompt + answer, answer)
        if one is None or self.apart:
            return one
        more = self.samples - 1
        saved = self.hit(prompt, prompt, share) * more if more else 0
        return Taken(one.share * self.samples - saved - self.hit(prompt, self.prefix, share), one.excess)

    def common(self, share: Share) -> Fraction:
        """The share of what all prompts begin with: held once."""
        return self._whole(self.prefix, share)


def shared_block(groups: Sequence[PoolGroup], *, prefix_caching: bool) -> int:
    """Tokens of the largest unit in which equal heads of prompts are held once; 0 where they are not:
    prefixes are not kept, or a layer drops or summarises tokens."""
    if not prefix_caching or not groups or any(group.kind not in _FULL for group in groups):
        return 0
    return max(group.block_size for group in groups)


def dropped_of(result: SizeResult) -> int:
    """Tokens that a prefix hit leaves out at its end: one block where drafts read the target's hidden states
    (vllm-project/vllm vllm/config/speculative.py, use_eagle_block_drop)."""
    reads_hidden = result.settings.get("speculative_method") in EAGLE_LIKE
    drops = reads_hidden and traits_of(result.engine.name).drafts_drop_block
    return block_of(result) if drops else 0


def block_of(result: SizeResult) -> int:
    """`shared_block` of an engine's answer."""
    groups = result.pool.groups if result.pool is not None else ()
    return shared_block(groups, prefix_caching=bool(result.settings.get("enable_prefix_caching")))


def taken_of(result: SizeResult) -> Taken | None:
    """The share of one pool that the request of the answer takes; None where the engine does not take it."""
    pool = result.pool
    if pool is None or result.refusal is not None:
        return None
    if pool.running_blocks is None or pool.prompt_blocks is None:
        share = share_of(result)
        return None if share is None else Taken(share)
    usable = usable_blocks(result)
    if usable <= 0:
        return None
    excess = max(0, pool.prompt_blocks - pool.running_blocks)
    return Taken(Fraction(pool.running_blocks, usable), Fraction(excess, usable))


def runs_of(result: SizeResult) -> int:
    """Requests like that of the answer that run at once in one pool, never fewer than their shares sum to;
    max_num_seqs aside where the engine does not need it to know."""
    pool = result.pool
    if pool is None or result.refusal is not None:
        return 0
    return pool.requests_that_fit if pool.running_blocks is None else pool.max_running


def share_of(result: SizeResult) -> Fraction | None:
    """The share of one pool that start-up reserves for the request of the answer; None where the engine does
    not take it.

    vLLM: its blocks over the usable ones (block 0 is never handed out). Engines with several pools: one
    over the number that fits, which is never less than the true share.
    """
    pool = result.pool
    if pool is None or result.refusal is not None:
        return None
    if pool.bytes_per_block and traits_of(result.engine.name).one_pool:
        usable = usable_blocks(result)
        blocks = result.per_gpu.reserved_bytes_per_request // pool.bytes_per_block
        return Fraction(blocks, usable) if usable > 0 else None
    return Fraction(1, pool.requests_that_fit) if pool.requests_that_fit else None


def usable_blocks(result: SizeResult) -> int:
    """Blocks of the answer's pool that requests can have: vLLM keeps block 0, its null block
    (vllm-project/vllm v1/core/block_pool.py)."""
    if result.pool is None:
        return 0
    return max(0, result.pool.num_blocks - traits_of(result.engine.name).null_blocks)


def usable_bytes(result: SizeResult) -> int:
    """Bytes of the answer's pool that requests can have: its usable blocks, or all of a pool that an engine
    divides among blocks of several kinds and states."""
    pool = result.pool
    if pool is None:
        return 0
    if pool.bytes_per_block and traits_of(result.engine.name).one_pool:
        return usable_blocks(result) * pool.bytes_per_block
    return pool.bytes
