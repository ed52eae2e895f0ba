"""Requests of one shape at a server, all at once, and what the server says of itself meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

from kvplan.engines.observed.page import LiveSample
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.fetch import MAX_BODY_BYTES, Endpoint, parse_endpoint
from kvplan.files.servers.metrics import sample
from kvplan.proof.validate.installed.process import TimeUp
from kvplan.record import record

MOST = 512
"""Requests that are sent at a time: each has a thread."""
_LOOK_SECONDS = 0.1
_IDLE_SECONDS = 5.0
"""For so long a server that has answered everything may still show the last requests as running."""
_DIGITS = 200
"""Tokens that a prompt may begin with: more than the special ones, fewer than any vocabulary."""
_FIRST = 8
_SAID = 200
"""Letters of a server's refusal that are shown."""
_OK = 200
_ENOUGH_LOOKS, _ENOUGH_TURNS = 2, 3
"""A request waits, and is not just about to begin, where two looks in a row show it, for three times as long
as each request before it took to begin."""


@record()
class Shape:
    """How many requests, and how many tokens the prompt and the answer of each have."""

    count: int
    prompt: int
    answer: int


@record()
class Look:
    """A moment of the load, seconds after its begin."""

    at: float
    sample: LiveSample


@record()
class Served:
    """sent, answered: requests; wrong: answers with another number of tokens than asked for; failed: why, of
    the first that was not answered, and said: the server's words. preemptions: over the run. looks: what the
    metrics showed meanwhile."""

    sent: int
    answered: int
    wrong: int
    preemptions: int | None
    looks: tuple[Look, ...]
    failed: str | None = None
    said: str = ""

    def most(self, name: str) -> Any:
        """The peak of a figure of `LiveSample`; None where it was not said."""
        values = [getattr(one.sample, name) for one in self.looks]
        return max((value for value in values if value is not None), default=None)

    @property
    def running_peak(self) -> int | None:
        found: int | None = self.most("running")
        return found

    @property
    def usage_peak(self) -> Fraction | None:
        found: Fraction | None = self.most("usage")
        return found

    @property
    def beside(self) -> bool:
        """Whether requests of others were seen: more at once than were sent."""
        return any((one.sample.running or 0) + (one.sample.waiting or 0) > self.sent for one in self.looks)

    @property
    def together(self) -> bool:
        """Whether all that were sent were seen running at one moment, and none had to be thrown out."""
        return self.running_peak == self.sent and not self.beside and not self.preemptions

    def waits(self, ran: int, begun: float) -> bool:
        """Whether only `ran` ran while the others waited, none answered yet, for longer than each took to
        begin (begun: seconds), or one was thrown out again."""
        if self.beside:
            return False
        if self.preemptions:
            return True
        stood = [
            one.at
            for one in self.looks
            if one.sample.running == ran and (one.sample.waiting or 0) == self.sent - ran
        ]
        held = len(stood) >= _ENOUGH_LOOKS and stood[-1] - stood[0] >= _ENOUGH_TURNS * begun
        return held and self.running_peak == ran

    @property
    def turn(self) -> float:
        """Seconds that each request took to begin: until as many ran as ever did, by how many those were."""
        peak = self.running_peak
        first = next((one.at for one in self.looks if peak and one.sample.running == peak), 0.0)
        return first / peak if peak else 0.0


