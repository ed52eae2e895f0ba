"""Tiers as a user says them, and what they are to the simulated engine: chunks, and times of a block.

    cpu:64GiB                        host memory, all GPUs of an engine (vLLM's --kv-offloading-size)
    cpu:64GiB,nvme:2TiB@6GB/s        tiers behind it; a rate after @ is one direction, of all GPUs together
    policy=arc  chunk=64  backend=lmcache  load=cheaper

Every GPU reaches the host over its own link, in both directions at once; tiers behind are reached through it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.speed import speed_assumptions
from kvplan.later import regex
from kvplan.planning.speed import link_bandwidth, prefill_seconds
from kvplan.planning.speed.links import PCIE
from kvplan.record import record
from kvplan.results import SizeResult
from kvplan.settings import Settings
from kvplan.simulation.time.clock import Clock, StepTime
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.vllm.offload.settings import LMCACHE, LRU, NATIVE, POLICIES, Offload, Tier
from kvplan.units import GB, MIB, SECOND, parse_bytes

CPU = "cpu"
BEHIND = {"nvme": 6 * 10**9, "remote": 12 * 10**9}
"""Tiers behind the host and the bytes a second that are assumed of them: one PCIe 4 drive, 100 Gb/s."""
LMCACHE_CHUNK = 256
"""Tokens; all but a prompt's last token are kept, and a step waits for its loads (LMCache/LMCache,
lmcache/integration/vllm/vllm_v1_adapter.py; vllm-project/vllm 0.33
distributed/kv_transfer/kv_connector/v1/lmcache_connector.py)."""
GRACE = ("gh200", "gb200", "gb300")
_C2C = "nvlink-c2c"
_PART = regex(r"([a-z]+):([^@]+)(?:@(.+))?", re.ASCII)
_CHOICES = {"policy": POLICIES, "backend": (NATIVE, LMCACHE), "load": ("always", "cheaper")}
_HELP = "--offload cpu:64GiB,nvme:2TiB"
_PROMPT = 2048
"""Tokens of the prompt by which the time to compute one is taken."""


@record()
class AskedTier:
    """size: bytes; rate: bytes a second in one direction, None: not said."""

    name: str
    size: int
    rate: int | None = None


@record()
class AskedOffload:
    """chunk: tokens, 0: the engine's own. text: as it was asked for."""

    tiers: tuple[AskedTier, ...]
    policy: str = LRU
    chunk: int = 0
    backend: str = NATIVE
    cheaper: bool = False
    text: str = ""


def asked_offload(text: str) -> AskedOffload:
    """``cpu:64GiB,nvme:2TiB,policy=arc``. Raises KvplanError(bad-offload)."""
    tiers: list[AskedTier] = []
    said: dict[str, str] = {}
    for part in (word.strip().lower() for word in str(text).split(",")):
        key, equals, value = part.partition("=")
        if equals:
            _check_word(key, value, said)
            said[key] = value
            continue
        match = _PART.fullmatch(part)
        if match is None or match[1] not in (CPU, *BEHIND) or match[1] in {tier.name for tier in tiers}:
            raise KvplanError("bad-offload", f"{part!r} is no tier, or one that is given twice", help=_HELP)
        size, rate = _bytes(match[2]), None if match[3] is None else _bytes(match[3].removesuffix("/s"))
        if not size or rate == 0:
            raise KvplanError("bad-offload", f"{part!r} holds or moves nothing", help=_HELP)
        tiers.append(AskedTier(match[1], size, rate))
    if not tiers or tiers[0].name != CPU:
        raise KvplanError(
            "bad-offload", "the first tier is host memory: GPUs reach the others through it", help=_HELP
        )
    return AskedOffload(
        tuple(tiers), said.get("policy", LRU), int(said.get("chunk", 0)), said.get("backend", NATIVE),
        said.get("load") == "cheaper", text,
    )  # fmt: skip


