"""The action, the hook and the examples for CI: valid, as the guide shows them, and run here."""

from __future__ import annotations

import base64
import gzip
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

from tests.report.schemas import builtin_errors

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "ci"
BASH = shutil.which("bash")
SCHEMAS = {
    "github.yml": "vendor.github-workflows",
    "github-comment.yml": "vendor.github-workflows",
    "gitlab.yml": "vendor.gitlab-ci",
}


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_examples_by_their_schemas(name: str) -> None:
    assert builtin_errors(SCHEMAS[name], EXAMPLES / name) == ""


def test_the_action_by_its_schema() -> None:
    assert builtin_errors("vendor.github-actions", ROOT / "action.yml") == ""


def test_the_schemas_can_fail(tmp_path: Path) -> None:
    broken = tmp_path / "action.yml"
    broken.write_text((ROOT / "action.yml").read_text(encoding="utf-8").replace("shell: bash", "shel: bash"))
    assert builtin_errors("vendor.github-actions", broken) != ""


def test_the_guide_shows_the_files() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"<!-- file: examples/ci/(\S+) -->\n```yaml\n(.*?)```\n", text, re.DOTALL))
    assert blocks == {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.iterdir()}


def test_the_guide_names_every_input_and_output() -> None:
    action, guide = loaded(ROOT / "action.yml"), (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    for name in (*action["inputs"], *action["outputs"]):
        assert f"`{name}" in guide, name


def test_the_action_uses_nobody_elses() -> None:
    steps = loaded(ROOT / "action.yml")["runs"]["steps"]
    used = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert used == ["actions/setup-python"]
    assert not any("${{" in step.get("run", "") for step in steps), "inputs come in as variables"


@pytest.mark.parametrize("path", [ROOT / "action.yml", *sorted(EXAMPLES.glob("github*.yml"))], ids=str)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved to other code; the version stands beside the commit."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if "uses:" in line and "OWNER/kvplan" not in line:
            assert re.search(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def steps_of(path: Path) -> list[dict[str, Any]]:
    file = loaded(path)
    jobs = [file["runs"]] if "runs" in file else list(file["jobs"].values())
    assert not any("TOKEN" in name for job in jobs for name in job.get("env", {})), "a token for every step"
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("path", [ROOT / "action.yml", *sorted(EXAMPLES.glob("github*.yml"))], ids=str)
def test_python_is_isolated_and_has_no_token(path: Path) -> None:
    for step in steps_of(path):
        script = step.get("run", "")
        assert not re.search(r"\bpython[\d.]*\b\"? (?!-I )", script), script
        if any("TOKEN" in name for name in step.get("env", {})):
            assert not re.search(r"python|pip|kvplan ", script), script


TRAPS = (
    "json.py",
    "base64.py",
    "gzip.py",
    "os.py",
    "venv/__main__.py",
    "pip/__main__.py",
    "kvplan/__init__.py",
)


@pytest.mark.skipif(BASH is None or os.name == "nt", reason="the action's scripts need bash and Unix paths")
def test_no_file_of_the_checkout_is_run(tmp_path: Path) -> None:
    """A pull request with modules of its own at the root: none of the steps imports them."""
    checkout, temp = tmp_path / "checkout", tmp_path / "temp"
    temp.mkdir()
    for trap in TRAPS:
        (checkout / trap).parent.mkdir(parents=True, exist_ok=True)
        (checkout / trap).write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\n")
    program = tmp_path / "tools" / "kvplan"
    program.parent.mkdir()
    program.write_text(KVPLAN.format(python=sys.executable))
    (program.parent / "gh").write_text(GH.format(python=sys.executable))
    for tool in program.parent.iterdir():
        tool.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(temp), "GITHUB_OUTPUT": str(temp / "output"), "GITHUB_PATH": str(temp / "path"),
        "GITHUB_STEP_SUMMARY": str(temp / "summary"), "CALLS": str(temp / "calls"), "CODE": "0",
        "GITHUB_SHA": "abc", "GITHUB_REF": "refs/pull/1/merge", "GITHUB_REPOSITORY": "a/b",
        "KVPLAN_ACTION_SARIF": "true", "KVPLAN_ACTION_PATHS": "plans", "KVPLAN_ACTION_FORMAT": "text",
        "KVPLAN_ACTION_VERSION": "0", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull,
    }  # fmt: skip
    assert BASH is not None
    ended = []
    for step in loaded(ROOT / "action.yml")["runs"]["steps"]:
        if "run" in step:
            words = [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(words, env=environment, cwd=checkout, capture_output=True, text=True)
            ended.append(done.returncode)
    assert ended == [1, 0, 0], "pip finds nothing without an index; the other two run to their end"
    assert (temp / "kvplan" / "pyvenv.cfg").exists()
    assert not (tmp_path / "PWNED").exists()


def test_the_hook() -> None:
    (hook,) = loaded(ROOT / ".pre-commit-hooks.yaml")
    assert (hook["id"], hook["language"], hook["entry"]) == ("kvplan-check", "python", "kvplan check")
    matches = re.compile(hook["files"]).search
    assert all(matches(path) for path in ("plans/a.yaml", "x/plans/b.yml", "chat.plan.yaml"))
    assert not any(matches(path) for path in ("replans/a.yaml", "plan.yaml", "src/a.yaml"))
    example = loaded(EXAMPLES / "pre-commit-config.yaml")
    assert example["repos"][0]["hooks"][0]["id"] == hook["id"]


KVPLAN = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    json.dump({{"words": sys.argv[1:], "github": "GITHUB_ACTIONS" in os.environ}}, calls)
    calls.write("\\n")
if "--output" in sys.argv:
    with open(sys.argv[sys.argv.index("--output") + 1], "w") as out:
        json.dump({{"counts": {{"plans": 3, "passed": 1, "failed": 1, "unreadable": 1}}}}, out)
if "--html" in sys.argv:
    open(sys.argv[sys.argv.index("--html") + 1], "w").close()
sys.exit(int(os.environ["CODE"]))
"""


def run_step(step: dict[str, Any], folder: Path, inputs: dict[str, str], code: int = 1) -> tuple[int, Path]:
    """A step of the action as the runner starts it, with a kvplan that writes down how it was called."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    program = tools / "kvplan"
    program.write_text(KVPLAN.format(python=sys.executable))
    program.chmod(0o755)
    given = {
        name: inputs.get(match[1], "")
        for name, value in step.get("env", {}).items()
        if (match := re.fullmatch(r"\$\{\{ inputs\.(\S+) \}\}", value))
    }
    environment = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output"), "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "summary"), "CALLS": str(folder / "calls"), "CODE": str(code),
        "GITHUB_SHA": "abc", "GITHUB_REF": "refs/pull/1/merge", "GITHUB_REPOSITORY": "a/b", **given,
    }  # fmt: skip
    assert BASH is not None
    words = [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True)
    assert "rror" not in done.stderr, done.stderr
    return done.returncode, folder


