"""The published rows, the page made of them, and what the page promises."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from kvplan.assumption import Assumptions
from kvplan.files.speed import FILE, speed_assumptions
from kvplan.planning.speed.estimate import spread
from kvplan.record import replace
from scripts import served_steps, speed_accuracy, speed_fit
from scripts.serving_rows import Row as ServedRow
from scripts.serving_rows import read_rows as served_rows
from scripts.serving_rows import simulated
from scripts.speed_accuracy import Judged
from scripts.speed_rows import FILE as STEPS
from scripts.speed_rows import SERVED, family_of, is_fitted, models_of, profile_of, read_rows, read_sources


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return speed_accuracy.judged()


def test_the_page_is_what_the_script_writes(judged: list[Judged]) -> None:
    assert speed_accuracy.ROWS.read_text(encoding="utf-8") == speed_accuracy.rows_document(judged)
    assert speed_accuracy.OUT.read_text(encoding="utf-8") == speed_accuracy.document(judged), (
        "docs/speed.md is stale: python -m scripts.speed_accuracy --write"
    )


def test_there_are_enough_rows_of_enough_kinds() -> None:
    rows = read_rows()
    assert len(rows) >= 200
    assert len(models_of(rows)) >= 30
    assert len({row.raw["gpu"] for row in rows}) >= 12
    assert Counter(row.raw["engine"] for row in rows).keys() >= {"vllm", "sglang", "trtllm", "llamacpp"}
    assert {row.raw["source"] for row in rows} == set(read_sources())
    assert all(row.measured > 0 for row in rows)


def test_held_out_figures_lie_in_their_intervals(judged: list[Judged]) -> None:
    """About nine in ten; the rows are few and move together, so two figures less would say nothing."""
    held = [entry for entry in judged if not entry.fitted]
    inside = sum(entry.inside for entry in held) / len(held)
    assert 0.87 <= inside <= 0.97


def test_the_median_error_is_as_promised(judged: list[Judged]) -> None:
    for fitted, most in ((True, 15), (False, 25)):
        errors = [abs(entry.error) for entry in judged if entry.fitted is fitted]
        assert speed_accuracy.percentile(errors, 0.5) <= most


def test_the_halves_share_no_family(judged: list[Judged]) -> None:
    """But for sources that are held out as a whole: of those nothing is fitted, whatever the model."""
    whole = {name for file in (STEPS, SERVED) for name, one in read_sources(file).items() if one.held_out}
    fitted = {family_of(entry.row.model) for entry in judged if entry.fitted}
    held = {
        family_of(entry.row.model)
        for entry in judged if not entry.fitted and entry.row.raw["source"] not in whole
    }  # fmt: skip
    assert fitted
    assert held
    assert not fitted & held
    assert whole >= {"trtllm-perf-1.0", "nvidia-nim"}
    raws = [*(entry.row.raw for entry in judged), *(row.raw for row in served_rows())]
    assert not any(is_fitted(raw) for raw in raws if raw["source"] in whole)
    assert sum(raw["source"] in whole for raw in raws) > 100


def test_the_fit_writes_the_file_that_it_read() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert speed_fit.written(text, speed_assumptions()) == text


def test_the_fit_goes_down_and_stays_in_its_bounds() -> None:
    rows = speed_fit.Rows([row for row in read_rows() if row.model == "llama-2-7b"], [])
    start = speed_fit.with_value(speed_assumptions(), "memory_efficiency", 0.4)
    found = speed_fit.fit(rows, start, (1.3,))
    assert speed_fit.loss(rows, found) < speed_fit.loss(rows, start)
    assert 0.4 < found["memory_efficiency"].value <= speed_fit.HIGHEST["memory_efficiency"]


def test_an_interval_holds_nine_in_ten_of_what_it_is_made_of() -> None:
    groups = [("model", str(number // 3)) for number in range(60)]
    values = [
        speed_fit.Residual(group, "decode", "model", (), 1.0, (number - 30) / 30)
        for number, group in enumerate(groups)
    ]
    low, high = (math.log(end) for end in speed_fit.interval(values))
    assert 0.9 <= sum(low <= one.value <= high for one in values) / len(values) < 1
    near = [one._replace(value=0.1) for one in values]
    assert speed_fit.interval(near) == pytest.approx((1 / speed_fit.LEAST, speed_fit.LEAST))


def test_a_class_of_its_own_has_the_narrower_interval() -> None:
    profile = profile_of(read_rows()[0])
    table = profile.table
    own = [name for name in profile.classes if f"spread.decode.{name}.low" in table]
    assert spread(profile, "decode").low == table[f"spread.decode.{own[0]}.low"].value
    bare = Assumptions({
        name: one for name, one in table.by_name.items()
        if not name.startswith("spread.decode.") or name in ("spread.decode.low", "spread.decode.high")
    })  # fmt: skip
    assert spread(replace(profile, table=bare), "decode").low == bare["spread.decode.low"].value


def test_families_are_names_without_size_and_format() -> None:
    names = ("zai-org/GLM-4.6-FP8", "zai-org/GLM-4.6", "openai/gpt-oss-120b", "qwen3-30b-a3b", "llama-2-7b")
    assert [family_of(name) for name in names] == ["glm-4.6", "glm-4.6", "gpt-oss", "qwen3-a", "llama-2"]


@pytest.mark.parametrize(
    "place", [("qwen3-14b/h100.md", 1996), ("20260217-155451-llama-2-7b-tp1-codegen stage 0", 592)]
)
def test_typical_steps_come_to_what_the_whole_run_does(place: tuple[str, int]) -> None:
    """Of requests that are always under way, and of such that come at a rate."""
    row = next(row for row in served_rows() if (row.raw["file"], row.load["input"]) == place)
    if "rate" in row.load:
        row = ServedRow({**row.raw, "load": {**row.load, "requests": 120}}, row.figures)
    run = served_steps.recorded(row)
    assert run is not None
    found, whole = served_steps.figures_of(run, speed_assumptions()), simulated(row)
    assert len(run.steps) <= served_steps.TYPICAL
    for figure in row.figures.keys() & found.keys():
        assert found[figure] == pytest.approx(whole[figure].value, rel=0.05)
