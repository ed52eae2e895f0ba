"""The questions that releases of SGLang before 0.5.23 are asked: every second published config once,
and what is known to change with them.

Which GPU and settings a config is asked with follows from its name and the release. Settings that a release
does not know are no question to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from kvplan.engines.base import parse_version
from tests.engines.sglang_cases import SPECULATION, TURNS, Turn, _plain
from tests.recorded import record

NEWER = frozenset(("mamba_radix_cache_strategy", "attn_dp_size"))
"""Settings that are called otherwise, or are not there, before 0.5.19."""
OLDER_TURNS = tuple(turn for turn in TURNS if not NEWER & turn[2].keys())
SINCE = {
    "swa_full_tokens_ratio": "0.4.9", "disable_hybrid_swa_memory": "0.4.9", "max_mamba_cache_size": "0.5.2",
    "mamba_ssm_dtype": "0.5.2", "mamba_full_memory_ratio": "0.5.3",
}  # fmt: skip
"""Setting → the first release that knows it."""


ALWAYS = (
    ("deepseek-ai__DeepSeek-V3", 17), ("zai-org__GLM-4.5", 17), ("zai-org__GLM-5.3", 17),
    ("google__gemma-3-27b-it", 8), ("openai__gpt-oss-20b", 8), ("XiaomiMiMo__MiMo-V2-Flash", 8),
    ("moonshotai__Kimi-Linear-48B-A3B-Instruct", 0), ("LGAI-EXAONE__EXAONE-4.0-32B", 0),
    ("Qwen__Qwen3-VL-30B-A3B-Instruct", 0), ("Qwen__Qwen3-Next-80B-A3B-Thinking", 0),
    ("Qwen__Qwen3-Next-80B-A3B-Thinking", 17), ("zai-org__GLM-5.3", 0), ("zai-org__GLM-5.3", 10),
    ("deepseek-ai__DeepSeek-V4-Flash", 0), ("deepseek-ai__DeepSeek-V4-Flash", 12),
    ("deepseek-ai__DeepSeek-V4-Pro", 10), ("meta-llama__Llama-4-Scout-17B-16E-Instruct", 12),
)  # fmt: skip
"""(config, turn) that every release is asked: what releases are known to do differently."""


def _knows(release: str, turn: Turn) -> bool:
    return all(parse_version(release) >= parse_version(SINCE.get(name, "0")) for name in turn[2])


def release_cases(release: str) -> Iterator[dict[str, Any]]:
    """Every question of a release, as `sglang_ask` reads it; speculation with layers of the model's own."""
    for name, entry in record("configs").items():
        config, quant = _plain(entry["config"])[0], entry.get("hf_quant_config")
        first = zlib.crc32(f"{release} {name}".encode())
        for place in (turn for asked, turn in ALWAYS if asked == name and _knows(release, TURNS[turn])):
            yield _case(name, config, quant, TURNS[place])
        if first // 97 % 2:
            continue
        own = bool(config.get("num_nextn_predict_layers"))
        usable = [turn for turn in OLDER_TURNS if own or not SPECULATION.keys() & turn[2].keys()]
        usable = [turn for turn in usable if _knows(release, turn)]
        turn = usable[first % len(usable)]
        if (name, TURNS.index(turn)) not in ALWAYS:
            yield _case(name, config, quant, turn)


def _case(name: str, config: dict[str, Any], quant: Any, turn: Turn) -> dict[str, Any]:
    gpu, memory, args = turn
    asked = {"gpu": gpu, "args": args, "rest_memory": memory}
    return {"name": f"{name}|{TURNS.index(turn)}", "model": name, "config": config, "quant": quant, **asked}
