"""`make release`: what it refuses, and what it writes beside the packages."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

from kvplan.cli.commands import TOP_LEVEL
from scripts import release


@pytest.mark.parametrize(
    ("version", "changes", "why"),
    [
        ("0.2.0", "", None),
        ("0.1.0", "", None),
        ("v0.2.0", "", "three numbers"),
        ("0.0.9", "", "is a tag already"),
        ("0.0.8", "", "newer than 0.0.8"),
        ("0.2.0", " M README.md", "M README.md"),
    ],
)
def test_a_release_begins_clean_and_goes_forward(version: str, changes: str, why: str | None) -> None:
    found = release.refused(version, "0.1.0", ["v0.0.9"], changes)
    assert (found is None) if why is None else (found is not None and why in found)


def test_the_pythons_of_the_tests_workflow_are_those_of_a_release() -> None:
    workflow = (release.ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert "python: [" + ", ".join(f'"{one}"' for one in release.PYTHONS) + "]" in workflow


def test_interpreters_that_do_not_answer_are_left_out(tmp_path: Path) -> None:
    silent = tmp_path / "python3.9"
    silent.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    silent.chmod(0o755)
    minor = "{}.{}".format(*sys.version_info[:2])
    assert release.pythons([str(silent), str(tmp_path / "away"), sys.executable]) == {minor: sys.executable}


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_bytes(name.encode())
    lines = release.checksums(sorted(tmp_path.iterdir(), reverse=True)).splitlines()
    assert lines == [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a.tar.gz", "b.whl")]


def test_the_wheels_test_asks_only_commands_that_there_are() -> None:
    """It runs where a release is made, and nowhere before."""
    script = (release.ROOT / "scripts" / "test_wheel.sh").read_text(encoding="utf-8")
    asked = re.findall(r'/kvplan" ([a-z]+)((?: [a-z]+)?)', script)
    assert {name for name, _ in asked} >= {"size", "list", "doctor"}
    assert {name for name, _ in asked} <= set(TOP_LEVEL)
    assert {view.strip() for name, view in asked if name == "list"} == {"gpus", "models"}
    named = re.findall(r"(?<= )tests/[\w/.]+", script)
    assert all((release.ROOT / path).exists() for path in named)
    assert len(named) >= 5
