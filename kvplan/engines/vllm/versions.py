"""What changed between vLLM releases, as one table of rules.

Read in the wheels of vllm-project/vllm 0.8.5, 0.10.0, 0.10.2 to 0.29.0 (every minor release), 0.32.0 and
0.33.0; a rule is dated to the first release in which it was seen. Held to the block against 0.32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kvplan.engines.base import Version, parse_version
from kvplan.record import record

VERSIONS: tuple[str, ...] = tuple(f"0.{minor}" for minor in range(8, 34))


@record()
class Rules:
    """The rules of one release.

    tokens_from_concurrency: "KV cache size" is int(concurrency * max_model_len), else blocks // groups *
    smallest block size; tokens_times_dcp: that figure times the DCP size; null_block_checked: the start-up
    check plans without block 0; in_flight_batches: windows are charged for every batch in flight, not one;
    hybrid_groups: windows and full attention have tables of their own; gdn_checkpoint: a gated delta net
    reserves a state for its prefill checkpoint; large_gpu_row: the batch defaults of GPUs of 160 GiB;
    mamba_blocks: state-space layers live in the paged pool; default_utilization_percent: of GPU memory.
    """

    tokens_from_concurrency: bool = False
    tokens_times_dcp: bool = False
    null_block_checked: bool = False
    in_flight_batches: bool = False
    hybrid_groups: bool = False
    gdn_checkpoint: bool = False
    large_gpu_row: bool = False
    mamba_blocks: bool = False
    default_utilization_percent: int = 90


_CHANGES: tuple[tuple[str, dict[str, bool | int]], ...] = (
    ("0.10", {"hybrid_groups": True, "mamba_blocks": True, "tokens_times_dcp": True}),
    ("0.20", {"default_utilization_percent": 92}),
    ("0.21", {"tokens_from_concurrency": True, "tokens_times_dcp": False}),
    ("0.26", {"in_flight_batches": True}),
    ("0.28", {"large_gpu_row": True}),
    ("0.29", {"null_block_checked": True}),
    ("0.33", {"gdn_checkpoint": True}),
)


@lru_cache(maxsize=64)
def rules_of(version: str) -> Rules:
    """The rules in force in a release."""
    rules, asked = Rules(), _minor(version)
    for since, changes in _CHANGES:
        if asked >= _minor(since):
            rules = replace(rules, **changes)  # type: ignore[arg-type]
    return rules


def _minor(version: str) -> Version:
    return parse_version(version)[:2]
