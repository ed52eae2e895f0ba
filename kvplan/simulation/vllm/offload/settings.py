"""Caches outside the GPU as a simulated engine has them: tiers, their links, the chunks that they keep."""

from __future__ import annotations

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record

LRU, ARC = "lru", "arc"
POLICIES = (LRU, ARC)
NATIVE, LMCACHE = "native", "lmcache"


@record()
class Tier:
    """chunks: how many it holds; store_ns, load_ns: time of one GPU block on its link, each direction by
    itself; latency_ns: of one transfer before its first byte. The first tier is the one that GPUs reach; the
    others are reached through it."""

    name: str
    chunks: int
    store_ns: int = 0
    load_ns: int = 0
    latency_ns: int = 0


@record()
class Offload:
    """Cache tiers outside the GPU."""

    chunk: int
    """tokens that are kept and found together, a multiple of the engine's blocks"""
    tiers: tuple[Tier, ...]
    policy: str = LRU
    """what the first tier evicts"""
    within: bool = False
    """whether a step waits for its loads (LMCache), else requests wait for them between steps (vLLM's own)"""
    answers: bool = False
    """whether answers are kept too"""
    compute_ns: int = 0
    """time to compute a token of a prompt where loads that would take longer are left out (0: every hit is
    loaded)"""
    spared: int = 0
    """tokens of a prompt that are never loaded"""
    block_bytes: int = 0
    """of one block, on all GPUs of the engine"""


def check_offload(offload: Offload, block: int) -> None:
    """Raise KvplanError for what no engine would start with."""
    if offload.chunk < 1 or offload.chunk % block:
        raise KvplanError(
            "bad-offload", f"chunks of {offload.chunk} tokens are no multiple of blocks of {block}",
            help=f"give chunks of {-(-max(1, offload.chunk) // block) * block} tokens",
        )  # fmt: skip
    if offload.policy not in POLICIES:
        near = did_you_mean(offload.policy, POLICIES)
        raise KvplanError(
            "bad-offload", f"{offload.policy!r} is no policy of the offloading connector",
            help=f"did you mean {near}?" if near else f"use one of {', '.join(POLICIES)}",
        )  # fmt: skip
    if not offload.tiers:
        raise KvplanError("bad-offload", "there is no tier to offload to", help="cpu:64GiB")
    for tier in offload.tiers:
        if tier.chunks < 1:
            raise KvplanError(
                "bad-offload", f"the tier {tier.name} holds no chunk of {offload.chunk} tokens",
                help="make it larger, or its chunks smaller",
            )  # fmt: skip
        if min(tier.store_ns, tier.load_ns, tier.latency_ns) < 0:
            raise KvplanError("bad-offload", f"a link of the tier {tier.name} takes less than no time")
