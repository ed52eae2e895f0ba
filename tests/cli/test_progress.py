"""What is shown while somebody waits: on a terminal only, and nothing of it stays."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
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
    assert {"simulate", "plan", "fits", "quality"} <= set(WORDS)


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


SLOW = "simulate llama-3.1-8b --gpu h100 --quick --generate requests=600,rate=9"
_COMMAND = """
import sys
from kvplan.cli import main, progress
progress.waiting.__wrapped__.__kwdefaults__["patience"] = 0.0
sys.argv = ["kvplan", *sys.argv[1:]]
main()
"""


def seen(words: str, *, terminal: bool) -> tuple[str, bytes]:
    """(What stderr shows, stdout) of a command whose patience is none; stdout is a pipe."""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", _COMMAND, *words.split()]
    if not terminal:
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        return done.stderr.decode(), done.stdout
    pty = pytest.importorskip("pty", reason="a pseudo-terminal is of Unix")
    leader, follower = pty.openpty()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    shown = bytearray()
    reader = threading.Thread(target=_read_all, args=(leader, shown))
    reader.start()
    out, _ = running.communicate(timeout=300)
    reader.join(timeout=30)
    os.close(leader)
    return shown.decode(), out


def _read_all(leader: int, into: bytearray) -> None:
    """A terminal ends with an error on Linux, and with nothing elsewhere."""
    with contextlib.suppress(OSError):
        while piece := os.read(leader, 4096):
            into += piece


def test_a_terminal_sees_the_line_and_a_pipe_does_not() -> None:
    text, out = seen(SLOW, terminal=True)
    assert WORDS["simulate"] in text
    assert text.endswith("\x1b[2K")  # nothing of it stays
    said, same = seen(SLOW, terminal=False)
    assert said == ""
    assert same == out


def test_nobody_is_told_beside_json() -> None:
    text, out = seen(SLOW + " --json", terminal=True)
    assert text == ""
    assert json.loads(out)["model"]


def test_an_answer_loads_no_rich() -> None:
    code = (
        "import sys; from kvplan.cli import main\n"
        "sys.argv = ['kvplan', 'size', 'llama-3.1-8b', '--tokens', '8']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('rich', 'typer', 'pydantic')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
