"""Which hub, with which token, with which cache: the environment as huggingface_hub reads it.

Source: huggingface/huggingface_hub src/huggingface_hub/constants.py and utils/_auth.py (2.4.0).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from kvplan.errors import KvplanError
from kvplan.record import field, record

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_MAX_TOKEN = 10_000


@record()
class Hub:
    """endpoint without a slash at its end; token None: none is sent; offline: ask nobody."""

    endpoint: str
    cache: Path
    offline: bool = False
    token: str | None = field(default=None, repr=False)

    def url(self, repository: str, file: str, revision: str | None) -> str:
        return f"{self.endpoint}/{repository}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}"

    def page(self, repository: str) -> str:
        """The repository's page, for people."""
        return f"{self.endpoint}/{repository}"


def hub_of(environment: Mapping[str, str], *, endpoint: str | None = None) -> Hub:
    """The hub that HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean.

    Raises KvplanError(bad-url).
    """
    where = (endpoint or environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    _check(where)
    home = _path(
        environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    )
    cache = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    offline = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
    return Hub(
        where,
        _path(cache) if cache else home / "hub",
        offline.upper() in _TRUE,
        _token(environment, _path(environment.get("HF_TOKEN_PATH") or str(home / "token"))),
    )


def _check(endpoint: str) -> None:
    """An address that urllib may be given. Raises KvplanError(bad-url)."""
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint:
        raise KvplanError(
            "bad-url",
            "HF_ENDPOINT is not an http address",  # not repeated: it may hold a password
            help=f"write, for example, {DEFAULT_ENDPOINT}, or leave it unset",
        )


def _path(text: str) -> Path:
    try:
        return Path(os.path.expandvars(text)).expanduser()
    except RuntimeError:  # nobody's home
        return Path(text)


def _token(environment: Mapping[str, str], path: Path) -> str | None:
    if environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in _TRUE:
        return None
    text = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN")
    if not text:
        try:
            if not path.is_file():
                return None
            with path.open(encoding="utf-8") as stream:
                text = stream.read(_MAX_TOKEN)
        except (OSError, ValueError):
            return None
    token = text.replace("\r", "").replace("\n", "").strip()
    if not token.isascii() or not token.isprintable():
        raise KvplanError("bad-token", "the hub's token (HF_TOKEN) holds characters that a header cannot")
    return token or None
