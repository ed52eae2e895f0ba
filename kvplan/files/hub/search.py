"""Models on the hub by words: one page of ``/api/models``, the most downloaded first.

Source: huggingface/huggingface_hub src/huggingface_hub/hf_api.py, list_models (2.4.0): search, sort, limit,
expand. An answer is a stranger's: an entry without a name that can be a model's is left out, a number that
is none is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from http.client import BAD_REQUEST
from urllib.parse import urlencode

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.cards.index import key_of, packaged_index
from kvplan.files.hub.place import Hub, hub_of, is_id, within
from kvplan.files.hub.ranged import Deadline, Reply, ask
from kvplan.files.json_input import parse_json_list
from kvplan.record import record
from kvplan.units import MIB

MOST = 20
"""Models that are asked for."""
MOST_BYTES = 4 * MIB
SECONDS = 20
LONGEST = 200
_EXPANDED = ("downloads", "likes", "gated", "library_name", "safetensors")
_LARGEST = 10**18


@record()
class HubModel:
    """One model on the hub, by what its page says of it."""

    id: str
    parameters: int | None
    """numbers of its safetensors files; null where the hub has not counted them"""
    downloads: int | None
    """of the last month"""
    likes: int | None
    gated: bool
    """its owner asks to accept terms first"""
    library: str | None
    """the program that it is for"""
    has_card: bool
    """kvplan knows it by this name, without the hub"""


@record()
class Found:
    """The answer of ``kvplan list models --search WORDS --json``."""

    hub: str
    search: str
    models: tuple[HubModel, ...]


def search_hub(words: str) -> Found:
    """The models whose ids have the words. Raises KvplanError(bad-usage | bad-url | bad-token),
    CannotRunHere(offline | no-network | hub-refused | hub-unavailable)."""
    text = " ".join(words.split())
    if not text or len(text) > LONGEST or not text.isprintable():
        raise KvplanError(
            "bad-usage",
            "the hub is searched for words of a model's name",
            help="kvplan list models --search 'qwen3 8b'",
        )
    hub = hub_of(os.environ)
    if hub.offline:
        raise CannotRunHere(
            "offline",
            "the search asks the hub, and HF_HUB_OFFLINE keeps kvplan off the network",
            help=("unset HF_HUB_OFFLINE", f"kvplan list models {text}: those that kvplan knows"),
        )
    return Found(hub.shown, text, within(SECONDS, lambda: tuple(_page(hub, text))))


def _page(hub: Hub, text: str) -> Iterator[HubModel]:
    query = [("search", text), ("sort", "downloads"), ("direction", "-1"), ("limit", str(MOST))]
    query += [("expand", name) for name in _EXPANDED]
    url = f"{hub.endpoint}/api/models?{urlencode(query)}"
    try:
        reply = ask(url, MOST_BYTES + 1, Deadline(SECONDS), token=hub.token)
    except CannotRunHere as error:
        raise CannotRunHere(
            "no-network",
            f"{hub.shown} cannot be reached",
            detail=error.detail,
            help=(
                "check the network, HTTPS_PROXY and HF_ENDPOINT",
                f"kvplan list models {text}: those that kvplan knows, without a network",
            ),
        ) from error
    _check(hub, reply)
    try:
        entries = parse_json_list(reply.body, name="the hub's answer")
    except KvplanError as error:
        raise _no_hub(hub) from error
    found = [one for one in map(_model, entries[: 2 * MOST]) if one is not None]
    if entries and not found:
        raise _no_hub(hub)
    yield from found[:MOST]


def _check(hub: Hub, reply: Reply) -> None:
    """Raise where the hub does not hand out the list."""
    if reply.status in (401, 403):
        raise CannotRunHere(
            "hub-refused", f"{hub.shown} refuses the search (HTTP {reply.status})", help="check HF_TOKEN"
        )
    if reply.status >= BAD_REQUEST:
        limited = "it limits how often you may ask: " if reply.status == 429 else ""
        raise CannotRunHere(
            "hub-unavailable",
            f"{hub.shown} answers with HTTP {reply.status}",
            help=f"{limited}try again later",
        )
    if len(reply.body) > MOST_BYTES or (reply.length or 0) > MOST_BYTES:
        raise _no_hub(hub)


def _no_hub(hub: Hub) -> CannotRunHere:
    return CannotRunHere(
        "hub-unavailable",
        f"{hub.shown} does not answer as a Hugging Face hub does",
        help="check HF_ENDPOINT, the proxy and the firewall",
    )


def _model(entry: object) -> HubModel | None:
    if not isinstance(entry, Mapping):
        return None
    name = entry.get("id")
    if not isinstance(name, str) or not is_id(name):
        return None
    stored = entry.get("safetensors")
    library = entry.get("library_name")
    return HubModel(
        name,
        _number(stored.get("total")) if isinstance(stored, Mapping) else None,
        _number(entry.get("downloads")),
        _number(entry.get("likes")),
        bool(entry.get("gated")),
        library if isinstance(library, str) and library.isprintable() and len(library) <= 40 else None,
        key_of(name) in packaged_index()["names"],
    )


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST else None