@pytest.mark.skipif(BASH is None or os.name == "nt", reason="the action's scripts need bash and Unix paths")
@pytest.mark.parametrize("sarif", ["false", "true"])
def test_the_actions_script(tmp_path: Path, sarif: str) -> None:
    action = loaded(ROOT / "action.yml")
    step = next(one for one in action["runs"]["steps"] if one.get("id") == "check")
    inputs = {name: str(entry.get("default", "")) for name, entry in action["inputs"].items()}
    inputs |= {
        "paths": "plans\n\n$(touch hacked) a b.yaml\r\n", "env": "all", "baseline": "; touch hacked",
        "args": "--changed-only", "sarif": sarif,
    }  # fmt: skip
    code, folder = run_step(step, tmp_path, inputs)
    assert code == 1
    assert not (folder / "hacked").exists()
    calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
    common = [
        "check",
        "plans",
        "$(touch hacked) a b.yaml",
        "--changed-only",
        "--env",
        "all",
        "--baseline",
        "; touch hacked",
    ]
    assert calls[0] == {"words": [*common, "--format", "github"], "github": True}
    assert all(call["words"][: len(common)] == common for call in calls)
    assert [call["github"] for call in calls[1:]] == [False] * (2 if sarif == "true" else 1)
    assert (folder / "output").read_text().splitlines() == [
        "plans=3",
        "passed=1",
        "failed=1",
        "unreadable=1",
        "exit-code=1",
    ]
    assert (folder / "kvplan.sarif").exists() is (sarif == "true")


@pytest.mark.skipif(BASH is None or os.name == "nt", reason="the action's scripts need bash and Unix paths")
def test_the_action_writes_the_page(tmp_path: Path) -> None:
    action = loaded(ROOT / "action.yml")
    step = next(one for one in action["runs"]["steps"] if one.get("id") == "check")
    inputs = {
        "paths": "plans\na b.yaml",
        "env": "prod",
        "format": "text",
        "args": "--exit-zero",
        "report": "true",
    }
    assert run_step(step, tmp_path, inputs, code=1)[0] == 1
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    page = str(tmp_path / "kvplan-report.html")
    words = ["export", "plans", "a b.yaml", "--env", "prod", "--to", "html", "--output", page]
    assert calls[-1] == {"words": words, "github": False}
    assert f"report={page}" in (tmp_path / "output").read_text().splitlines()


@pytest.mark.skipif(BASH is None or os.name == "nt", reason="the action's scripts need bash and Unix paths")
def test_the_action_passes_where_the_check_does(tmp_path: Path) -> None:
    action = loaded(ROOT / "action.yml")
    step = next(one for one in action["runs"]["steps"] if one.get("id") == "check")
    assert run_step(step, tmp_path, {"paths": "plans", "format": "github"}, code=0)[0] == 0
    assert "exit-code=0" in (tmp_path / "output").read_text()


GH = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "w") as calls:
    json.dump(sys.argv[1:], calls)
open(sys.argv[sys.argv.index("--input") + 1]).close()
"""


@pytest.mark.skipif(BASH is None or os.name == "nt", reason="the action's scripts need bash and Unix paths")
def test_the_findings_are_uploaded_whole(tmp_path: Path) -> None:
    """docs.github.com REST "Upload an analysis as SARIF data": gzip, then base64."""
    steps = loaded(ROOT / "action.yml")["runs"]["steps"]
    check = next(one for one in steps if one.get("id") == "check")
    inputs = {"paths": "plans", "format": "text", "sarif": "true"}
    run_step(check, tmp_path, inputs, code=0)
    body = json.loads((tmp_path / "kvplan-upload.json").read_text())
    assert (body["commit_sha"], body["ref"]) == ("abc", "refs/pull/1/merge")
    packed = gzip.decompress(base64.b64decode(body["sarif"]))
    assert packed == (tmp_path / "kvplan.sarif").read_bytes() != b""
    (step,) = (one for one in steps if "gh api" in one.get("run", ""))
    assert "sarif" in step["if"]
    (tmp_path / "bin" / "gh").write_text(GH.format(python=sys.executable))
    (tmp_path / "bin" / "gh").chmod(0o755)
    run_step(step, tmp_path, {}, code=0)
    arguments = json.loads((tmp_path / "calls").read_text())
    assert arguments[:4] == ["api", "--method", "POST", "repos/a/b/code-scanning/sarifs"]
    assert arguments[4:] == ["--input", "kvplan-upload.json"]
