"""The CUDA graphs that vLLM captures, and what it estimates them to take before it has made them.

vllm-project/vllm vllm/config/vllm.py _set_cudagraph_sizes (the sizes), vllm/v1/cudagraph_dispatcher.py
initialize_cudagraph_keys (piecewise graphs of every size, full ones of those that a decode batch can fill);
vllm/v1/worker/gpu_model_runner.py profile_cudagraph_memory: the first of each kind and the second, times how
many follow. The V2 runner returned 0 until 0.29, when it began to measure the piecewise ones and to
extrapolate the full ones (vllm/v1/worker/gpu/cudagraph_utils.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kvplan.engines.vllm.options import CUDAGRAPH_MODES
from kvplan.units import ceil_div

NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE = CUDAGRAPH_MODES
_FINE = 32
LARGEST, LARGEST_WIDE = 512, 1024
"""Tokens of the largest graph; on data-centre Blackwell since 0.28."""


class Captured(NamedTuple):
    """How many graphs of each kind; largest_full: tokens of the largest full one."""

    piecewise: int
    full: int
    largest_full: int = 0

    @property
    def number(self) -> int:
        """Of both kinds."""
        return self.piecewise + self.full


@lru_cache(maxsize=1024)
def captured(
    seqs: int,
    tokens: int,
    drafts: int,
    *,
    largest: int = 0,
    wide: bool = False,
    by_request: bool = False,
    apart: bool = False,
    uniform: bool = True,
    mode: str = FULL_AND_PIECEWISE,
    fine: bool = False,
    given: tuple[int, ...] = (),
) -> Captured:
    """Sizes 1, 2, 4, 8, 16 … 248, 256, 272 … up to twice the decode batch, at most ``LARGEST`` and the batch.

    drafts: tokens proposed for each request; sizes are whole requests' then, with `apart` (the V2 runner
    since 0.25, gpu/cudagraph_utils.py) those of full graphs alone. largest: as asked for; 0: the default.
    by_request: since 0.29 the grid counts requests too. uniform: the attention kernels take several
    tokens a request in a full graph; where they do not, drafts leave piecewise graphs alone. mode: which are
    made; "full" is every size in full. fine: every size up to 32 (performance mode ``interactivity``). given:
    the sizes themselves, where they are asked for.
    """
    if mode == NONE:
        return Captured(0, 0)
    query = 1 + drafts
    by_request = by_request and not largest
    if given:
        return _made({size for size in given if size <= tokens}, seqs, query, apart, uniform, mode)
    largest = min(largest or min(seqs * query * 2, LARGEST_WIDE if wide else LARGEST), tokens)
    sizes = set(_grid(largest)) | (set(range(1, min(largest, _FINE) + 1)) if fine else set())
    if tokens <= largest:
        sizes.add(tokens)
    if by_request and query > 1:
        sizes |= {count * query for count in (*_grid(seqs), seqs) if count * query <= largest}
    elif by_request and seqs <= largest:
        sizes.add(seqs)
    return _made(sizes, seqs, query, apart, uniform, mode)


def _made(sizes: set[int], seqs: int, query: int, apart: bool, uniform: bool, mode: str) -> Captured:
    """Of sizes: those of decode batches in full too. query: tokens of a request in one."""
    if not sizes:
        return Captured(0, 0)
    largest = max(sizes)
    if mode == PIECEWISE or (query > 1 and not uniform):
        return Captured(len(sizes), 0)  # rounded for full decode graphs alone
    whole = {ceil_div(size, query) * query for size in sizes}
    whole = {size for size in whole if size <= largest}
    if not apart:
        sizes = whole = whole or {largest}
    if mode == FULL:
        return Captured(0, len(sizes), max(sizes))
    whole_batches = [size for size in whole if query <= size <= seqs * query]
    piecewise = 0 if mode == FULL_DECODE_ONLY else len(sizes)
    return Captured(piecewise, len(whole_batches), max(whole_batches, default=0))


def _grid(largest: int) -> list[int]:
    small = [size for size in (1, 2, 4) if size <= largest]
    return [*small, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
