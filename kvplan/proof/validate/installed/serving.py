"""An engine's own server on the plan's arguments, with random weights: started, asked, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kvplan.errors import CannotRunHere
from kvplan.files.hub.fetch import get, parse_endpoint
from kvplan.proof.validate.installed.kept import Kept
from kvplan.proof.validate.installed.process import TimeUp, tail_of

NAME = "kvplan"
"""The name of the served model."""
READY_SECONDS = 1800.0
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 60.0
_HURRY_SECONDS = 2.0
"""To end by itself where the run was interrupted or failed."""
_OK = 200
_TOKENS = 256


class Server:
    """A server while it runs. url: where it listens; stopped: it ended by itself when it was asked to."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        stop: Callable[[], bool] | None = None,
        ready_seconds: float = READY_SECONDS,
        stop_seconds: float = _STOP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log, self.port = log, free_port()
        self.command = [*command, "--host", "127.0.0.1", "--port", str(self.port)]
        self.url = f"http://127.0.0.1:{self.port}"
        self.stopped: bool | None = None
        self._environment = {**os.environ, **(environment or {})}
        self._stop, self._clock = stop, clock
        self._ready_seconds, self._stop_seconds = ready_seconds, stop_seconds
        self._kept: Kept | None = None

    def __enter__(self) -> Server:
        """Start it, and wait until it answers.

        Raises CannotRunHere(no-engine | server-ended | server-silent), TimeUp.
        """
        try:
            with self.log.open("wb") as out:
                self._kept = Kept(
                    self.command,
                    self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
        except OSError as error:
            raise CannotRunHere("no-engine", f"the server does not start: {error}") from error
        try:
            self._wait()
        except BaseException:
            self.end(_HURRY_SECONDS)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.end(self._stop_seconds if kind is None else _HURRY_SECONDS)

    def _wait(self) -> None:
        kept, ends = self._kept, self._clock() + self._ready_seconds
        assert kept is not None
        endpoint = parse_endpoint(self.url)
        while self._clock() < ends:
            if self._stop is not None and self._stop():
                raise TimeUp
            if kept.code is not None:
                raise CannotRunHere(
                    "server-ended",
                    f"the engine's server ended with exit code {kept.code} before it answered",
                    detail=tail_of(self.log),
                )
            with contextlib.suppress(CannotRunHere):
                if get(endpoint, "/health", timeout=5).status == _OK:
                    return
            time.sleep(_LOOK_SECONDS)
        raise CannotRunHere(
            "server-silent",
            f"the engine's server did not answer within {self._ready_seconds:.0f} s",
            detail=tail_of(self.log),
        )

    def end(self, seconds: float) -> None:
        """SIGTERM, as a deployment does; what does not end by itself so soon is ended, with all of it."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        self.stopped = kept.code is None and kept.ask_to_end(seconds)
        kept.end()


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of 256 words: requests are sent as numbers, and answers must be written as something."""
    tokenizer: dict[str, object] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"<{one}>": one for one in range(_TOKENS)},
                  "unk_token": "<0>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    how = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<0>", "eos_token": "<1>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(how), encoding="utf-8")
