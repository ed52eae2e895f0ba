"""What changed between SGLang's releases, as one table of rules.

sgl-project/sglang 0.5.8 to 0.5.15 model_executor/model_runner_kv_cache_mixin.py, pool_configurator.py,
server_args.py and models/*.py (EntryClass), asked of their own ModelRunner; 0.5.16 to 0.5.22 of their own
KVCacheConfigurator (scripts/sglang_releases.py), each at its last post-release; 0.5.23 as the other modules
say.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

from kvplan.engines.base import parse_version
from kvplan.record import KeptHash, record

VERSIONS = tuple(f"0.5.{patch}" for patch in range(8, 24))
_TABLE = Path(__file__).parent / "data" / "later_classes.tsv"


@record()
class Rules(KeptHash):
    """The rules of one release.

    extra_buffer: states are kept in extra buffers by default where the class can. state_pages: pages of
    models with states are one token where they are not. padding_slot: one state slot more than usable is
    paid for. drafts: the layers of the model's own draft are charged. request_cap: without a radix cache
    a window pool has what the requests need. graphs_bounded: --max-running-requests bounds the largest
    decode graph. hopper_vl: Qwen3-VL on large Hopper GPUs decodes with FlashInfer. kimi_radix: Kimi
    Linear reuses prompts. requests_capped: who may run follows from the tokens that --max-total-tokens
    leaves. split_first: a window pool is split off before that bound. compressed: DeepSeek-V4's pools
    are known. small_chunks: GPUs of 20 to 35 GiB prefill 2,048 tokens at once. exaone_backend: Exaone 4
    starts without being told its backend. index_elided: a sparse layer that borrows another's choice of
    tokens keeps no index keys. drafts_or_states: a class whose states are reused does not speculate
    beside them.
    scheme_of_builds: compressed-tensors checkpoints with static scales have an fp8 cache by default.
    """

    extra_buffer: bool = False
    state_pages: bool = False
    padding_slot: bool = False
    drafts: bool = False
    request_cap: bool = False
    graphs_bounded: bool = False
    hopper_vl: bool = False
    kimi_radix: bool = False
    requests_capped: bool = False
    split_first: bool = False
    compressed: bool = False
    small_chunks: bool = True
    exaone_backend: bool = False
    index_elided: bool = False
    drafts_or_states: bool = False
    scheme_of_builds: bool = False


_CHANGES: tuple[tuple[str, dict[str, bool]], ...] = (
    ("0.5.10", {"requests_capped": True, "split_first": True, "drafts_or_states": True}),
    ("0.5.11", {"state_pages": True}),
    (
        "0.5.14",
        {
            **dict.fromkeys("extra_buffer drafts request_cap kimi_radix".split(), True),
            "drafts_or_states": False,
        },
    ),
    ("0.5.17", {"padding_slot": True}),
    ("0.5.18", {"index_elided": True}),
    ("0.5.19", {"scheme_of_builds": True}),
    ("0.5.20", {"hopper_vl": True, "small_chunks": False}),
    ("0.5.21", {"compressed": True}),
    ("0.5.22", {"graphs_bounded": True, "exaone_backend": True}),
)


@cache
def rules_of(version: str) -> Rules:
    """The rules in force in a release."""
    rules = Rules()
    for since, changes in _CHANGES:
        if parse_version(version) >= parse_version(since):
            rules = replace(rules, **changes)
    return rules


LATER_BUFFERS = {
    "KimiLinearForCausalLM": "0.5.16",
    "Qwen3_5ForCausalLM": "0.5.19",
    "Qwen3_5MoeForCausalLM": "0.5.19",
}
"""Classes that were there before their states could be kept in extra buffers (_MAMBA_EXTRA_BUFFER_ARCHS)."""


def has_buffers(architecture: str, version: str) -> bool:
    """Whether the release keeps extra buffers for a class for which 0.5.23 does."""
    return parse_version(version) >= parse_version(LATER_BUFFERS.get(architecture, "0"))


@cache
def later_classes(version: str) -> frozenset[str]:
    """Classes of 0.5.23 that the release does not have (EntryClass in models/*.py)."""
    with _TABLE.open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if row and not row[0].startswith("#")]
    return frozenset(name for name, since in rows if parse_version(version) < parse_version(since))
