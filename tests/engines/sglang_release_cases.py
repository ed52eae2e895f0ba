"""The questions that releases of SGLang before 0.5.23 are asked: every second published config once.

Which GPU and settings a config is asked with follows from its name and the release. Settings that a release
does not know are no question to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from tests.engines.sglang_cases import SPECULATION, TURNS, _plain
from tests.recorded import record

RELEASES = (
    "0.5.14", "0.5.13.post1", "0.5.12.post1", "0.5.11", "0.5.10.post1", "0.5.9", "0.5.8.post1", "0.5.7",
    "0.5.6.post2", "0.5.5.post3", "0.5.4.post3", "0.5.3.post3", "0.5.2", "0.5.1.post3", "0.4.10.post2",
    "0.4.9.post6", "0.4.8.post1", "0.4.7.post1", "0.4.6.post5",
)  # fmt: skip
"""Releases whose planner is asked beside 0.5.23's: the last patch of each."""
NEWER = frozenset(("mamba_radix_cache_strategy", "attn_dp_size"))
"""Settings that are called otherwise, or are not there, before 0.5.19."""
OLDER_TURNS = tuple(turn for turn in TURNS if not NEWER & turn[2].keys())
EACH = 1


def release_cases(release: str) -> Iterator[dict[str, Any]]:
    """Every question of a release, as `sglang_ask` reads it; speculation with layers of the model's own."""
    for name, entry in record("configs").items():
        config, quant = _plain(entry["config"])[0], entry.get("hf_quant_config")
        first = zlib.crc32(f"{release} {name}".encode())
        if first // 97 % 2:
            continue
        drafts = any(str(config.get(key) or "") not in ("", "0") for key in ("num_nextn_predict_layers",))
        usable = (
            OLDER_TURNS
            if drafts
            else tuple(turn for turn in OLDER_TURNS if not SPECULATION.keys() & turn[2].keys())
        )
        for step in range(EACH):
            place = (first + 5 * step) % len(usable)
            gpu, memory, args = usable[place]
            asked = {"gpu": gpu, "args": args, "rest_memory": memory}
            label = f"{name}|{TURNS.index(usable[place])}"
            yield {"name": label, "model": name, "config": config, "quant": quant, **asked}