def drive(
    url: str,
    model: str,
    shape: Shape,
    *,
    token: str | None = None,
    first: int = 0,
    seconds: float = 3600.0,
    stop: Callable[[], bool] | None = None,
    look: Callable[[str], LiveSample] | None = None,
) -> Served:
    """Send all requests at once to the server of the URL alone, and wait for them.

    Prompts are token numbers, each begins as no other does (first: the number of the first one), and every
    answer is as long as it may be. token: a bearer token. What is left open when it ends is closed, so that
    the server drops it. Raises TimeUp, CannotRunHere(server-in-use), KvplanError where no metrics are shown.
    """
    look = look or (lambda url: sample(url, token=token))
    before = _idle(url, look)
    asks = _Asks(parse_endpoint(url, token=token), model, shape, seconds)
    seen: list[Look] = []
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(url, look, seen, over), daemon=True, name="kvplan-watch")
    watcher.start()
    pool = ThreadPoolExecutor(max(1, min(shape.count, MOST)), thread_name_prefix="kvplan-load")
    try:
        tasks = [pool.submit(asks.one, first + number) for number in range(shape.count)]
        while not all(task.done() for task in tasks):
            if stop is not None and stop():
                raise TimeUp
            over.wait(_LOOK_SECONDS)
    finally:
        asks.close()
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        watcher.join(5)
    after = look(url)
    results = [task.result() for task in tasks]
    errors = [one for one in results if isinstance(one, _Failed)]
    told = [one for one in results if not isinstance(one, _Failed)]
    return Served(
        shape.count,
        len(told),
        sum(one != (shape.prompt, shape.answer) for one in told),
        after.preemptions_since(before),
        tuple(seen),
        errors[0].why if errors else None,
        errors[0].said if errors else "",
    )


def _idle(url: str, look: Callable[[str], LiveSample]) -> LiveSample:
    """The metrics of a server without requests. Raises CannotRunHere(server-in-use)."""
    ends = time.monotonic() + _IDLE_SECONDS
    while (now := look(url)).running or now.waiting:
        if time.monotonic() > ends:
            raise CannotRunHere(
                "server-in-use",
                f"the server runs {now.running or 0:,} requests of others, and {now.waiting or 0:,} wait",
                help="send the load while nobody else sends any",
            )
        time.sleep(_LOOK_SECONDS)
    return now


def _watch(url: str, look: Callable[[str], LiveSample], seen: list[Look], over: threading.Event) -> None:
    begun = time.monotonic()
    while not over.is_set():
        with contextlib.suppress(KvplanError):
            at = time.monotonic() - begun
            seen.append(Look(at, look(url)))
        over.wait(_LOOK_SECONDS)


def prompt_of(number: int, tokens: int) -> list[int]:
    """The prompt of one request: its number in digits first, so that no two share a block."""
    digits = [2 + number // _DIGITS**place % _DIGITS for place in range(_FIRST)]
    return (digits + [2] * tokens)[:tokens]


@record()
class _Failed:
    why: str
    said: str = ""


class _Asks:
    """Requests of one shape to one server: no proxy, no redirect, and all of them can be dropped."""

    def __init__(self, endpoint: Endpoint, model: str, shape: Shape, seconds: float) -> None:
        self._to, self._model, self._shape, self._seconds = endpoint, model, shape, seconds
        self._open: set[http.client.HTTPConnection] = set()
        self._closed = False

    def one(self, number: int) -> tuple[int, int] | _Failed:
        """Tokens of the prompt and of the answer as the server counted them, or why there is none."""
        to = self._to
        kind = http.client.HTTPSConnection if to.scheme == "https" else http.client.HTTPConnection
        connection = kind(to.host, to.port, timeout=self._seconds)
        self._open.add(connection)
        try:
            return self._answer(connection, number)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as error:
            return _Failed(type(error).__name__, str(error)[:_SAID])
        finally:
            self._open.discard(connection)
            connection.close()

    def _answer(self, connection: http.client.HTTPConnection, number: int) -> tuple[int, int] | _Failed:
        shape = self._shape
        body = {
            "model": self._model, "prompt": prompt_of(number, shape.prompt), "max_tokens": shape.answer,
            "temperature": 0, "ignore_eos": True,
        }  # fmt: skip
        headers = {"Content-Type": "application/json"}
        if self._to.authorization is not None:
            headers["Authorization"] = self._to.authorization
        if self._closed:
            return _Failed("not sent")
        connection.request("POST", f"{self._to.prefix}/v1/completions", json.dumps(body), headers)
        answered = connection.getresponse()
        told = answered.read(MAX_BODY_BYTES)
        if answered.status != _OK:
            return _Failed(f"status {answered.status}", told[:_SAID].decode("utf-8", "replace"))
        usage: dict[str, Any] = json.loads(told)["usage"]
        return int(usage["prompt_tokens"]), int(usage["completion_tokens"])

    def close(self) -> None:
        """Drop what is not answered: a server ends the requests of a client that has gone."""
        self._closed = True
        for connection in tuple(self._open):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
