"""Prompt blocks that several requests hold once: shared prefixes, parallel samples, beams.

With P shared tokens and blocks of b, of layers that keep every token (vllm-project/vllm
v1/core/kv_cache_manager.py, reference counts; SGLang: radix tree by page):

    shared = ⌊P / b⌋ · b · bytes_per_token          held once
    requests = ⌊(usable − shared) / (held(T) − shared)⌋

A partly filled block is every sequence's own: copy-on-write copies it at the first token that differs. So are
windows that have moved past the prefix, and recurrent states.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.planning.levers.results import Lever, exactly
from kvplan.planning.levers.situation import SEVERAL_POOLS, Situation


def prefix_sharing(seen: Situation) -> Lever:
    """A prefix that all requests have in common, and parallel samples of one prompt."""
    prefix, samples = seen.workload.shared_prefix_tokens, seen.workload.samples
    if prefix < seen.block_size and samples == 1:
        why = f"no block of {seen.block_size} tokens is the same in all prompts"
        return Lever("prefix sharing", why, applies=False)
    if not seen.is_one_pool:
        return Lever("prefix sharing", SEVERAL_POOLS, applies=False)
    own, once = _own_and_shared(seen)
    family = seen.held_bytes(seen.typical.tokens) * samples
    before = seen.usable_bytes // family * samples
    after = _fitting(seen, own, once)
    what = f"{prefix:,} shared tokens" if samples == 1 else f"{samples} samples of one prompt"
    effects = (
        exactly("sequences without sharing", before, "requests"),
        exactly("sequences with sharing", after, "requests"),
        exactly("held once", once, "bytes"),
        exactly("each sequence's own", own, "bytes"),
    )
    summary = f"{what}: {after:,} sequences fit instead of {before:,}"
    return Lever("prefix sharing", summary, effects, (_RULE, _SEQS), setting="enable_prefix_caching")


_SEQS = "max_num_seqs aside"
_RULE = "full blocks of layers that keep every token are held once; the last, partly filled block is copied"


def _own_and_shared(seen: Situation) -> tuple[int, int]:
    """Bytes of one sequence that nobody shares, and of what all (or all samples) share."""
    samples, prompt = seen.workload.samples, seen.typical.input_tokens
    common = seen.workload.shared_prefix_tokens if samples == 1 else prompt
    shared = _block_bytes(seen, min(common, prompt))
    return seen.held_bytes(seen.typical.tokens) - shared, shared


def _block_bytes(seen: Situation, tokens: int) -> int:
    """Bytes of the full blocks of a prefix in layers that keep every token."""
    whole = tokens // seen.block_size * seen.block_size
    return min(int(whole * seen.bytes_per_token), seen.held_bytes(seen.typical.tokens))


def _fitting(seen: Situation, own: int, once: int) -> int:
    """Sequences in the pool: with samples the shared part is held once a family, else once in all."""
    samples = seen.workload.samples
    if samples == 1:
        return max(0, (seen.usable_bytes - once) // own) if own else 0
    prefix = _block_bytes(seen, min(seen.workload.shared_prefix_tokens, seen.typical.input_tokens))
    family = own * samples + once - prefix
    return max(0, (seen.usable_bytes - prefix) // family) * samples if family else 0


def contiguous(seen: Situation) -> Lever:
    """The historical baseline: every request reserves its longest length in one piece.

    Kwon et al., PagedAttention (SOSP 2023), measured 60–80 % of such reservations unused. Here: the mean of
    what a request holds over its life, against a reservation of max_model_len.
    """
    if not seen.is_one_pool:
        return Lever("contiguous allocation", SEVERAL_POOLS, applies=False)
    longest = seen.longest_len
    reserved = seen.held_bytes(longest)
    held = _mean_held(seen)
    wasted = float(1 - Fraction(held) / reserved)
    static, paged = seen.usable_bytes // reserved, int(seen.usable_bytes // held)
    effects = (
        exactly("requests with static reservation", static, "requests"),
        exactly("requests with paging, on average", paged, "requests"),
        exactly("reserved and unused", wasted, "share"),
    )
    summary = f"reserving {longest:,} tokens for every request would waste {wasted:.0%} of the pool"
    return Lever("contiguous allocation", summary, effects, ("a request grows evenly over its life",))


def _mean_held(seen: Situation) -> Fraction:
    """Bytes of one request averaged over the mix, weighted by how long each runs, half of its output done."""
    total, weight = Fraction(0), 0
    for shape in seen.workload.shapes:
        time = shape.weight * max(1, shape.output_tokens)
        total += time * seen.held_bytes(max(1, shape.input_tokens + shape.output_tokens // 2))
        weight += time
    return total / weight