def _bytes(text: str) -> int:
    """``64gib`` as typed in small letters."""
    unit = {"kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB", "kb": "KB", "mb": "MB", "gb": "GB"}
    unit["tb"] = "TB"
    text = text.strip()
    for small, right in unit.items():
        if text.endswith(small):
            return parse_bytes(text.removesuffix(small) + right)
    return parse_bytes(text)


def _check_word(key: str, value: str, said: dict[str, str]) -> None:
    if key in said:
        raise KvplanError("bad-offload", f"{key} is given twice", help=_HELP)
    if key == "chunk":
        if value.isascii() and value.isdigit() and 1 <= int(value) <= MIB:
            return
        raise KvplanError("bad-offload", f"chunk={value}: tokens", help="chunk=256")
    if key not in _CHOICES:
        near = did_you_mean(key, (*_CHOICES, "chunk"))
        raise KvplanError(
            "bad-offload", f"{key} is no setting of tiers",
            help=f"did you mean {near}=?" if near else "policy=, chunk=, backend=, load=",
        )  # fmt: skip
    if value not in _CHOICES[key]:
        raise KvplanError(
            "bad-offload", f"{key}={value} is unknown", help=f"{key}=" + "|".join(_CHOICES[key])
        )


def offload_of(
    asked: AskedOffload, result: SizeResult, settings: Settings, clock: Clock, block: int, notes: list[str]
) -> Offload:
    """The tiers of the engine whose pool ``result`` is. block: its blocks' tokens. notes: takes what was
    assumed. Raises KvplanError(bad-offload, no-link)."""
    pool = result.pool
    assert pool is not None
    copies = Fraction(result.total.kv_bytes_per_request, result.per_gpu.kv_bytes_per_request or 1)
    whole = ceil(pool.bytes_per_block * copies)
    lmcache = asked.backend == LMCACHE
    chunk = asked.chunk or (LMCACHE_CHUNK if lmcache else block)
    if chunk % block:
        raise KvplanError(
            "bad-offload", f"chunks of {chunk} tokens are no multiple of blocks of {block}",
            help=f"chunk={-(-chunk // block) * block}",
        )  # fmt: skip
    tiers = []
    for tier in asked.tiers:
        if tier.rate is not None:
            block_ns = ceil(Fraction(whole * SECOND, tier.rate))
        elif tier.name == CPU:
            block_ns = ceil(Fraction(pool.bytes_per_block * SECOND, _host_rate(settings)))
        else:
            rate = BEHIND[tier.name]
            notes.append(f"{tier.name} is taken to move {rate / GB:g} GB/s: {tier.name}:…@6GB/s says yours")
            block_ns = ceil(Fraction(whole * SECOND, rate))
        tiers.append(Tier(tier.name, tier.size // (whole * (chunk // block)), block_ns, block_ns))
    return Offload(
        chunk, tuple(tiers), asked.policy, within=lmcache, spared=int(lmcache),
        compute_ns=_compute_ns(clock) if asked.cheaper else 0, block_bytes=whole,
    )  # fmt: skip


def _host_rate(settings: Settings) -> int:
    """Bytes a second between one GPU and its host."""
    gpu = settings.gpu
    if gpu is None or gpu.is_unified_memory:
        raise KvplanError(
            "no-link", "how fast host memory is reached is not known without a GPU of its own memory",
            help=("--gpu h100", "--offload cpu:64GiB@50GB/s"),
        )  # fmt: skip
    kind = _C2C if gpu.slug.startswith(GRACE) else PCIE
    return int(link_bandwidth(gpu, kind, speed_assumptions()).value)


def _compute_ns(clock: Clock) -> int:
    """Time to compute a token of a prompt."""
    if isinstance(clock, SpeedClock):
        return max(1, round(prefill_seconds(clock.profile, _PROMPT) * clock.prompt / _PROMPT))
    return max(1, clock.token_ns if isinstance(clock, StepTime) else 1)
