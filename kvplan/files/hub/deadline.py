"""A time by which an answer must be whole, whatever a server does meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Deadline:
    """So many seconds from now. `guard` closes sockets when they are over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, at least a millisecond: a timeout of 0 means something else to a socket."""
        return max(self._end - time.monotonic(), 0.001)

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end

    @contextlib.contextmanager
    def guard(self) -> Iterator[Callable[[socket.socket], None]]:
        """A function that takes the sockets to be closed in time.

        A timeout of the socket bounds each read only: a server that sends a byte a second would never time
        out.
        """
        watched: list[socket.socket] = []
        closed = threading.Event()

        def expire() -> None:
            closed.set()
            for connected in watched:
                _cut(connected)

        def watch(connected: socket.socket) -> None:
            watched.append(connected)
            if closed.is_set():
                raise TimeoutError

        timer = threading.Timer(self.left, expire)
        timer.daemon = True
        timer.start()
        try:
            yield watch
        finally:
            timer.cancel()


def _cut(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        connected.close()


def each(call: Callable[[Item], Answer], items: Sequence[Item], *, workers: int) -> list[Answer]:
    """call for every item, several at a time; the answers in the items' order.

    The threads are daemons, unlike those of `concurrent.futures`: the process ends without them. The first
    exception is raised, and what has not begun is left undone.
    """
    answers: dict[int, Answer] = {}
    errors: list[BaseException] = []
    waiting = iter(range(len(items)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(waiting, None)
            if number is None or errors:
                return
            try:
                answers[number] = call(items[number])
            except BaseException as error:  # handed to the caller's thread
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [answers[number] for number in range(len(items))]
