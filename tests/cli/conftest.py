"""Running the command line inside the test process, with nothing of the user's own around it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kvplan.cli import main

GOLDEN = Path(__file__).parent / "golden"
_OURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "XDG_CONFIG_HOME", "_KVPLAN_COMPLETE")


class Ran(NamedTuple):
    """What one command line wrote and returned."""

    code: int
    out: str
    err: str


class Stream(io.TextIOWrapper):
    """A stdout of a given encoding that may say it is a terminal."""

    def __init__(self, encoding: str = "utf-8", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """A function of the arguments: runs ``kvplan`` in the folder of golden inputs."""
    for name in [name for name in os.environ if name.startswith("KVPLAN_") or name in _OURS]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.chdir(GOLDEN)

    def call(
        *arguments: str,
        stdin: bytes = b"",
        encoding: str = "utf-8",
        terminal: bool = False,
        environment: dict[str, str] | None = None,
    ) -> Ran:
        out, err = Stream(encoding, terminal), Stream(encoding, terminal)
        with monkeypatch.context() as patch:
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(arguments)
        return Ran(code, out.text(), err.text())

    return call
