"""The automatic ``mem_fraction_static`` of SGLang 0.4.6 to 0.5.9.

sgl-project/sglang server_args.py: 0.4.6 to 0.5.2 (__post_init__), 0.5.3 to 0.5.9
(_handle_gpu_memory_settings); 0.4.6 to 0.4.8 model_executor/model_runner.py (model_specific_adjustment).
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.sglang.capacity import FLOOR, FLOOR_FROM, Serving, for_images
from kvplan.units import KIB

UNKNOWN = Fraction("0.88")
_BY_RANKS = ((16, "0.79"), (8, "0.81"), (4, "0.85"), (2, "0.87"), (1, "0.88"))
_RESERVED = ((35 * KIB, "2.8", "0.1"), (90 * KIB, "9.5", "0.5"), (160 * KIB, "12", "0.5"))
"""(below so many MiB, GiB kept free, GiB more a rank)."""
_LARGEST = 32 * KIB
OF_IMAGES = Fraction("0.9")
"""0.4.6 to 0.4.8: what image models have of the fraction, given or not."""


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
