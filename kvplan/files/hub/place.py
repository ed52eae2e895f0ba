"""Which hub, with which token, with which cache: the environment as huggingface_hub reads it; its refusals.

Source: huggingface/huggingface_hub src/huggingface_hub/constants.py and utils/_auth.py (2.4.0).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from http.client import BAD_REQUEST
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

from kvplan.errors import CannotRunHere, KvplanError, did_you_mean
from kvplan.files.cards.index import packaged_index
from kvplan.files.folders import is_file
from kvplan.files.hub.ranged import Reply
from kvplan.later import regex
from kvplan.record import field, record

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_MAX_TOKEN = 10_000
_ID = regex(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = regex(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_LONGEST_REVISION = 200
TOTAL_SECONDS = 60

Answer = TypeVar("Answer")


@record()
class Hub:
    """endpoint without a slash at its end; token None: none is sent; offline: ask nobody."""

    endpoint: str
    cache: Path
    offline: bool = False
    token: str | None = field(default=None, repr=False)

    def url(self, repository: str, file: str, revision: str | None) -> str:
        return f"{self.endpoint}/{repository}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}"

    @property
    def shown(self) -> str:
        """The endpoint for people: without a name and a password."""
        scheme, _, rest = self.endpoint.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"

    def page(self, repository: str) -> str:
        """The repository's page, for people."""
        return f"{self.shown}/{repository}"


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
            if not is_file(path):
                return None
            with path.open(encoding="utf-8") as stream:
                text = stream.read(_MAX_TOKEN)
        except (OSError, ValueError):
            return None
    token = text.replace("\r", "").replace("\n", "").strip()
    if not token.isascii() or not token.isprintable():
        raise KvplanError("bad-token", "the hub's token (HF_TOKEN) holds characters that a header cannot")
    return token or None


@record()
class Repository:
    """Where to ask. ``endpoint`` None: as the environment says."""

    id: str
    revision: str | None
    endpoint: str | None


def is_id(name: str) -> bool:
    """Whether it can be the id of a model on the hub, and so be shown and be part of a path."""
    return len(name) <= 96 and _ID.fullmatch(name) is not None and "--" not in name and ".." not in name


def repository_of(name: str, revision: str | None, endpoint: str | None) -> Repository:
    """``org/name`` or ``org/name@revision``. Raises KvplanError(bad-model-id)."""
    repository, at, written = name.partition("@")
    if at and revision is not None and revision != written:
        raise KvplanError("bad-model-id", f"two revisions are given: {written!r} and {revision!r}")
    revision = written if at else revision
    if not is_id(repository):
        raise KvplanError(
            "bad-model-id",
            f"{repository[:120]!r} is not the id of a model on the hub",
            help="write hf:org/name, for example hf:Qwen/Qwen3-8B",
        )
    if revision is not None and (
        len(revision) > _LONGEST_REVISION or not _REVISION.fullmatch(revision) or ".." in revision
    ):
        raise KvplanError(
            "bad-model-id", f"{revision[:120]!r} is not a revision: a branch, a tag or a commit"
        )
    return Repository(repository, revision, endpoint)


def within(seconds: float, call: Callable[[], Answer]) -> Answer:
    """The call's answer, or CannotRunHere(no-network) when it takes longer.

    Requests have a deadline of their own; a name that nobody resolves has none. The thread is left behind,
    which ends with the process.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="kvplan-hub")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise CannotRunHere(
            "no-network", f"the hub has not answered within {seconds:g} seconds", help="try again later"
        )
    return answers[0]


def refusal(hub: Hub, repository: Repository, file: str, reply: Reply) -> KvplanError | None:
    """Why the hub does not hand out a file, or None where it does.

    The words of X-Error-Code: huggingface/huggingface_hub utils/_http.py, hf_raise_for_status (2.4.0). Of a
    repository that is private or missing a hub says 401.
    """
    if reply.status < BAD_REQUEST:
        return None
    if reply.error == "GatedRepo":
        return CannotRunHere(
            "gated-model",
            f"{repository.id} is gated: its owner asks you to accept terms first",
            help=(
                f"accept them at {hub.page(repository.id)}",
                "then log in (`hf auth login`, formerly `huggingface-cli login`) or set HF_TOKEN",
            ),
        )
    if reply.error == "RevisionNotFound":
        return KvplanError("unknown-revision", f"{repository.id} has no revision {repository.revision}")
    if reply.error == "EntryNotFound":
        return KvplanError(
            "no-config",
            f"{repository.id} has no {file}",
            help="a repository of GGUF files or of an adapter has none: give the model it was made from",
        )
    if reply.error == "RepoNotFound" or reply.status in (401, 404):
        near = _near(repository.id)
        return KvplanError(
            "unknown-model",
            f"the hub has no model {repository.id}, or it is private",
            help=(
                *((f"did you mean {near}? (it has a card: no network is needed)",) if near else ()),
                "a private model needs HF_TOKEN or `hf auth login`",
            ),
        )
    if reply.status == 403:
        return CannotRunHere(
            "hub-refused",
            f"the hub refuses {repository.id} (HTTP {reply.status}): it wants a token that has the right",
            help="check HF_TOKEN, or log in again with `hf auth login`",
        )
    hint = "it limits how often you may ask: try again later" if reply.status == 429 else "try again later"
    return CannotRunHere("hub-unavailable", f"the hub answers with HTTP {reply.status}", help=hint)


def no_network(hub: Hub, repository: Repository, error: KvplanError) -> CannotRunHere:
    """The hub cannot be reached: why, and what answers without it."""
    return CannotRunHere(
        "no-network",
        f"{hub.page(repository.id)} cannot be reached",
        detail=error.detail,
        help=(
            "check the network, HTTPS_PROXY and HF_ENDPOINT",
            "without a network: a model with a card (`kvplan list models`), or the path of a config.json",
        ),
    )


def no_hub(hub: Hub, repository: Repository) -> CannotRunHere:
    """Something answers that is no hub: a portal that wants a login, a proxy's own page."""
    return CannotRunHere(
        "hub-unavailable",
        f"{hub.page(repository.id)} does not answer as a Hugging Face hub does",
        help="check HF_ENDPOINT, the proxy and the firewall",
    )


def _near(name: str) -> str | None:
    """The card most like the name."""
    try:
        names = [entry for entry in packaged_index()["names"] if "/" in entry]
    except KvplanError:
        return None
    return did_you_mean(name, names)
