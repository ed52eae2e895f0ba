"""Names and files that the system refuses are answers, at every door; and Ctrl-C is one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.api.checking.git import Revision
from kvplan.cli import main
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.plans.file import MAX_ENVIRONMENTS, read_plan_text
from kvplan.plans.serve import flags_of

PACKAGE = Path(__file__).resolve().parents[2] / "kvplan"
LONG = "x" * 300
TRACED = f"""\
kvplan: plan/v1
model: llama-3.2-1b
gpu: l4
serve: {{max_model_len: 4096}}
workload: {{trace: {LONG}, trace_format: mooncake}}
"""


DOORS = (
    f"plan llama-3.2-1b -g l4 --workload {LONG}",
    f"simulate --trace {LONG} --hit-rates 1k",
    f"simulate llama-3.2-1b -g l4 --trace {LONG}",
    "check plan.yaml",
    "simulate plan.yaml",
    f"compare llama-3.2-1b --log {LONG}",
    f"size {LONG}",
    f"cards new {LONG}",
    f"list receipts {LONG}",
    f"check --baseline {LONG} plan.yaml",
    f"export {LONG}",
    f"import {LONG}",
)


@pytest.mark.parametrize("door", DOORS, ids=range(len(DOORS)))
def test_a_name_longer_than_any_is_no_bug(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(TRACED, encoding="utf-8")
    assert main(door.split()) in (2, 3)
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err


def test_names_are_looked_at_in_one_place() -> None:
    """pathlib's questions raise for a name that no file can have; `kvplan.files.folders` answers."""
    asked = re.compile(r"[\w.()\[\]]+\.(?:exists|is_file|is_dir)\(\)")
    found = [
        f"{file.relative_to(PACKAGE).as_posix()}: {one}"
        for file in PACKAGE.rglob("*.py")
        if file.name != "folders.py" and not file.is_relative_to(PACKAGE / "report")
        for one in asked.findall(file.read_text(encoding="utf-8"))
    ]
    own = ["files/datafiles.py: folder.is_dir()"]
    assert sorted(found) == own, "folders of the package itself alone"


@pytest.mark.skipif(os.name == "nt", reason="a script in place of git")
@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "echo nonsense"])
def test_a_git_that_dies_is_an_answer(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "git"
    git.write_text(f'#!/bin/sh\ncase "$*" in *cat-file*) {script};; *) echo 0;; esac\n', encoding="utf-8")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    revision = Revision("main", [tmp_path], tmp_path / "copy")
    revision.__dict__["entries"] = {"a.yaml": "0" * 40, "b.yaml": "1" * 40}
    with pytest.raises(CannotRunHere, match="git did not give"):
        revision.bring_all(["a.yaml", "b.yaml"])


def test_environments_are_bounded() -> None:
    many = "".join(f"  e{number}: {{gpu: h100}}\n" for number in range(MAX_ENVIRONMENTS + 1))
    (read,) = read_plan_text(TRACED + "environments:\n" + many, engine_of=flags_of)
    assert [error.code for error in read.errors] == ["too-many-environments"]


@pytest.mark.skipif(os.name == "nt", reason="signals of a Unix")
def test_nothing_is_said_where_a_process_is_interrupted_after_its_answer() -> None:
    """As the interpreter ends the signal's default is in force: no traceback of threading's."""
    code = (
        "import signal, sys; sys.argv = ['kvplan', '--version']\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # not as a shell's background has it\n"
        "from kvplan.cli import main\n"
        "main(); signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


def test_an_interrupt_within_another_error_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrapped(_: list[str]) -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr("kvplan.cli.run._call", wrapped)
    assert main(["size", "x"]) == 130


def test_memory_that_runs_out_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def greedy(_: list[str]) -> None:
        raise MemoryError

    monkeypatch.setattr("kvplan.cli.run._call", greedy)
    assert main(["size", "x"]) == 3
    assert "too little memory" in capsys.readouterr().err
    assert issubclass(CannotRunHere, KvplanError)
