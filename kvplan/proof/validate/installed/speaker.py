"""The child's side of the protocol: one JSON object a line, on the output that the process was started with.

Everything else that is printed (logs of the engine, of its libraries) goes to the error output, so that no
line is broken by another. Standard library only: it runs in the engine's interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

_KEPT = 40
"""Lines of a traceback that are sent."""


class Speaker:
    """Says what happens. stage: what is being done, for an error's sake."""

    def __init__(self, *, output: int = 1, errors: int = 2) -> None:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(output), "w", encoding="utf-8")
        if output != errors:
            os.dup2(errors, output)
        self.stage = "start"

    def say(self, event: str, **values: object) -> None:
        self._out.write(json.dumps({"event": event, **values}, allow_nan=False) + "\n")
        self._out.flush()

    def begin(self, stage: str) -> None:
        """The next stage: what fails from now on failed in it."""
        self.stage = stage
        self.say("stage", name=stage)

    def answered(self) -> dict[str, Any] | None:
        """Say that an answer is waited for, and wait for it; None: there is none."""
        self.say("ready")
        answer = json.loads(sys.stdin.readline() or "null")
        return answer if isinstance(answer, dict) else None

    def failed(self, error: BaseException) -> None:
        """The error that ends the run, with the last lines of its traceback."""
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
        self.say(
            "failed",
            stage=self.stage,
            type=type(error).__name__,
            message=str(error)[:4000],
            traceback=lines[-_KEPT:],
        )
