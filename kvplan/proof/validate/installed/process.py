"""The process that runs an installed engine: started, heard, limited in time, ended with all it made."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kvplan.errors import CannotRunHere
from kvplan.proof.validate.installed.kept import Kept
from kvplan.proof.validate.installed.messages import (
    MAX_LINE,
    Event,
    Failure,
    Hello,
    Measured,
    failure_of,
    hello_of,
    measured_of,
    parse_line,
)

START = Path(__file__).with_name("start.py")
START_SECONDS = 300.0
"""Until the engine has been imported: cold disks take minutes."""
SILENT_SECONDS = 1800.0
"""Between two events: a large model is built, profiled and captured within it."""
_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 20.0
_HURRY_SECONDS = 2.0
"""To end by itself where the run was interrupted or failed: Ctrl-C takes no minute."""
_SHOWN = 12
_ENDS = ("ready", "done", "failed")

Told = Callable[[str], None]


class TimeUp(Exception):  # noqa: N818 - no error: somebody asked for it
    """The caller's time was up; what was said until then is in the child's events."""


class EngineProcess:
    """One child. command: the interpreter and its script; log: takes what the engine prints.

    Use it as a context: leaving it ends the process and all that it has started.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        stop: Callable[[], bool] | None = None,
        on_stage: Told | None = None,
        start_seconds: float = START_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.command, self.log = list(command), log
        self.events: list[Event] = []
        self._environment = {**os.environ, **(environment or {})}
        self._stop, self._on_stage, self._clock = stop, on_stage, clock
        self._start_seconds, self._silent_seconds = start_seconds, silent_seconds
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._kept: Kept | None = None
        self.hello: Hello | None = None

    def __enter__(self) -> EngineProcess:
        try:
            with self.log.open("wb") as errors:
                self._kept = Kept(
                    self.command,
                    self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
        except OSError as error:
            raise CannotRunHere(
                "no-engine",
                f"the engine's interpreter does not start: {error}",
                help="name one that has the engine: --engine-python /path/to/venv/bin/python",
            ) from error
        threading.Thread(target=self._read, daemon=True, name="kvplan-engine").start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.end(_GRACE_SECONDS if kind is None else _HURRY_SECONDS)

    def greet(self) -> Hello:
        """The installed release. Raises CannotRunHere(no-engine) where it cannot be imported."""
        event = self._next(self._start_seconds, until=("hello", "failed"))
        if event["event"] == "failed":
            raise self._no_engine(failure_of(event))
        self.hello = hello_of(event)
        return self.hello

    def ask(
        self,
        question: Event,
        then: Callable[[Measured], Event | None] | None = None,
    ) -> Measured:
        """Send the question; everything that the engine measured, also where it failed on the way.

        then: answers the child where it asks for more, from what it has measured (None: nothing more).
        Raises CannotRunHere(engine-crashed | engine-silent | engine-failed), TimeUp.
        """
        assert self.hello is not None
        self._send(question)
        while (event := self._next(self._silent_seconds, until=_ENDS))["event"] == "ready":
            self._send(None if then is None else then(self.measured()))
        if event["event"] == "done":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running.wait(_GRACE_SECONDS)
        return self.measured()

    def measured(self) -> Measured:
        """The measurements received so far."""
        assert self.hello is not None
        return measured_of(self.hello, self.events)

    def end(self, seconds: float = _GRACE_SECONDS) -> None:
        """Ask it to end, then make it, with every process that it started."""
        kept = self._kept
        if kept is None:
            return
        kept.ask_to_end(seconds)
        kept.end()
        for stream in (kept.process.stdin, kept.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()
        self._kept = None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._kept is not None
        return self._kept.process

    def tail(self) -> tuple[str, ...]:
        """The last lines that the engine printed."""
        return tail_of(self.log)

    def _send(self, question: Event | None) -> None:
        process = self._running
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._crashed() from error

    def _next(self, seconds: float, *, until: tuple[str, ...]) -> Event:
        """Events are kept until one of these comes; seconds: the longest silence before it."""
        heard = self._clock()
        while True:
            if self._stop is not None and self._stop():
                raise TimeUp
            try:
                line = self._lines.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self._clock() - heard > seconds:
                    raise self._silent(seconds) from None
                continue
            if line is None:
                raise self._crashed()
            event = parse_line(line)
            if event is None:
                continue
            heard = self._clock()
            self.events.append(event)
            if event["event"] == "stage" and self._on_stage is not None:
                self._on_stage(str(event.get("name")))
            if event["event"] in until:
                return event

    def _read(self) -> None:
        process = self._running
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while line := process.stdout.readline(MAX_LINE):
                self._lines.put(line)
        self._lines.put(None)

    @property
    def _stage(self) -> str:
        names = [str(event.get("name")) for event in self.events if event["event"] == "stage"]
        return names[-1] if names else "start"

    def _crashed(self) -> CannotRunHere:
        process = self._running
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        code = process.returncode
        how = "without a word" if code is None else f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by {_signal_name(-code)}"
        return CannotRunHere(
            "engine-crashed",
            f"the engine's process ended {how} in the stage `{self._stage}`: nothing is proved",
            detail=self.tail(),
            help="out of host memory ends a process by SIGKILL: --layers N builds fewer layers"
            if code == -signal.SIGKILL
            else (),
        )

    def _silent(self, seconds: float) -> CannotRunHere:
        return CannotRunHere(
            "engine-silent",
            f"the engine said nothing for {seconds:.0f} s in the stage `{self._stage}`: it was ended",
            detail=self.tail(),
        )

    def _no_engine(self, failure: Failure) -> CannotRunHere:
        return CannotRunHere(
            "no-engine",
            f"{self.command[-1]} cannot be imported by {self.command[0]}: {failure.type}: {failure.message}",
            help=(
                "name the interpreter that has it: --engine-python /path/to/venv/bin/python",
                "without --with, kvplan allocates the predicted cache itself",
            ),
        )


def tail_of(log: Path) -> tuple[str, ...]:
    """The last lines of a log that say something."""
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines()
        return tuple(line[:200] for line in lines if line.strip())[-_SHOWN:]
    return ()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
