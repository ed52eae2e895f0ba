"""One folder a case: cmd, stdout.txt, stderr.txt and exit; ``pytest tests/cli --update-golden`` writes them.

``cmd`` holds one command line; lines before it set environment variables; ``stdin`` may stand beside it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvplan.report import layout
from kvplan.report.layout import Screen, Span
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
def test_golden(case: Path, run: Run, split: list[str], request: pytest.FixtureRequest) -> None:
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
    assert split == []


ASKED_FOR = re.compile(r"[\d,]+( requests?)?")
"""Columns that were asked for: such a table may go on below, and says its rows again there."""


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The heads of tables of which one row came to several lines, beyond words of its last column."""
    found: list[str] = []
    in_blocks = layout._in_blocks

    def noted(cells: Sequence[Sequence[Span]], align: str, indent: int, gap: str) -> Screen:
        heads = [one.text for one in cells[0]]
        if not any(ASKED_FOR.fullmatch(head) for head in heads):
            found.append(" | ".join(heads))
        return in_blocks(cells, align, indent, gap)

    monkeypatch.setattr(layout, "_in_blocks", noted)
    return found


TABLES = (
    "fits llama --gpu h100",
    "fits qwen3 --gpu rtx-4090 -e llamacpp",
    "list gpus",
    "list models qwen",
    "plan deepseek-v3 -n 64 -t 32k --gpu h200",
    "plan qwen3-32b -n 16 -t 16k --fleet inputs/fleet.yaml -e vllm,sglang",
    "check inputs/plans --env all",
    "size gemma-3-27b -t 8k --engine all",
    "size gpt-oss-120b --gpu h100 --max-num-seqs 4",
)
DRAWN = [
    (command, columns)
    for number, command in enumerate(TABLES)
    for columns in ((60, 80, 120) if WHOLE else ((60, 80)[number % 2],))
]


@pytest.mark.laws
@pytest.mark.parametrize(("command", "columns"), DRAWN)
def test_a_row_is_one_line(command: str, columns: int, run: Run, split: list[str]) -> None:
    """In no table does a row go on below, as narrow as the terminal may be: columns are left out first."""
    ran = run(*shlex.split(command), environment={"COLUMNS": str(columns)})
    assert ran.code in (0, 1), ran.err
    assert too_wide(ran.out, columns) == []
    assert split == []
    if command.startswith("fits"):
        found = json.loads(run(*shlex.split(command), "--json").out)["rows"]
        begun = [line.split()[0] for line in ran.out.splitlines() if line.strip()]
        assert [begun.count(row["model"]) for row in found[:5]] == [1] * 5


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
    for columns in (WIDTHS if WHOLE else WIDTHS[number // 2 % 2 :][: (number + 1) % 2])
]
"""Neighbours by name, which are of one command, take turns: every other one, at one width or the other."""


@pytest.mark.laws
@pytest.mark.parametrize(
    ("case", "columns"), FITTED, ids=[f"{case.name}-{columns}" for case, columns in FITTED]
)
def test_a_screen_fits_any_terminal(case: Path, columns: int, run: Run, split: list[str]) -> None:
    arguments, environment = _command(case)
    stdin = case / "stdin"
    given = stdin.read_bytes() if stdin.exists() else b""
    ran = run(*arguments, environment=environment | {"COLUMNS": str(columns)}, stdin=given)
    assert too_wide(ran.out, columns) == []
    assert too_wide(ran.err, columns) == []
    assert split == []
