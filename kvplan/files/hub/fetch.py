"""A small, careful GET: http and https only, one host, a deadline for the whole answer, a limit on its size.

Nothing of the environment is used (no proxies, no netrc, no cookies); credentials are sent only where the
URL or the caller gives them, and only to that host; a redirect elsewhere is refused.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.ranged import Deadline
from kvplan.record import field, record
from kvplan.units import MIB
from kvplan.version import __version__

MAX_BODY_BYTES = 16 * MIB
MAX_REDIRECTS = 3
TIMEOUT_SECONDS = 10.0
_BLOCK = 65536
_PORTS = {"http": 80, "https": 443}


@record()
class Endpoint:
    """A server, and the path before its own ("" or "/prefix"). authorization: the header's value, never
    shown.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""
    authorization: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


@record()
class Answer:
    status: int
    body: bytes


def parse_endpoint(url: str, *, token: str | None = None) -> Endpoint:
    """The server behind a URL; ``user:password@`` or a bearer token become its Authorization header.

    A path that names one of the server's own pages (``/metrics``, ``/v1``) is cut off.
    Raises KvplanError(bad-url).
    """
    if any(ord(letter) <= ord(" ") or letter == "\x7f" for letter in url):
        raise _bad_url("it holds a blank or a control character")
    parts = _split(url)
    path = parts.path.rstrip("/")
    for page in ("/metrics", "/get_server_info", "/server_info", "/v1/models", "/v1"):
        path = path.removesuffix(page)
    credentials = None
    if token is not None:
        credentials = f"Bearer {token}"
    elif parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = "Basic " + base64.b64encode(pair.encode()).decode()
    if credentials is not None and not (credentials.isascii() and credentials.isprintable()):
        raise _bad_url("its credentials hold characters that a header cannot")
    return Endpoint(parts.scheme.lower(), str(parts.hostname), _port(parts), path, credentials)


def get(
    endpoint: Endpoint,
    path: str,
    *,
    timeout: float = TIMEOUT_SECONDS,
    limit: int = MAX_BODY_BYTES,
    elsewhere: bool = False,
) -> Answer:
    """GET a path below the endpoint. timeout: seconds for everything, redirects included.

    elsewhere: a redirect to another host is followed, over https and without credentials: for what carries a
    signature.

    Raises CannotRunHere: unreachable (no server, no answer in time, an answer cut short), redirect-refused,
    answer-too-large.
    """
    deadline = Deadline(timeout)
    place = endpoint.prefix + path
    try:
        for _ in range(MAX_REDIRECTS + 1):
            answer, location = _once(endpoint, place, deadline, limit)
            if location is None:
                return answer
            if elsewhere and (moved := _another_host(endpoint, place, location)) is not None:
                endpoint, place = moved
                continue
            place = _same_host(endpoint, place, location)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if deadline.expired or isinstance(error, TimeoutError):
            why = f"no answer within {timeout:g} seconds"
        else:
            why = _reason(error)
        raise CannotRunHere(
            "unreachable",
            f"{endpoint.shown}{path} cannot be read: {why}",
            help="is the server up, and is this its host and port?",
        ) from error
    raise CannotRunHere("redirect-refused", f"{endpoint.shown}{path} redirects without end")


def _once(endpoint: Endpoint, place: str, deadline: Deadline, limit: int) -> tuple[Answer, str | None]:
    headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": f"kvplan/{__version__}"}
    if endpoint.authorization is not None:
        headers["Authorization"] = endpoint.authorization
    connection = _connection(endpoint, deadline.left)
    try:
        with deadline.guard() as watch:
            connection.connect()
            watch(connection.sock)
            connection.request("GET", place or "/", headers=headers)
            response = connection.getresponse()
            location = (
                response.getheader("Location") if response.status in (301, 302, 303, 307, 308) else None
            )
            if location is not None:
                return Answer(response.status, b""), location
            encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
            if encoding != "identity":
                raise http.client.HTTPException(
                    f"the answer is encoded as {encoding[:40]!r}, which was not asked for"
                )
            body = bytearray()
            while block := response.read(min(_BLOCK, limit + 1 - len(body))):
                body += block
                if len(body) > limit:
                    raise CannotRunHere(
                        "answer-too-large",
                        f"{endpoint.shown}{place} sends more than {limit // MIB} MiB",
                        help="this is not what an engine's metrics look like; is it the right port?",
                    )
            if deadline.expired:
                raise TimeoutError
            if response.length:  # what was announced and did not come
                raise http.client.IncompleteRead(bytes(body[:1]), response.length)
            return Answer(response.status, bytes(body)), None
    finally:
        connection.close()


def _connection(endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
    if endpoint.scheme == "https":
        return http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=timeout, context=ssl.create_default_context()
        )
    return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)


def _another_host(endpoint: Endpoint, place: str, location: str) -> tuple[Endpoint, str] | None:
    """Where a redirect to another host leads; None: it is the same, or not one over https."""
    here = Endpoint(endpoint.scheme, endpoint.host, endpoint.port).shown
    target = urlsplit(urljoin(here + place, location))
    if target.scheme.lower() != "https" or not target.hostname:
        return None
    port = target.port or _PORTS["https"]
    if (target.hostname, port) == (endpoint.host, endpoint.port):
        return None
    return Endpoint("https", target.hostname, port), target.path + (
        f"?{target.query}" if target.query else ""
    )


def _same_host(endpoint: Endpoint, place: str, location: str) -> str:
    """The path that a redirect leads to, on the same server."""
    target = urlsplit(
        urljoin(Endpoint(endpoint.scheme, endpoint.host, endpoint.port).shown + place, location)
    )
    same = (target.scheme.lower(), target.hostname, target.port or _PORTS.get(target.scheme.lower()))
    if same != (endpoint.scheme, endpoint.host, endpoint.port):
        there = f"{target.scheme}://{target.hostname}"[:200]
        raise CannotRunHere(
            "redirect-refused",
            f"{endpoint.shown} redirects to another server, {there}",
            help="redirects are followed on one host only; give the URL of the server itself",
        )
    return target.path + (f"?{target.query}" if target.query else "")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, scheme = parts.hostname, parts.scheme.lower()
    except ValueError as error:
        raise _bad_url(str(error)) from error
    if scheme not in _PORTS:
        raise _bad_url(f"its scheme is {scheme[:20]!r}, not http or https" if scheme else "it has no scheme")
    if not host or not host.isascii():
        raise _bad_url("it names no host" if not host else "its host is not plain ASCII")
    return parts


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError as error:
        raise _bad_url("its port is not a number from 1 to 65535") from error
    if port == 0:
        raise _bad_url("its port is not a number from 1 to 65535")
    return port or _PORTS[parts.scheme.lower()]


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut short"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)[:200] or type(error).__name__


def _bad_url(why: str) -> KvplanError:
    # The URL itself is not repeated: it may hold a password.
    return KvplanError(
        "bad-url", f"the URL cannot be used: {why}", help="write, for example, http://localhost:8000"
    )
