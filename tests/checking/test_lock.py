"""A lock says what moved a figure: the plan, the card, the GPU's data, the engine, or kvplan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.api.checking import locking
from kvplan.api.checking.paths import check_paths
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.plans.lock import read_lock
from kvplan.plans.findings import CheckReport, Fact
from kvplan.plans.lock import ENGINE, GPU, KVPLAN, PLAN, Locked, moved_by
from kvplan.report.check.shown import difference_words

PLAN_TEXT = """kvplan: plan/v1
model: llama-3.3-70b
engine: vllm@{engine}
gpu: h100
gpus: 4
price_per_gpu_hour: 2.5
serve: {{tensor_parallel_size: 4, max_model_len: 16384, max_num_seqs: {seqs}}}
require: {{requests: 20, tokens: 8192}}
"""


def written(tmp_path: Path, *, engine: str = "0.33", seqs: int = 64) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN_TEXT.format(engine=engine, seqs=seqs), encoding="utf-8")
    return path


def locked(tmp_path: Path, **then: Any) -> Path:
    lock = tmp_path / "plans.lock"
    check_paths([written(tmp_path, **then)], write_lock=lock)
    return lock


def causes(report: CheckReport) -> dict[str, tuple[str, ...]]:
    (change,) = report.changes
    return {fact.name: fact.moved_by for fact in change.facts if fact.difference}


def test_nothing_moves_where_nothing_changed(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    first = lock.read_bytes()
    report = check_paths([written(tmp_path)], baseline=lock)
    assert causes(report) == {}
    assert report.changes[0].state == "kept"
    assert locked(tmp_path).read_bytes() == first


def test_a_changed_plan_moved_it(tmp_path: Path) -> None:
    lock = locked(tmp_path, seqs=64)
    found = causes(check_paths([written(tmp_path, seqs=512)], baseline=lock))
    assert found
    assert set(found.values()) == {(PLAN,)}


def test_an_engine_moved_it_and_why(tmp_path: Path) -> None:
    """By the lines of the budget that the two releases have differently."""
    lock = locked(tmp_path, engine="0.28")
    report = check_paths([written(tmp_path, engine="0.33")], baseline=lock)
    found = causes(report)
    assert found["kv_pool_bytes"] == (ENGINE,)
    assert set(found.values()) == {(ENGINE,)}
    (change,) = report.changes
    lines = [one for one in change.why if one.unit == "bytes"]
    taken = sum(int(one.after or 0) - int(one.before or 0) for one in lines)
    assert taken
    assert any(" GiB → " in difference_words(one) for one in lines)
    moved = next(fact.difference for fact in change.facts if fact.name == "kv_pool_bytes")
    assert moved == -taken  # of one GPU: the pool has less by what its other lines take


def test_plan_and_engine_are_told_apart(tmp_path: Path) -> None:
    """Costs are the plan's alone; a figure that the new release does not move is the plan's too."""
    lock = locked(tmp_path, engine="0.28", seqs=64)
    text = PLAN_TEXT.format(engine="0.33", seqs=512).replace("2.5", "3.5")
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    found = causes(check_paths([path], baseline=lock))
    assert found["cost_per_hour"] == (PLAN,)
    assert set(found["kv_pool_bytes"]) == {ENGINE, PLAN}


def test_card_and_gpu_data_are_told_by_their_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = locked(tmp_path)
    edited = json.loads(lock.read_text(encoding="utf-8"))
    (one,) = edited["plans"]
    for fact in one["facts"]:
        fact["value"] -= fact["name"] == "num_blocks"
    for key, name in (("card", "card"), ("gpu", "GPU data")):
        lock.write_text(
            json.dumps({**edited, "plans": [{**one, key: "sha256:0"}]}, indent=2), encoding="utf-8"
        )
        assert causes(check_paths([written(tmp_path)], baseline=lock)) == {"num_blocks": (name,)}
    lock.write_text(json.dumps(edited, indent=2), encoding="utf-8")
    assert causes(check_paths([written(tmp_path)], baseline=lock)) == {"num_blocks": (KVPLAN,)}
    lock.write_text(json.dumps({**edited, "version": "0.0.9"}, indent=2), encoding="utf-8")
    assert causes(check_paths([written(tmp_path)], baseline=lock)) == {"num_blocks": (KVPLAN,)}
    monkeypatch.setattr(locking, "card_digest", lambda model: "sha256:other")
    assert causes(check_paths([written(tmp_path)], baseline=lock)) == {"num_blocks": ("card", KVPLAN)}


def a_lock(*, engine: str = "vllm@0.33", gpu: str = "g", **facts: int) -> Locked:
    said = tuple(Fact(name, value, "bytes") for name, value in facts.items())
    return Locked("p", "n", None, passed=True, engine=engine, plan="p", card="c", gpu=gpu, facts=said)


def test_the_old_release_of_today_tells_the_engine_from_data() -> None:
    before, after = a_lock(engine="vllm@0.28", gpu="old", a=1, b=1, c=1), a_lock(a=2, b=2, c=3)
    older = tuple(Fact(name, value, "bytes") for name, value in (("a", 1), ("b", 2), ("c", 2)))
    found = dict(moved_by(before, after, older, versions=("1", "1")))
    assert found == {"a": (ENGINE,), "b": (GPU,), "c": (ENGINE, GPU)}


def test_screens_name_what_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, path = locked(tmp_path, engine="0.28"), written(tmp_path)
    assert main(["check", str(path), "--baseline", str(lock)]) == 0
    shown = capsys.readouterr().out
    assert "moved by" in shown
    assert "CUDA graphs" in shown
    assert main(["check", str(path), "--baseline", str(lock), "--format", "markdown"]) == 0
    assert "| Moved by |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ['{\n  "kvplan": "lock/v9",\n  "plans": []\n}', '{\n  "kvplan": "lock/v1"\n}']
)
def test_a_lock_that_is_none_says_so(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "plans.lock"
    lock.write_text(text, encoding="utf-8")
    with pytest.raises(KvplanError, match="lock/v1") as caught:
        read_lock(lock)
    assert caught.value.exit_code == 2
    with pytest.raises(KvplanError):
        check_paths([written(tmp_path)], baseline=lock)


def test_a_lock_has_no_files_to_compare(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="no files"):
        check_paths([written(tmp_path)], baseline=locked(tmp_path), changed_only=True)


def test_a_plan_that_is_new_or_gone(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    other = tmp_path / "other.yaml"
    other.write_text(PLAN_TEXT.format(engine="0.33", seqs=8), encoding="utf-8")
    states = {one.name: one.state for one in check_paths([other], baseline=lock).changes}
    assert states == {"other": "new", "plan": "gone"}


def test_a_plan_in_another_folder_is_paired_by_its_name(tmp_path: Path) -> None:
    lock = locked(tmp_path, seqs=64)
    (tmp_path / "moved").mkdir()
    other = tmp_path / "moved" / "plan.yaml"
    other.write_text(PLAN_TEXT.format(engine="0.33", seqs=512), encoding="utf-8")
    report = check_paths([other], baseline=lock)
    assert [one.state for one in report.changes] == ["kept"]
    assert set(causes(report).values()) == {(PLAN,)}
