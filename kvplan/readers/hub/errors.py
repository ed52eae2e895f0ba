"""What huggingface_hub raises, in kvplan's words."""

from __future__ import annotations

from typing import Any

from kvplan.errors import CannotRunHere, KvplanError, did_you_mean
from kvplan.record import record

# Packages whose exceptions mean "the network": what huggingface_hub has used to speak HTTP.
_TRANSPORTS = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")


@record()
class Repository:
    """Where to ask. ``endpoint`` None: as huggingface_hub is set up."""

    id: str
    revision: str | None
    endpoint: str | None

    def path(self, hub: Any) -> str:
        """The repository's page, for people."""
        return f"{(self.endpoint or hub.constants.ENDPOINT).rstrip('/')}/{self.id}"


def explained(hub: Any, repository: Repository, file: str, error: Exception) -> KvplanError:
    """The library's exception in kvplan's words. An exception that is none of its kinds is raised again."""
    kinds = hub.errors
    if isinstance(error, kinds.GatedRepoError):
        return CannotRunHere(
            "gated-model",
            f"{repository.id} is gated: its owner asks you to accept terms first",
            help=(
                f"accept them at {repository.path(hub)}",
                "then log in (`hf auth login`, formerly `huggingface-cli login`) or set HF_TOKEN",
            ),
        )
    if isinstance(error, kinds.RepositoryNotFoundError):
        near = _near(repository.id)
        return KvplanError(
            "unknown-model",
            f"the hub has no model {repository.id}, or it is private",
            help=(
                *((f"did you mean {near}? (it has a card: no network is needed)",) if near else ()),
                "a private model needs HF_TOKEN or `hf auth login`",
            ),
        )
    if isinstance(error, kinds.RevisionNotFoundError):
        return KvplanError("unknown-revision", f"{repository.id} has no revision {repository.revision}")
    if isinstance(error, kinds.LocalEntryNotFoundError):
        return _no_network(repository, hub, error.__cause__ or error)
    if isinstance(error, kinds.EntryNotFoundError):
        return KvplanError(
            "no-config",
            f"{repository.id} has no {file}",
            help="a repository of GGUF files or of an adapter has none: give the model it was made from",
        )
    if isinstance(error, kinds.HfHubHTTPError):
        return _refused(repository, getattr(getattr(error, "response", None), "status_code", None))
    if isinstance(error, kinds.OfflineModeIsEnabled) or _is_network(error):
        return _no_network(repository, hub, error)
    if isinstance(error, OSError):
        return CannotRunHere(
            "cache-error",
            f"the cache of huggingface_hub cannot be used: {error.strerror or error}",
            help="set HF_HOME to a folder that can be written",
        )
    raise error


def _refused(repository: Repository, status: int | None) -> KvplanError:
    if status in (401, 403):
        return CannotRunHere(
            "hub-refused",
            f"the hub refuses {repository.id} (HTTP {status}): it wants a token that has the right",
            help="check HF_TOKEN, or log in again with `hf auth login`",
        )
    hint = "it limits how often you may ask: try again later" if status == 429 else "try again later"
    return CannotRunHere("hub-unavailable", f"the hub answers with HTTP {status}", help=hint)


def _no_network(repository: Repository, hub: Any, error: BaseException) -> KvplanError:
    text = " ".join(str(error).split()) or type(error).__name__
    return CannotRunHere(
        "no-network",
        f"{repository.path(hub)} cannot be reached",
        detail=text[:160],
        help=(
            "check the network, HTTPS_PROXY and HF_ENDPOINT",
            "without a network: a model with a card (`kvplan models`), or the path of a config.json",
        ),
    )


def _is_network(error: Exception) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return any(kind.__module__.partition(".")[0] in _TRANSPORTS for kind in type(error).__mro__)


def _near(name: str) -> str | None:
    """The card most like the name."""
    from kvplan.readers.cards.find import list_names

    try:
        names = [entry for entry in list_names() if "/" in entry]
    except KvplanError:
        return None
    return did_you_mean(name, names)
