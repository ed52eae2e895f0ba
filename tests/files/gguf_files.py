"""GGUF files of headers only, for the tests of their reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.families import (
    FullAttention,
    Part,
    SlidingWindow,
)
from kvplan.files.gguf.header import read_gguf

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")


BASE = {"context_length": 8192, "embedding_length": 1024, "block_count": 6, "attention.head_count": 8}
GQA = {**BASE, "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64}
FULL = FullAttention(2, 64)
Q4_K_M = 15
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 2048, "ssm.state_size": 128, "ssm.time_step_rank": 32}
MAMBA2 = {**SSM, "ssm.group_count": 8}
WINDOW = {"attention.sliding_window": 512}
LISTED = {**WINDOW, "attention.sliding_window_pattern": [True, True, False, True, True, False]}
MLA = {
    **BASE,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 512,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
INDEXER = {
    "attention.indexer.head_count": 64,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 9,
}
HYBRID_KV = {"attention.head_count_kv": [0, 0, 2, 0, 0, 2]}


def write(
    folder: Path,
    architecture: str,
    keys: dict[str, Any],
    *,
    general: dict[str, Any] | None = None,
    tokens: int = 0,
    name: str = "model.gguf",
    big: bool = False,
) -> Path:
    """A header-only file; keys are written without the architecture, in the types a converter uses."""
    path = folder / name
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(str(path), architecture, endianess=order)
    for key, value in (general or {}).items():
        _add(writer, key, value)
    for key, value in keys.items():
        _add(writer, f"{architecture}.{key}", value)
    if tokens:
        writer.add_token_list([f"token{index}" for index in range(tokens)])
        writer.add_token_scores([0.0] * tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def parts_of(path: Path) -> list[tuple[Part, ...]]:
    return [layer.parts for layer in read_gguf(path).layers()]


def sliding(window: int, heads: int = 2, width: int = 64) -> SlidingWindow:
    return SlidingWindow(heads, width, window)
