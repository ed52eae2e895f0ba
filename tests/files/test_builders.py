"""What is said of builders holds for the starts that were published: weights, and the format of the cache."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.builders import BUILDER, HABITS, SPREADS, STRANGER_4, WRITTEN, habit_of
from kvplan.architectures.builds import FORMS
from scripts.build_spreads import COVERED, STEP, Unit, spreads, units
from scripts.field_rows import read_rows

DATA = Path(__file__).resolve().parents[1] / "data"
REPORTS = (
    "field_reports.json.gz", "start_ups.json.gz", "more_start_ups.yaml", "measured.yaml", "held_out.yaml",
)  # fmt: skip


@cache
def found() -> list[Unit]:
    return units(read_rows(*(DATA / name for name in REPORTS), asked=True)[0])


def test_a_spread_holds_the_builds_that_were_loaded() -> None:
    assert len(found()) > 80
    for group, least in spreads(found()).items():
        assert SPREADS[group].below >= least.below, group
        assert SPREADS[group].above >= least.above, group
        most = max(least.below, least.above, 100)
        assert max(SPREADS[group].below, SPREADS[group].above) <= 2 * most, f"{group}: wider than any start"


def test_a_build_lies_inside_the_spread_of_the_others() -> None:
    """Each build with the spread that all other builds of its group have, one step wider."""
    groups: dict[str, list[Unit]] = defaultdict(list)
    for unit in found():
        groups[unit.group].append(unit)
    held = asked = 0
    for members in groups.values():
        if len({unit.build for unit in members}) < 5:
            continue
        for unit in members:
            (spread,) = spreads([one for one in members if one.build != unit.build]).values()
            asked += 1
            held += -spread.below - STEP <= unit.off <= spread.above + STEP
    assert asked > 70
    assert 100 * held >= 90 * asked, f"{held} of {asked}"
    assert COVERED == 95


def test_habits_name_forms_and_their_source() -> None:
    for row in HABITS:
        assert row.means in FORMS
        assert row.source


AUTO = {
    "unsloth/gemma-4-12b-it-NVFP4": ("rtx-5090", 18.37, 153_124),
    "unsloth/gemma-4-26B-A4B-it-NVFP4": ("rtx-5090", 10.06, 126_159),
    "unsloth/gemma-4-E4B-it-NVFP4": ("rtx-5090", 19.78, 1_073_231),
    "enfuse/Mixtral-8x22B-Instruct-v0.1-NVFP4": ("gb10", 30.8, 144_176),
    "RedHatAI/Qwen3-8B-NVFP4": ("rtx-5090", 6.63, 48_272),
}
"""GPU, pool in GiB and tokens that vLLM printed where no format of the cache was asked for."""


@pytest.mark.parametrize(("name", "printed"), AUTO.items())
def test_the_cache_has_the_format_that_such_builds_declare(
    name: str, printed: tuple[str, float, int]
) -> None:
    gpu, pool, tokens = printed
    result = kvplan.size(
        name, engine="vllm@0.26", gpu=gpu, max_model_len=8192, gpu_memory_utilization="0.9", tokens=1024
    )
    assert result.budget is not None
    assert result.pool is not None
    assert result.pool.kv_tokens is not None
    per_gib = result.pool.kv_tokens / (result.budget.kv_pool_bytes / 2**30)
    assert per_gib == pytest.approx(tokens / pool, rel=0.01)


@pytest.mark.parametrize(
    ("name", "form", "of", "means"),
    [
        ("groxaxo/Qwen3.8-27B-GPTQ-Pro-4bit-g64-calib128", "gptq", "Qwen/Qwen3.8-27B", "gptq-g64"),
        ("anybody/Qwen3-32B-AWQ-gs32", "awq", "Qwen/Qwen3-32B", "awq-g32"),
        ("anybody/Qwen3-32B-AWQ-g128", "awq", "Qwen/Qwen3-32B", "awq"),
        ("btbtyler09/Qwen3.6-27B-GPTQ-4bit", "gptq", "Qwen/Qwen3.6-27B", "gptq-g32"),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "modelopt-nvfp4", "Qwen/Qwen3.6-35B-A3B", "modelopt-nvfp4"),
        (
            "enfuse/Mixtral-8x22B-Instruct-v0.1-NVFP4",
            "modelopt-nvfp4",
            "Qwen/Qwen3-32B",
            "modelopt-nvfp4-all",
        ),
    ],
)
def test_the_first_row_that_fits_decides(name: str, form: str, of: str, means: str) -> None:
    assert habit_of(name, form, kvplan.load_model(of)).means == means


def test_a_text_build_has_no_encoder() -> None:
    text = kvplan.load_model("sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP")
    assert "without the encoder" in text.warnings[0]
    asked: dict[str, Any] = {
        "engine": "vllm@0.28",
        "gpu": "rtx-pro-6000",
        "max_model_len": 8192,
        "tokens": 1024,
    }
    alone, with_it, left = (
        kvplan.size(model, **{**asked, "language_model_only": only}).budget
        for model, only in (
            (text, False),
            (kvplan.load_model("anybody/Qwen3.6-27B-NVFP4"), False),
            (kvplan.load_model("anybody/Qwen3.6-27B-NVFP4"), True),
        )
    )
    assert alone is not None
    assert with_it is not None
    assert left is not None
    assert alone.lines[0].bytes == left.lines[0].bytes < with_it.lines[0].bytes


def test_the_pool_has_the_spread_of_the_weights() -> None:
    """Whoever made it: the same format by a builder with a model card and by anybody."""
    asked: dict[str, Any] = {
        "engine": "vllm@0.28",
        "gpu": "rtx-pro-6000",
        "max_model_len": 8192,
        "tokens": 1024,
    }
    widths = {}
    for maker, group in (("anybody", STRANGER_4), ("btbtyler09", WRITTEN)):
        model = kvplan.load_model(f"{maker}/Qwen3.6-27B-GPTQ-4bit")
        assert model.facts[BUILDER] == group
        budget = kvplan.size(model, **asked).budget
        assert budget is not None
        (line,) = (one for one in budget.lines if one.name == "weights")
        spread = SPREADS[group]
        assert line.low_bytes == line.bytes - line.bytes * spread.below // 1000
        assert line.high_bytes == line.bytes - (-line.bytes * spread.above // 1000)
        widths[group] = budget.kv_pool_high_bytes - budget.kv_pool_low_bytes
    assert widths[STRANGER_4] > widths[WRITTEN]
