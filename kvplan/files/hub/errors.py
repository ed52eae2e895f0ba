"""What a hub refuses, in kvplan's words."""

from __future__ import annotations

from http.client import BAD_REQUEST

from kvplan.errors import CannotRunHere, KvplanError, did_you_mean
from kvplan.files.hub.place import Hub
from kvplan.files.hub.ranged import Reply
from kvplan.record import record


@record()
class Repository:
    """Where to ask. ``endpoint`` None: as the environment says."""

    id: str
    revision: str | None
    endpoint: str | None


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
    from kvplan.files.cards.find import list_names

    try:
        names = [entry for entry in list_names() if "/" in entry]
    except KvplanError:
        return None
    return did_you_mean(name, names)
