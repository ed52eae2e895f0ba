"""Files and parts of files over HTTP: never more than was asked for, and never later than the deadline.

Standard library only. Credentials are sent to the host they are meant for and to no other: hubs answer with
a redirect to a storage host, and that one's address carries its own signature.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.record import record, replace

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TIMEOUT_SECONDS = 10
TOTAL_SECONDS = 60
MAX_REDIRECTS = 5
PARTIAL = 206
COMMIT_HEADER, ERROR_HEADER = "X-Repo-Commit", "X-Error-Code"
_BLOCK = 1 << 16

Watch = Callable[[socket.socket], None]


@record()
class Reply:
    """status; the body (none of an error, nor where it would be too long); length: what the server stated.

    commit and error: the hub's headers X-Repo-Commit (of the first answer that has it) and X-Error-Code.
    """

    status: int
    body: bytes
    length: int | None = None
    commit: str | None = None
    error: str | None = None


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over http(s) only, not from https to http, and leaves credentials behind."""

    max_redirections = MAX_REDIRECTS

    def __init__(self) -> None:
        self.commit: str | None = None

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise urllib.error.HTTPError(
                req.full_url, code, "redirect to another kind of address", headers, fp
            )
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        self.commit = self.commit or headers.get(COMMIT_HEADER)
        authorization = req.unredirected_hdrs.get("Authorization")
        if made is not None and authorization and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            made.add_unredirected_header("Authorization", authorization)
        return made


def ask(
    url: str, limit: int, deadline: Deadline, *, token: str | None = None, start: int | None = None
) -> Reply:
    """One GET: at most ``limit`` bytes, from ``start`` where that is given (a Range request).

    A whole file that says it is longer is not read; what the hub refuses is a reply with its status. Raises
    CannotRunHere(no-network), KvplanError(bad-url).
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise KvplanError("bad-url", f"{url[:120]} is not an http address")
    headers = {"Accept-Encoding": "identity"}
    if start is not None:
        headers["Range"] = f"bytes={start}-{start + limit - 1}"
    request = urllib.request.Request(url, headers=headers)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    redirects = _CarefulRedirects()
    try:
        with deadline.guard() as watch:
            opener = urllib.request.build_opener(redirects, _Http(watch), _Https(watch))
            with opener.open(request, timeout=min(TIMEOUT_SECONDS, deadline.left)) as answer:
                reply = _reply(answer, answer.status, redirects.commit)
                if start is None and (reply.length or 0) > limit:
                    return reply
                return replace(reply, body=_body(answer, limit, deadline))
    except urllib.error.HTTPError as error:
        with error:
            return _reply(error, error.code, redirects.commit)
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        late = f"no answer within {deadline.seconds:g} seconds" if deadline.expired else str(error)
        raise CannotRunHere(
            "no-network",
            f"{urlsplit(url).netloc.rpartition('@')[2]} cannot be reached",
            detail=" ".join(late.split())[:160] or type(error).__name__,
            help="check the network, HTTPS_PROXY and HF_ENDPOINT",
        ) from error


def read_range(
    url: str, start: int, count: int, *, token: str | None = None, deadline: Deadline | None = None
) -> bytes:
    """count bytes from start (fewer at the end of the file).

    Raises CannotRunHere(no-network | hub-refused | hub-unavailable), KvplanError(no-such-file).
    """
    reply = ask(url, count, deadline or Deadline(TOTAL_SECONDS), token=token, start=start)
    if reply.status >= http.client.BAD_REQUEST:
        raise _explained(url, reply.status)
    if reply.status != PARTIAL and start:
        raise CannotRunHere(
            "hub-unavailable", f"{urlsplit(url).netloc} does not answer requests for a part of a file"
        )
    return reply.body


def _body(answer: Any, limit: int, deadline: Deadline) -> bytes:
    body = bytearray()
    while len(body) < limit and (block := answer.read1(min(_BLOCK, limit - len(body)))):
        body += block
    if deadline.expired:
        raise TimeoutError
    if len(body) < limit and answer.length:  # what was announced and did not come
        raise http.client.IncompleteRead(bytes(body[:1]), answer.length)
    return bytes(body)


def _reply(answer: Any, status: int, commit: str | None) -> Reply:
    stated = answer.headers.get("Content-Length") or ""
    return Reply(
        status,
        b"",
        int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 20 else None,
        commit or answer.headers.get(COMMIT_HEADER),
        answer.headers.get(ERROR_HEADER),
    )


def _watched(kind: type[http.client.HTTPConnection], watch: Watch) -> Any:
    """A connection whose socket the deadline closes."""

    class Watched(kind):  # type: ignore[misc, valid-type]
        def connect(self) -> None:
            super().connect()
            watch(self.sock)

    return Watched


class _Http(urllib.request.HTTPHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._kind = _watched(http.client.HTTPConnection, watch)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__(context=_tls())
        self._kind = _watched(http.client.HTTPSConnection, watch)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req, context=_tls())


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _explained(url: str, status: int) -> KvplanError:
    place = urlsplit(url)
    if status in (401, 403):
        return CannotRunHere(
            "hub-refused",
            f"{place.netloc} refuses {place.path} (HTTP {status})",
            help="check HF_TOKEN, or accept the model's terms on its page",
        )
    if status == 404:
        return KvplanError("no-such-file", f"{place.netloc} has no {place.path}")
    return CannotRunHere(
        "hub-unavailable", f"{place.netloc} answers with HTTP {status}", help="try again later"
    )


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
