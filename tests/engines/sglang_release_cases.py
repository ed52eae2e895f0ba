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

NEWER = frozenset(("mamba_radix_cache_strategy", "attn_dp_size"))
"""Settings that are called otherwise, or are not there, before 0.5.19."""
OLDER_TURNS = tuple(turn for turn in TURNS if not NEWER & turn[2].keys())


def release_cases(release: str) -> Iterator[dict[str, Any]]:
    """Every question of a release, as `sglang_ask` reads it; speculation with layers of the model's own."""
    for name, entry in record("configs").items():
        config, quant = _plain(entry["config"])[0], entry.get("hf_quant_config")
        first = zlib.crc32(f"{release} {name}".encode())
        if first // 97 % 2:
            continue
        own = bool(config.get("num_nextn_predict_layers"))
        usable = [turn for turn in OLDER_TURNS if own or not SPECULATION.keys() & turn[2].keys()]
        place = first % len(usable)
        gpu, memory, args = usable[place]
        asked = {"gpu": gpu, "args": args, "rest_memory": memory}
        label = f"{name}|{TURNS.index(usable[place])}"
        yield {"name": label, "model": name, "config": config, "quant": quant, **asked}
