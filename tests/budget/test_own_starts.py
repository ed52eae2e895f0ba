"""Starts of vLLM 0.30 on an H100 with their allocator's records (tests/data/h100_starts.json.gz, as
`python -m tests.gpu.allocations` wrote them on 2026-11-27), which no constant has seen.

0.30.0 with torch 2.13.0, random weights, every default that is not named; FlashInfer was not installed
and its sampler off. Rows of tests/data/held_out.yaml have the same figures.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.units import GIB, MIB
from scripts.field_rows import read_rows
from scripts.judged import Judged, judged

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDS: dict[str, dict[str, Any]] = json.loads(gzip.decompress((DATA / "h100_starts.json.gz").read_bytes()))
RAW: dict[str, dict[str, Any]] = {
    row["id"]: row
    for row in yaml.safe_load((DATA / "held_out.yaml").read_text(encoding="utf-8"))
    if row["source"].startswith("kvplan's own start")
}
FIGURES = {
    "available_kv_gib": "available_kv_cache_memory_bytes",
    "cudagraph_estimated_gib": "cudagraph_memory_estimate",
    "activation_peak_gib": "peak_activation_memory",
    "consumed_gib": "total_consumed",
}
BY_LOG = {"h100-030-q3-4b-lora1-cold", "h100-027-q3-8b-cold", "h100-027-q3-8b-warm"}
"""Starts whose log alone has their pool."""


@pytest.fixture(scope="module")
def told() -> dict[str, Judged]:
    rows = [row for row in read_rows(DATA / "held_out.yaml")[0] if row.id in RAW]
    return {one.row.id: one for one in judged(rows, {}, told=True)}


def test_every_record_is_a_row() -> None:
    assert set(RAW) == set(RECORDS) | BY_LOG
    for name, record in RECORDS.items():
        for key, figure in FIGURES.items():
            assert RAW[name][key] == round(record["worker"][figure] / GIB, 5)


def test_they_are_within_a_hundredth(told: dict[str, Judged]) -> None:
    """Of 12, predicted blind, 11 were within 0.7 %; AWQ with expandable segments taught a line."""
    assert set(told) == set(RAW)
    assert max(abs(one.error) for one in told.values()) < 1
    assert all(one.inside for one in told.values())


def test_what_a_cold_compile_keeps_is_the_embedding_table() -> None:
    """The copy stays in a block of its own: reserved and not allocated, 151,936 · 4,096 in two bytes; with
    expandable segments, and where a multimodal model serves text alone, it does not."""

    def left(name: str) -> int:
        after = RECORDS[name]["points"]["after determine_available_memory"]
        return int(after["reserved_bytes.all.current"] - after["allocated_bytes.all.current"])

    table = 151_936 * 4096 * 2
    assert abs(left("h100-030-q3-8b-cold") - left("h100-030-q3-8b-warm") - table) < 64 * MIB
    for name in ("h100-030-q3-8b-pages-cold", "h100-030-q35-9b-lm-cold", "h100-030-q35-9b-lm-mtp2-cold"):
        assert left(name) < 64 * MIB


def test_expandable_segments_round_nothing_up() -> None:
    """What loading is printed to take is the parameters and the tables; of AWQ torch has pages beside it."""
    for name in ("h100-030-q3-8b-pages-cold", "h100-030-q3-32b-awq-pages-warm"):
        worker = RECORDS[name]["worker"]
        beyond = worker["model_memory_bytes"] - worker["parameter_bytes"] - worker["buffer_bytes"]
        assert 0 <= beyond < MIB
    loaded = RECORDS["h100-030-q3-32b-awq-pages-warm"]["points"]["after load_model"]
    torn = loaded["reserved_bytes.all.current"] - loaded["allocated_bytes.all.current"]
    assert 2.5 * GIB < torn < 2.8 * GIB


def test_graphs_are_captured_again_with_adapters(told: dict[str, Judged]) -> None:
    """102 piecewise and 70 full graphs: 1.27 GiB, where one set of Qwen3-8B, of as many layers, has 0.93."""
    twice, once = (
        RAW[f"h100-030-{name}"]["cudagraph_estimated_gib"] for name in ("q3-4b-lora1-warm", "q3-8b-warm")
    )
    assert 1.3 < twice / once < 1.5
    lines = {line.name: line for line in told["h100-030-q3-4b-lora1-warm"].budget.lines}
    assert abs(lines["CUDA graphs"].bytes / GIB - twice) < 0.1
