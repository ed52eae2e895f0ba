"""Folders of plans, baselines in folders and in git, and what counts as changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import kvplan
from kvplan.api.checking.load import find_plans
from kvplan.errors import KvplanError
from kvplan.plans.findings import CheckReport
from tests.plans.helpers import HEAD

PLAN = HEAD + "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\nserve: {max_model_len: 8192}\n"
GIT = shutil.which("git")
INPUTS = Path(__file__).resolve().parents[1] / "cli" / "golden" / "inputs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "plans").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "plans"


def names(report: CheckReport) -> list[str]:
    return [one.name for one in report.plans]


def test_a_folder_is_searched(folder: Path) -> None:
    (folder / "b.yaml").write_text(PLAN)
    (folder / "a").mkdir()
    (folder / "a" / "c.yml").write_text("# first a remark\n---\n" + PLAN)
    (folder / "not.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    (folder / "base.yaml").write_text("gpus: 3\n")
    (folder / "text.md").write_text(PLAN)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "d.yaml").write_text(PLAN)
    (folder / "broken.yaml").write_text("kvplan: plan/v1\n[")
    report = kvplan.check("plans")
    assert [one.path for one in report.plans] == [
        str(Path("plans", *parts)) for parts in (("a", "c.yml"), ("b.yaml",), ("broken.yaml",))
    ]
    assert [one.error is None for one in report.plans] == [True, True, False]
    assert report.exit_code == 2


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="the platform has no links")
def test_links_in_a_circle(folder: Path) -> None:
    (folder / "a.yaml").write_text(PLAN)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.yaml").symlink_to(folder / "self.yaml")
    (folder / "gone.yaml").symlink_to(folder / "none.yaml")
    assert find_plans(Path("plans")) == [Path("plans/a.yaml")]


@pytest.mark.parametrize(
    ("paths", "code"), [([], "no-plans"), (["plans"], "no-plans"), (["plans", "none.yaml"], "no-plans")]
)
def test_where_there_is_no_plan(paths: list[str], code: str, folder: Path) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.check(paths)
    assert caught.value.code == code


def test_a_file_that_is_named_must_be_a_plan(folder: Path) -> None:
    (folder / "x.yaml").write_text("kind: Pod\n")
    report = kvplan.check(["plans/x.yaml", "plans/none.yaml"])
    assert [one.error.code for one in report.plans if one.error] == ["not-a-plan", "no-such-file"]
    assert report.exit_code == 2


def test_one_bad_model_hides_no_other_plan(folder: Path) -> None:
    (folder / "a.yaml").write_text(PLAN.replace("llama-3.1-8b", "lama-3"))
    (folder / "b.yaml").write_text(PLAN)
    report = kvplan.check(folder)
    assert [one.passed for one in report.plans] == [False, True]
    assert report.counts == {"plans": 2, "passed": 1, "failed": 0, "unreadable": 1}


def test_environments(folder: Path) -> None:
    (folder / "a.yaml").write_text(PLAN + "environments: {prod: {gpus: 4}}\n")
    (folder / "b.yaml").write_text(PLAN)
    assert [one.environment for one in kvplan.check(folder, environment="all").plans] == ["prod", None]
    error = kvplan.check(folder, environment="prd").plans[0].error
    assert error is not None
    assert "did you mean prod?" in error.help
    (folder / "a.yaml").unlink()
    with pytest.raises(KvplanError) as caught:
        kvplan.check(folder, environment="prd")
    assert caught.value.code == "unknown-environment"


def test_a_folder_as_baseline(folder: Path) -> None:
    old = folder.parent / "old"
    old.mkdir()
    for name, text in (("same", PLAN), ("more", PLAN), ("gone", PLAN)):
        (old / f"{name}.yaml").write_text(text)
    (folder / "same.yaml").write_text(PLAN)
    (folder / "more.yaml").write_text(PLAN + "gpus: 2\n")
    (folder / "new.yaml").write_text(PLAN)
    report = kvplan.check("plans", baseline="old")
    found = {(after or before).name: (before, after) for before, after in report.pairs()}  # type: ignore[union-attr]
    assert found["new"][0] is None
    assert found["gone"][1] is None
    before, after = found["more"]
    assert before is not None
    assert after is not None
    assert (before.fact("gpus"), after.fact("gpus")) == (1, 2)
    assert names(kvplan.check("plans", baseline="old", changed_only=True)) == ["more", "new"]


def test_changed_needs_a_baseline(folder: Path) -> None:
    (folder / "a.yaml").write_text(PLAN)
    with pytest.raises(KvplanError, match="baseline"):
        kvplan.check(folder, changed_only=True)


@pytest.mark.skipif(GIT is None, reason="git is not installed")
class TestGit:
    def git(self, *words: str) -> str:
        config = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *config, *words], capture_output=True, text=True, check=True)
        return done.stdout

    @pytest.fixture
    def repository(self, folder: Path) -> Path:
        self.git("init", "-q", "-b", "main", ".")
        (folder / "base.yaml").write_text("gpus: 1\n")
        (folder / "trace.csv").write_text("ContextTokens,GeneratedTokens\n100,10\n")
        for name in ("own", "based", "traced", "same"):
            text = PLAN
            if name == "based":
                text += "extends: base.yaml\n"
            if name == "traced":
                text += "workload: {trace: trace.csv, requests_in_flight: 3}\n"
            (folder / f"{name}.yaml").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "plans")
        return folder

    def test_what_a_change_costs(self, repository: Path) -> None:
        (repository / "own.yaml").write_text(PLAN + "gpus: 2\n")
        status = self.git("status", "--porcelain")
        report = kvplan.check("plans", baseline="HEAD")
        [before] = [one for one in report.baseline if one.name == "own"]
        [after] = [one for one in report.plans if one.name == "own"]
        assert (before.fact("gpus"), after.fact("gpus")) == (1, 2)
        assert before.key == after.key
        assert self.git("status", "--porcelain") == status

    def test_changed_only_follows_bases_and_traces(self, repository: Path) -> None:
        def changed() -> list[str]:
            return names(kvplan.check("plans", baseline="main", changed_only=True))

        assert changed() == []
        (repository / "base.yaml").write_text("gpus: 2\n")
        assert changed() == ["based"]
        (repository / "trace.csv").write_text("ContextTokens,GeneratedTokens\n100,11\n")
        assert changed() == ["based", "traced"]
        (repository / "fresh.yaml").write_text(PLAN)
        assert changed() == ["based", "fresh", "traced"]

    def test_a_model_beside_the_plan_is_read_as_it_was(self, repository: Path) -> None:
        config = json.loads((INPUTS / "llama.json").read_text())
        (repository / "config.json").write_text(json.dumps(config))
        (repository / "local.yaml").write_text(PLAN.replace("llama-3.1-8b", "./config.json"))
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "local")
        (repository / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 16}))
        report = kvplan.check("plans", baseline="HEAD", changed_only=True)
        assert names(report) == ["local"]
        [(before, after)] = report.pairs()
        assert before is not None
        assert after is not None
        old, new = (one.fact("kv_bytes_per_request") for one in (before, after))
        assert old is not None
        assert new is not None
        assert new * config["num_hidden_layers"] == old * 16

    def test_a_plan_that_moved_keeps_its_past(self, repository: Path) -> None:
        (repository / "sub").mkdir()
        (repository / "own.yaml").rename(repository / "sub" / "own.yaml")
        pairs = kvplan.check("plans", baseline="HEAD").pairs()
        assert all(before is not None and after is not None for before, after in pairs)

    def test_from_a_folder_inside(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(repository)
        (repository / "own.yaml").write_text(PLAN + "gpus: 2\n")
        report = kvplan.check(["own.yaml", "."], baseline="HEAD", changed_only=True)
        assert [one.path for one in report.plans] == ["own.yaml"]
        assert [one.path for one in report.baseline] == ["own.yaml"]

    @pytest.mark.parametrize("name", ["no-such-branch", "--output=x", "HEAD:plans"])
    def test_an_unknown_revision(self, name: str, repository: Path) -> None:
        with pytest.raises(KvplanError) as caught:
            kvplan.check("plans", baseline=name)
        assert caught.value.code == "unknown-revision"
        assert not Path("x").exists()


def test_a_baseline_outside_of_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent.parent))
    (folder / "a.yaml").write_text(PLAN)
    with pytest.raises(KvplanError) as caught:
        kvplan.check(folder, baseline="main")
    assert caught.value.code in ("unknown-revision", "no-git")
