"""The command line. ``main`` is what the installed script calls; it returns the exit code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Optional

VERSION_FLAGS = ("--version", "-V")


def main(arguments: Optional[Sequence[str]] = None) -> int:  # noqa: UP045 - read without evaluation on 3.10
    """Run one command and return its exit code: 0 answered, 1 the answer is no, 2 could not answer,
    3 could not run here, 70 a bug, 130 interrupted."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    if len(asked) == 1 and asked[0] in VERSION_FLAGS:
        return _version()
    # Nothing that a command makes outlives it: looking for cycles while modules load only takes time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        from kvplan.cli.run import run

        return run(asked)
    finally:
        if collecting:
            gc.enable()


def _version() -> int:
    """Without a module of the command line: scripts ask often."""
    from kvplan.version import __version__

    try:
        sys.stdout.write(f"kvplan {__version__}\n")
        sys.stdout.flush()
    except (OSError, AttributeError, ValueError):  # a full disk, a closed stream
        from kvplan.cli.run import run

        return run(["--version"])
    return 0
