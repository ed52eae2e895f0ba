"""One folder a case: cmd, stdout.txt, stderr.txt and exit; ``pytest tests/cli --update-golden`` writes them.

``cmd`` holds one command line; lines before it set environment variables; ``stdin`` may stand beside it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import GOLDEN, Run
from tests.laws.sampling import WHOLE, for_each

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
CASES = sorted(path.parent for path in GOLDEN.glob("*/cmd"))


def _command(case: Path) -> tuple[list[str], dict[str, str]]:
    *settings, command = (case / "cmd").read_text(encoding="utf-8").strip().splitlines()
    program, *arguments = shlex.split(command)
    assert program == "kvplan"
    return arguments, dict(setting.split("=", 1) for setting in settings)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_golden(case: Path, run: Run, request: pytest.FixtureRequest) -> None:
    arguments, environment = _command(case)
    stdin = case / "stdin"
    ran = run(*arguments, environment=environment, stdin=stdin.read_bytes() if stdin.exists() else b"")
    found = {"stdout.txt": ran.out, "stderr.txt": ran.err, "exit": f"{ran.code}\n"}
    if request.config.getoption("--update-golden"):
        for name, text in found.items():
            (case / name).write_text(text, encoding="utf-8", newline="\n")
        return
    wanted = {name: (case / name).read_text(encoding="utf-8") for name in found}
    assert found == wanted


def is_screen(case: Path) -> bool:
    """JSON, Markdown and what an engine reads are none."""
    command = (case / "cmd").read_text(encoding="utf-8")
    file = "export" in command and "--help" not in command
    return not (file or "--json" in command or "--markdown" in command)


SCREENS = [case for case in CASES if is_screen(case)]
COPIED = re.compile(
    r"\s*(kvplan |--|serve\b|vllm |python |\S+:\d+:\d+$|Maximum concurrency for )|.*kvplan [a-z]+ "
)
"""What stays on one line however long: commands, options, places in files, an engine's own words."""


def too_wide(text: str, columns: int) -> list[str]:
    rows = ESCAPE.sub("", text).splitlines()
    return [row for row in rows if len(row) > columns and not COPIED.match(row)]


@for_each("case", SCREENS, ids=[case.name for case in SCREENS])
def test_a_screen_is_as_wide_as_the_terminal(case: Path) -> None:
    columns = int(_command(case)[1].get("COLUMNS", "80"))
    rows = ESCAPE.sub("", (case / "stdout.txt").read_text(encoding="utf-8")).splitlines()
    assert [row for row in rows if len(row) > columns] == []
    assert too_wide((case / "stderr.txt").read_text(encoding="utf-8"), columns) == []


WIDTHS = (60, 120)
FITTED = [
    (case, columns)
    for number, case in enumerate(SCREENS)
    for columns in (WIDTHS if WHOLE else WIDTHS[number % 2 :][:1])
]
"""Neighbours by name, which are of one command, take turns."""


@pytest.mark.laws
@pytest.mark.parametrize(
    ("case", "columns"), FITTED, ids=[f"{case.name}-{columns}" for case, columns in FITTED]
)
def test_a_screen_fits_any_terminal(case: Path, columns: int, run: Run) -> None:
    arguments, environment = _command(case)
    stdin = case / "stdin"
    given = stdin.read_bytes() if stdin.exists() else b""
    ran = run(*arguments, environment=environment | {"COLUMNS": str(columns)}, stdin=given)
    assert too_wide(ran.out, columns) == []
    assert too_wide(ran.err, columns) == []
