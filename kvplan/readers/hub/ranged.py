"""Parts of files over HTTP: a range of bytes, never more than was asked for.

Standard library only. Credentials are sent to the host they are meant for and to no other: hubs answer with
a redirect to a storage host, and that one's address carries its own signature.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import IO
from urllib.parse import urlsplit

from kvplan.errors import CannotRunHere, KvplanError

TIMEOUT_SECONDS = 10
MAX_REDIRECTS = 5
PARTIAL = 206


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects over http(s) only, not from https to http, and leaves credentials behind."""

    max_redirections = MAX_REDIRECTS

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
        if made is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            made.remove_header("Authorization")
        return made


_OPENER = urllib.request.build_opener(_CarefulRedirects())


def read_range(url: str, start: int, count: int, *, token: str | None = None) -> bytes:
    """count bytes from start (fewer at the end of the file).

    Raises CannotRunHere(no-network | hub-refused | hub-unavailable), KvplanError(no-such-file).
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise KvplanError("bad-url", f"{url[:120]} is not an http address")
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-{start + count - 1}"})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
            if answer.status != PARTIAL and start:
                raise CannotRunHere(
                    "hub-unavailable", f"{urlsplit(url).netloc} does not answer requests for a part of a file"
                )
            return bytes(answer.read(count))
    except urllib.error.HTTPError as error:
        raise _explained(url, error.code) from error
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise CannotRunHere(
            "no-network",
            f"{urlsplit(url).netloc} cannot be reached",
            detail=" ".join(str(error).split())[:160],
            help="check the network, HTTPS_PROXY and HF_ENDPOINT",
        ) from error


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
