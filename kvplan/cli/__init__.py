"""The command line. ``main`` runs one command and returns the exit code; ``script`` is what is installed."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Optional

from kvplan.errors import EXIT_INTERRUPTED

VERSION_FLAGS = ("--version", "-V")


def main(arguments: Optional[Sequence[str]] = None) -> int:  # noqa: UP045 - read without evaluation on 3.10
    """Run one command and return its exit code: 0 answered, 1 the answer is no, 2 could not answer,
    3 could not run here, 70 a bug, 130 interrupted."""
    if arguments is None:
        return _as_process(sys.argv[1:])
    return _main(list(arguments))


def _as_process(asked: list[str]) -> int:
    """As the process's own work: Ctrl-C interrupts a command, which then leaves nothing half done. While
    modules load and while the interpreter ends nothing can be left, and it ends the process in silence.

    What modules and a command make, the process keeps: looking for cycles in it only takes time, while they
    load and, a tenth of an answer's time, as the interpreter ends."""
    gc.disable()
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # `nohup`, a debugger's own
        return _main(asked)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # not the main thread, which alone gets signals
        return _main(asked)
    if not _asks_version(asked):
        import kvplan.cli.run  # noqa: F401 - its modules, before there is a command to interrupt
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _main(asked)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()
    return code


def script() -> int:
    """The installed script: `main`, and the end of the process at once where nothing waits for it, neither a
    debugger, profiler or program around it nor a thread or `atexit`. To take all modules apart is a twentieth
    of an answer's time."""
    code = main()
    if sys._getframe(1).f_back is None:
        _leave(code)
    return code


def _leave(code: int) -> None:
    import atexit

    threading = sys.modules.get("threading")
    waiting = getattr(atexit, "_ncallbacks", lambda: 1)() or (threading and threading.active_count() > 1)
    if waiting or sys.flags.inspect:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):  # a full disk, a closed stream: the interpreter says so
        return
    os._exit(code)


def _asks_version(asked: list[str]) -> bool:
    return len(asked) == 1 and asked[0] in VERSION_FLAGS


def _main(asked: list[str]) -> int:
    if _asks_version(asked):
        return _version()
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
