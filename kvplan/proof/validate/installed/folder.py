"""The script that makes a folder for kvplan and removes it when kvplan ends, however it ends.

    python folder.py LIFE PREFIX

LIFE is the reading end of a pipe that kvplan alone holds open; the end of the pipe is the end of the folder.
It prints the folder's path. A folder that kvplan made itself would stay where kvplan is killed by SIGKILL.
Standard library only: no module of kvplan is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time

_WITHIN_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def main(life: int, prefix: str) -> int:
    """Make it, wait, remove it; 1 where it could not be made or is still there."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job's end reaches every process of the job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        folder = tempfile.mkdtemp(prefix=prefix)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    with contextlib.suppress(OSError):  # kvplan has ended already
        print(folder, flush=True)
    while os.read(life, 1):
        pass
    ends = time.monotonic() + _WITHIN_SECONDS  # an engine that is being ended may still write there
    while os.path.lexists(folder) and time.monotonic() < ends:
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            time.sleep(_LOOK_SECONDS)
    return int(os.path.lexists(folder))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
