"""Small configs, one or more for each model type that engine ``mlx`` serves, and what each is asked for.

tests/data/mlx_configs.json: their keys are those that mlx-lm's classes ask for (ml-explore/mlx-lm 0.32.2
mlx_lm/models/, ModelArgs).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "mlx_configs.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Asked:
    """One request, or a batch of such: its prompt, what is generated, and how mlx-lm is told to keep it."""

    config: str
    prompt: int
    answer: int
    step: int = 2048
    dtype: str = "bfloat16"
    bits: int | None = None
    group: int = 64
    start: int = 0
    max_size: int | None = None
    batch: int = 0
    """requests of a BatchGenerator; 0: one as mlx_lm.generate runs it"""


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, as kvplan's settings; row: as the record has it, without what is not set."""
    found = {
        "tokens": row["prompt"] + row["answer"],
        "answer_tokens": row["answer"],
        "max_num_batched_tokens": row["step"],
        "dtype": row["dtype"],
    }
    if row.get("bits"):
        quantised = {"kv_bits": str(row["bits"]), "kv_group_size": str(row["group"])}
        found |= {**quantised, "quantized_kv_start": row.get("start", 0)}
    return found | ({"max_kv_size": row["max_size"]} if row.get("max_size") else {})


_WIDE = ("qwen3-wide", "qwen2-wide")
_LONG = ("qwen3", "gemma3_text-700", "exaone4", "gpt_oss", "llama4", "deepseek_v3", "qwen3_next", "falcon_h1")
_BATCHED = (
    "qwen3",
    "llama",
    "gemma3_text-700",
    "gpt_oss",
    "deepseek_v3",
    "qwen3_next",
    "falcon_h1",
    "lfm2",
    "mamba2",
)


def asked() -> Iterator[Asked]:
    """Every setting that is measured."""
    for name in CONFIGS:
        yield Asked(name, 20, 3)
        yield Asked(name, 600, 170)
    for name in _LONG:
        for prompt, answer in ((257, 1), (258, 2), (2050, 5), (3000, 90)):
            yield Asked(name, prompt, answer)
        for step in (100, 512, 700, 1):
            yield Asked(name, 301 if step == 1 else 1500, 40, step)
        yield Asked(name, 300, 20, dtype="float16")
        yield Asked(name, 300, 20, dtype="float32")
    for name in _WIDE:
        for bits in (2, 3, 4, 5, 6, 8):
            for prompt, start in ((520, 0), (520, 400), (520, 4000)):
                yield Asked(name, prompt, 30, bits=bits, start=start)
        for group in (32, 128):
            if name == "qwen2-wide" or group == 32:
                yield Asked(name, 520, 30, bits=4, group=group)
        yield Asked(name, 1500, 30, 700, bits=8)
        yield Asked(name, 300, 260, bits=8, dtype="float32")
    yield Asked("nemotron_h-wide", 520, 30, bits=8)
    for name in ("qwen3", "gemma2", "deepseek_v3", "glm4"):
        for size in (64, 300, 3000):
            yield Asked(name, 700, 60, max_size=size)
    for name in _BATCHED:
        for batch, prompt, answer in ((1, 300, 12), (3, 300, 12), (2, 1030, 10)):
            yield Asked(name, prompt, answer, batch=batch)
