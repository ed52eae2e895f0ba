"""A process of an engine under its keeper (`keeper.py`): nothing of it outlives kvplan."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

KEEPER = Path(__file__).with_name("keeper.py")
_AT_ONCE_SECONDS = 10.0


class Kept:
    """One command, started. folder: removed should kvplan be killed.

    Raises OSError where the command is no program.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], **streams: int | IO[Any]
    ) -> None:
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"there is no program {command[0]}")
        life, self._life = os.pipe()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, str(KEEPER), str(life), str(folder), *command],
                env=dict(environment),
                start_new_session=True,
                pass_fds=(life,),
                **streams,  # type: ignore[call-overload]
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(life)

    @property
    def code(self) -> int | None:
        """The command's exit code, or minus the signal that ended it; None while it runs."""
        return self.process.poll()

    def ask_to_end(self, seconds: float) -> bool:
        """SIGTERM to the command; whether it ended by itself within so long."""
        if self.code is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        return self.code is not None

    def end(self) -> None:
        """End what is left of it, with all that it started."""
        if self._life >= 0:
            with contextlib.suppress(OSError):  # the keeper has ended
                os.write(self._life, b".")
            os.close(self._life)
            self._life = -1
        try:
            self.process.wait(_AT_ONCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
