"""The questions recorded from llama.cpp: every published config, and a small model of every architecture.

A config's keys are what llama.cpp's own converter makes of it (`llamacpp_keys`); which contexts a model is
asked with follows from its name. Names of a context are fields of llama_context_params.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.engines.llamacpp_small import every
from tests.recorded import BESIDE, config_of, record

F16, Q4_0, Q8_0, BF16 = 1, 2, 8, 30
"""ggml_type."""
BASE: dict[str, Any] = {
    "n_ctx": 8192, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "kv_unified": False, "swa_full": False,
    "flash_attn_type": 1,
}  # fmt: skip
TURNS: tuple[dict[str, Any], ...] = (
    {},
    {"n_ctx": 32768, "n_seq_max": 4, "kv_unified": True},
    {"n_ctx": 16384, "n_seq_max": 4},
    {"n_ctx": 4096, "flash_attn_type": 0},
    {"type_k": Q8_0, "type_v": Q8_0},
    {"n_ctx": 10_000, "n_ubatch": 256, "swa_full": True},
    {"n_ctx": 65_536, "n_ubatch": 2048},
    {"n_ctx": 3000, "n_seq_max": 3, "n_ubatch": 128},
    {"n_ctx": 131_072, "type_k": BF16, "type_v": BF16},
    {"n_ctx": 6000, "n_seq_max": 2, "kv_unified": True, "flash_attn_type": 0},
    {"n_ctx": 600},
    {"n_ctx": 20_480, "n_seq_max": 2, "type_k": Q4_0, "type_v": Q4_0, "n_ubatch": 1024},
)
EACH = 3
"""Contexts that a model is asked with."""


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every config with its name, whole where the published file stands beside the checkout."""
    for name in record("configs"):
        path = BESIDE / "configs" / name / "config.json"
        whole = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        yield name, whole or config_of(name)[0]


def cases(keys: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every question, as `llamacpp_ask` reads it. keys: of each published model by its name."""
    for name, own in {**keys, **every()}.items():
        first = zlib.crc32(name.encode())
        for step in range(EACH):
            place = (first + 5 * step) % len(TURNS)
            yield {"name": f"{name}|{place}", "model": name, "keys": own, "context": BASE | TURNS[place]}
