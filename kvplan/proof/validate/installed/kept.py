"""An engine's process under its keeper (`keeper.py`), and a folder (`folder.py`): neither outlives kvplan."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kvplan.errors import CannotRunHere

KEEPER = Path(__file__).with_name("keeper.py")
FOLDER = Path(__file__).with_name("folder.py")
_AT_ONCE_SECONDS = 10.0


@contextlib.contextmanager
def kept_folder(prefix: str) -> Iterator[Path]:
    """An empty temporary folder, gone afterwards: also where kvplan was killed.

    Raises CannotRunHere(no-engine | no-folder).
    """
    if os.name != "posix":
        raise CannotRunHere("no-engine", "an engine's worker runs on Linux")
    life, mine = os.pipe()
    try:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(FOLDER), str(life), prefix],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(life,),
        )
    except BaseException:
        os.close(mine)
        raise
    finally:
        os.close(life)
    with keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stderr is not None
            made = os.fsdecode(keeper.stdout.readline().removesuffix(b"\n"))
            if not made:
                raise CannotRunHere(
                    "no-folder",
                    f"no temporary folder can be made: {os.fsdecode(keeper.stderr.read()).strip()}",
                    help="name one in which you may write: TMPDIR=/path",
                )
            yield Path(made)
        finally:
            os.close(mine)


class Kept:
    """One command, started. Raises OSError where it is no program."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], **streams: int | IO[Any]
    ) -> None:
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"there is no program {command[0]}")
        life, self._life = os.pipe()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, str(KEEPER), str(life), *command],
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
