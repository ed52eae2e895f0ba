"""The script between kvplan and a process of the engine: what the process started ends when kvplan does.

    python keeper.py LIFE COMMAND …

LIFE is the reading end of a pipe that kvplan alone holds open. A byte asks for the end at once; the end of
the pipe means that kvplan has ended, however (SIGKILL as well). Either way every process of COMMAND is ended.
SIGTERM goes on to COMMAND alone, as a deployment would send it. Its exit code or signal is the keeper's own.
Standard library only: no module of kvplan is read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127


def main(life: int, command: Sequence[str]) -> int:
    """Run the command to its end, or to kvplan's."""
    try:
        child = subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_the_keeper)  # noqa: PLW1509 - one thread
    except OSError as error:
        print(f"{command[0]} does not start: {error}", file=sys.stderr)
        return _NOT_STARTED

    def passed_on(number: int, frame: FrameType | None) -> None:
        del frame
        if child.poll() is None:
            child.send_signal(number)

    signal.signal(signal.SIGTERM, passed_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while child.poll() is None:
        if select.select([life], [], [], _LOOK_SECONDS)[0]:
            _end(child)
            break
    _signal(child, signal.SIGKILL)  # ranks that outlived it
    return child.wait()


def _end(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM to all of its session, then SIGKILL."""
    _signal(child, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_SECONDS)
    _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _die_with_the_keeper() -> None:
    """Linux: the kernel ends the command should the keeper itself be killed."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    if code < 0:  # ended by a signal, and so does the keeper
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    sys.exit(code)
