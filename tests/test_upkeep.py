"""Workflows, hooks, issue forms, decisions, changelog fragments: valid, pinned and true."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import changelog, coverage_ratchet, mutants, new_releases, sglang_releases, vllm_releases
from tests.report.schemas import builtin_errors

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
DECISIONS = sorted((ROOT / "docs" / "adr").glob("0*.md"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
TARGETS = set(re.findall(r"^([\w./-]+):", MAKEFILE, re.MULTILINE))


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(path: Path) -> list[str]:
    """Every script line of a workflow's steps."""
    jobs = loaded(path)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_by_their_schema(path: Path) -> None:
    assert builtin_errors("vendor.github-workflows", path) == ""
    assert builtin_errors("custom.github-workflows-require-timeout", path) == ""


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_by_their_schema(path: Path) -> None:
    kind = "config" if path.stem == "config" else "forms"
    assert builtin_errors(f"vendor.github-issue-{kind}", path) == ""


def test_dependabot_by_its_schema() -> None:
    assert builtin_errors("vendor.dependabot", ROOT / ".github" / "dependabot.yml") == ""


def test_a_wrong_number_comes_with_command_and_log() -> None:
    form = loaded(ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong_number.yml")
    needed = {field["id"] for field in form["body"] if field.get("validations", {}).get("required")}
    assert {"command", "answer", "truth", "version"} <= needed


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    """A tag can be moved to other code; the version stands beside the commit."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_one_action_has_one_commit() -> None:
    """action.yml, the examples and the workflows speak of the same code."""
    files = [*WORKFLOWS, ROOT / "action.yml", *(ROOT / "examples" / "ci").glob("*.yml")]
    pins: dict[str, set[str]] = {}
    for path in files:
        for name, pin in re.findall(
            r"uses: ([\w/-]+)@([0-9a-f]{40} # \S+)", path.read_text(encoding="utf-8")
        ):
            pins.setdefault(name, set()).add(pin)
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_asked_for_where_they_are_used(path: Path) -> None:
    """Read only by default; a token to publish with in the one job that builds nothing, one to open issues
    with where releases are looked for, one to add the signed cards to a release. The cards' key is the one
    secret, in one job."""
    written = {
        ("release", "publish"): {"id-token", "attestations"}, ("release", "cards"): {"contents"},
        ("releases", "releases"): {"issues"},
    }  # fmt: skip
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        more = {right for right, level in job.get("permissions", {}).items() if level == "write"}
        assert more == written.get((path.stem, name), set())
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
            assert "${{ github." not in step.get("run", ""), "text of a pull request is no command"
        secrets = re.findall(r"secrets\.(\w+)", str(job))
        assert secrets == (["CARD_SET_KEY"] if (path.stem, name) == ("release", "cards") else [])


def test_every_supported_system_and_python() -> None:
    matrix = loaded(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["suite"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    oldest = int(re.findall(r'^requires-python = ">=3.(\d+)"', PROJECT, re.MULTILINE)[0])
    assert matrix["python"] == [f"3.{minor}" for minor in range(oldest, oldest + 5)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_here(path: Path) -> None:
    """Targets of make, scripts and extras that a step names."""
    workflow = path.read_text(encoding="utf-8")
    matrix = re.findall(r"target: \[(.*)\]", workflow)
    for line in commands(path):
        for target in re.findall(r"\bmake ([\w./-]+)", line):
            assert target in TARGETS
        for script in re.findall(r"\bscripts[./]([\w/]+)", line):
            assert list((ROOT / "scripts").glob(f"{script}.*")), script
        for extra in re.findall(r"\.\[([\w-]+)\]", line):
            assert f"\n{extra} = [" in PROJECT
    assert {word.strip() for words in matrix for word in words.split(",")} <= TARGETS


def test_the_tool_that_publishes_is_pinned_by_its_content() -> None:
    lines = (ROOT / ".github" / "uv.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"uv==[\d.]+ --hash=sha256:[0-9a-f]{64}", line) for line in pins)
    for name in ("tests", "release"):
        installs = [
            line for line in commands(ROOT / ".github" / "workflows" / f"{name}.yml") if "uv.txt" in line
        ]
        assert installs
        assert all("--require-hashes" in line for line in installs)


def test_own_hooks_are_those_of_make_lint() -> None:
    """ruff of the same release, mypy and the contracts; foreign hooks by their commit."""
    hooks = {}
    for repository in loaded(ROOT / ".pre-commit-config.yaml")["repos"]:
        if repository["repo"] != "local":
            assert re.fullmatch(r"[0-9a-f]{40}", repository["rev"]), repository
        hooks.update({hook["id"]: hook for hook in repository["hooks"]})
    ruff = re.findall(r'"(ruff==[\d.]+)"', PROJECT)
    assert hooks["ruff"]["additional_dependencies"] == hooks["ruff-format"]["additional_dependencies"] == ruff
    assert {"mypy", "import-contracts", "card-index", "gpu-index", "changelog"} <= set(hooks)
    for hook in hooks.values():
        for module in re.findall(r"-m (scripts\.\w+)", hook.get("entry", "")):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_dated_listed_and_about_files_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {int(path.name[:4])}\. .+\n\n\d{{4}}-\d\d-\d\d · (in force|replaced by \d+)\n", text)
    assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequences"))
    assert f"({path.name})" in (path.parent / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:kvplan|tests|scripts)/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name


def _report(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return {
        "files": {
            f"kvplan/{path.replace('__', '/')}.py": {"summary": dict(zip(names, counts))}
            for path, counts in files.items()
        }
    }


def test_coverage_is_by_room_and_never_falls() -> None:
    found = coverage_ratchet.reached(
        _report(
            terms=(9, 10, 1, 2),
            engines__vllm__plan=(30, 30, 9, 10),
            engines__base=(1, 2, 0, 0),
            api=(0, 9, 0, 9),
        )
    )
    assert found == {"terms": 8333, "engines": 9523}
    assert coverage_ratchet.fallen(found, {"terms": 8333, "engines": 9000}) == []
    assert coverage_ratchet.fallen(found, {"terms": 8334, "units": 5000}) == [
        "terms: 83.33 %, was 83.34 %",
        "units: 0.00 %, was 50.00 %",
    ]


def test_the_least_coverage_is_written_for_every_room() -> None:
    least = json.loads(coverage_ratchet.LEAST.read_text(encoding="utf-8"))
    assert set(least) == set(coverage_ratchet.ROOMS)
    assert all(0 < share <= 10_000 for share in least.values())


@pytest.mark.parametrize("module", mutants.TESTS)
def test_every_mutant_is_a_change_of_what_runs(module: str) -> None:
    """Python that can be compiled, each unlike the module and unlike the others of its line."""
    found = mutants.mutants(module)
    assert len(found) >= 6
    assert len({one.source for one in found}) == len(found)
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.name == module, "a package goes by its own name"
    assert spec.origin == str(mutants.path_of(module))
    whole = ast.unparse(ast.parse(mutants.path_of(module).read_text(encoding="utf-8")))
    for one in found:
        assert one.source != whole
        compile(one.source, module, "exec")
    assert all((ROOT / name).is_file() for name in mutants.TESTS[module])


SKIPS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_that_runs(number):
    pass

@pytest.mark.gpu
def test_without_a_gpu():
    pytest.skip("no device")

@pytest.mark.skipif({reason!r} != "", reason={reason!r})
def test_that_may_not_be_skipped():
    pass
"""


@pytest.mark.parametrize(("reason", "code"), [("", 0), ("a file is not there", 1)])
def test_nothing_is_skipped_without_its_marker(tmp_path: Path, reason: str, code: int) -> None:
    (tmp_path / "test_x.py").write_text(SKIPS.format(reason=reason), encoding="utf-8")
    words = ["-q", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--nothing-else-skipped"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider", str(tmp_path / "test_x.py")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    *_, last = lines = done.stdout.splitlines()
    assert "3 test functions, 5 cases" in lines
    assert re.match(r"\d (failed|passed), .* in [\d.]+s", last), "pytest's own line is the last"


def test_the_security_policy_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 5
    assert all((ROOT / name).exists() for name in named)


def test_the_fragments_here_can_be_gathered() -> None:
    changelog.fragments(ROOT / "changelog.d")


BEFORE = "# Changelog\n\nProse.\n\n## 0.1.0 (2026-12-01)\n\n### Added\n\n- old\n"


def _fragments(folder: Path, **texts: str) -> dict[str, list[Path]]:
    for name, text in texts.items():
        (folder / f"{name.replace('_', '.')}.md").write_text(text, encoding="utf-8")
    return changelog.fragments(folder)


def test_fragments_become_a_release(tmp_path: Path) -> None:
    found = _fragments(tmp_path, b_numbers="- two\n", a_numbers="- one\n  more\n", x_added="- new")
    assert changelog.gathered(BEFORE, found, "0.2.0", "2027-01-31") == (
        "# Changelog\n\nProse.\n\n## 0.2.0 (2027-01-31)\n\n### Numbers that changed\n\n- one\n"
        "  more\n- two\n\n### Added\n\n- new\n\n## 0.1.0 (2026-12-01)\n\n### Added\n\n- old\n"
    )


def test_fragments_join_what_is_written_already(tmp_path: Path) -> None:
    text = (
        BEFORE.replace("(2026-12-01)", "(unreleased)")
        + "\n### Fixed\n\n- mended\n\n## 0.0.1 (x)\n\n- first\n"
    )
    found = _fragments(tmp_path, a_added="- new\n")
    assert changelog.gathered(text, found, "0.2.0", "2026-12-02") == (
        "# Changelog\n\nProse.\n\n## 0.2.0 (2026-12-02)\n\n### Added\n\n- old\n- new\n\n"
        "### Fixed\n\n- mended\n\n## 0.0.1 (x)\n\n- first\n"
    )


@pytest.mark.parametrize(
    ("name", "text"), [("a.news.md", "- x\n"), ("A b.added.md", "- x\n"), ("a.added.md", "x\n")]
)
def test_a_fragment_that_cannot_be_placed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=re.escape(name)):
        changelog.fragments(tmp_path)


def test_a_tag_is_released_when_version_and_changelog_say_so(tmp_path: Path) -> None:
    (tmp_path / "kvplan").mkdir()
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "kvplan" / "version.py").write_text('"""The version."""\n\n__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(BEFORE, encoding="utf-8")
    assert changelog.unready(tmp_path, "v0.1.0") is None
    assert "version.py" in str(changelog.unready(tmp_path, "v0.2.0"))
    _fragments(tmp_path / "changelog.d", a_added="- x\n")
    assert "fragments" in str(changelog.unready(tmp_path, "v0.1.0"))
    (tmp_path / "CHANGELOG.md").write_text(BEFORE.replace("2026-12-01", "unreleased"), encoding="utf-8")
    assert "dated" in str(changelog.unready(tmp_path, "v0.1.0"))


@pytest.mark.parametrize(
    ("found", "known", "unknown"),
    [
        ("0.33.0", "0.33", False), ("0.33.1", "0.33", False), ("0.34.0", "0.33", True), ("1.0", "0.33", True),
        ("0.5.23.post1", "0.5.23", False), ("0.5.24", "0.5.23", True), ("5.9.0", "5.23", False),
        ("0.34.0rc1", "0.33", True),
    ],
)  # fmt: skip
def test_a_release_that_is_not_known(found: str, known: str, unknown: bool) -> None:
    assert new_releases.newest(f"vllm ({found})\nAvailable versions: …\n", "vllm") == found
    assert new_releases.is_unknown(found, known) is unknown


@pytest.mark.parametrize(
    ("vllm", "code", "title"),
    [
        ("vllm (99.1.0)\n", 1, "Releases that kvplan does not know: vllm 99.1"),
        ("vllm (0.1.0)\n", 0, None),
        ("", 3, None),
    ],
)  # fmt: skip
def test_unknown_releases_become_an_issue(
    vllm: str, code: int, title: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pip(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        said = vllm if words[-1] == "vllm" else f"{words[-1]} (0.0.1)\n"
        return subprocess.CompletedProcess(words, 0 if said else 1, stdout=said, stderr="no answer")

    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(sys, "argv", ["new_releases", "--issue", str(tmp_path / "issue")])
    assert new_releases.main() == code
    assert (tmp_path / "issue").exists() is (title is not None)
    if title is not None:
        assert (tmp_path / "issue" / "title.txt").read_text(encoding="utf-8") == title
        assert "| vllm | 99.1 | " in (tmp_path / "issue" / "body.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="the steps need bash")
def test_an_issue_is_opened_once(tmp_path: Path) -> None:
    """The last step of the daily workflow, with a gh that notes what it was told."""
    (step,) = (one for one in commands(ROOT / ".github" / "workflows" / "releases.yml") if "gh " in one)
    (tmp_path / "issue").mkdir()
    (tmp_path / "issue" / "title.txt").write_text("Releases: vllm 0.34.0", encoding="utf-8")
    (tmp_path / "gh").write_text(
        '#!/bin/sh\n[ "$2" = list ] && cat "$RUNNER_TEMP/there" && exit\necho "$4" >> "$RUNNER_TEMP/told"\n'
    )
    (tmp_path / "gh").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path)}
    for there, told in (("Releases: vllm 0.34", 1), ("Releases: vllm 0.34.0", 1)):
        (tmp_path / "there").write_text(f"another\n{there}\n", encoding="utf-8")
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step], env=environment, check=True)
        assert (tmp_path / "told").read_text(encoding="utf-8") == "Releases: vllm 0.34.0\n" * told


def test_the_index_is_asked_every_day() -> None:
    """A new release is told within a day of its wheel."""
    schedule = loaded(ROOT / ".github" / "workflows" / "releases.yml")[True]["schedule"]
    assert any(re.fullmatch(r"\d+ \d+ \* \* \*", one["cron"]) for one in schedule)


@pytest.mark.parametrize("script", [vllm_releases, sglang_releases])
def test_a_release_is_named_with_and_without_its_engine(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``make engines RELEASE=…``: the engine alone is its newest; a release that is nowhere is said so."""
    engine = script.__name__.rpartition(".")[2].removesuffix("_releases")
    said = subprocess.CompletedProcess([], 0, stdout=f"{engine} (0.99.1)\n", stderr="")
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: said)
    assert script.named(f"{engine}@0.5.12") == script.named("0.5.12") == "0.5.12"
    assert script.named(engine) == script.named(f"{engine}@") == "0.99.1"
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="")
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: failed)
    fetch = vllm_releases.fetched if script is vllm_releases else sglang_releases.folders
    with pytest.raises(SystemExit, match="the package index has no"):
        fetch("0.98.0", Path("nowhere"))
