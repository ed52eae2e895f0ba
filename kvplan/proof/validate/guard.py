"""Events that end a run early: Ctrl-C, SIGTERM, the time limit, the loss of the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED, CANNOT_RUN = 130, 143, 3
_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 10.0


class Terminated(BaseException):
    """SIGTERM: unwinds like Ctrl-C, so that everything is released on the way."""


class Guard:
    """Installed around a run. ``stop`` is asked between pieces of work; signals unwind at once.

    limit: seconds, None = none. ranked: one of several ranks, which ends when its launcher has gone, when the
    time is long up, and when a signal came and nothing unwound: it waits inside a collective that nobody will
    answer, where Python's own handlers do not run.
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        ranked: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._limit, self._ranked = clock, limit, ranked
        self._begun = clock()
        self._parent = os.getppid()
        self._before: dict[int, Any] = {}
        self._done = threading.Event()
        self._told: int | None = None

    @property
    def seconds(self) -> float:
        """Since the guard was made."""
        return self._clock() - self._begun

    def out_of_time(self) -> bool:
        return self._limit is not None and self.seconds > self._limit

    def stop(self) -> bool:
        """Whether to stop between two pieces of work: the time is up."""
        return self.out_of_time()

    def __enter__(self) -> Guard:
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGTERM, _terminate),
                (signal.SIGINT, signal.default_int_handler),
            ):
                self._before[number] = signal.signal(number, handler)
        if self._ranked:
            self._told = _wakeups()
            threading.Thread(target=self._watch, daemon=True, name="kvplan-launcher").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._told is not None:
            signal.set_wakeup_fd(-1)
            self._told = None
        for number, handler in self._before.items():
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(number, handler)
        self._before.clear()

    def _watch(self) -> None:
        """A rank whose launcher was killed gets nobody's signal: it ends itself, at first gently."""
        while not self._done.wait(_LOOK_SECONDS):
            late = self._limit is not None and self.seconds > self._limit + _GRACE_SECONDS
            if late or os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGTERM)
            elif not self._came():
                continue
            if not self._done.wait(_GRACE_SECONDS):
                os._exit(CANNOT_RUN if late else TERMINATED)
            return

    def _came(self) -> bool:
        """Whether a signal came that ends the run, also while no Python code runs."""
        if self._told is None:
            return False
        with contextlib.suppress(BlockingIOError):
            return bool({signal.SIGINT, signal.SIGTERM} & set(os.read(self._told, 64)))
        return False


def _wakeups() -> int | None:
    """A pipe to which the interpreter writes every signal's number as it comes; None off the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    try:
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    except ValueError:
        return None
    return reading


def _terminate(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated
