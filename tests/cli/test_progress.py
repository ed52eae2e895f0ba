"""What is shown while somebody waits: on a terminal only, and nothing of it stays."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from contextlib import redirect_stderr

import pytest

from kvplan.cli.commands import COMMANDS
from kvplan.cli.progress import WORDS, Stages, waiting


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_the_words_are_those_of_commands() -> None:
    assert set(WORDS) <= set(COMMANDS)


def test_who_waits_is_told_and_the_line_goes(terminal: Terminal) -> None:
    with redirect_stderr(terminal), waiting("plan", patience=0.0):
        for _ in range(500):
            if "judging candidates" in terminal.getvalue():
                break
            time.sleep(0.01)
    shown = terminal.getvalue()
    assert "judging candidates" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped


def test_a_quick_answer_says_nothing_before_it(terminal: Terminal) -> None:
    with redirect_stderr(terminal), waiting("plan"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_a_pipe_sees_nothing(command: str) -> None:
    stream = io.StringIO() if command == "plan" else Terminal()
    with redirect_stderr(stream), waiting(command, patience=0.0):
        time.sleep(0.05)
    assert stream.getvalue() == ""


def test_stages_show_what_is_done(terminal: Terminal) -> None:
    shown = Stages()
    with redirect_stderr(terminal):
        shown("weights", 0, 2 * 2**30)
        shown("weights", 2**30, 2 * 2**30)
        shown("pool [x]", 0, 0)
        shown.stop()
        shown.stop()
    text = terminal.getvalue()
    assert "1.00 GiB of 2.00 GiB" in text
    assert "weights" in text
    assert "pool [x]" in text  # no markup is read in it


def test_an_answer_loads_no_rich() -> None:
    code = (
        "import sys; from kvplan.cli import main\n"
        "sys.argv = ['kvplan', 'size', 'llama-3.1-8b', '--tokens', '8']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('rich', 'typer', 'pydantic')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
