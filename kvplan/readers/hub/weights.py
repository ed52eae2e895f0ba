"""``hf:org/name``: the headers of a checkpoint on the Hugging Face hub, read as ranges of bytes.

Only the index and the headers are fetched, some hundred kilobytes of a checkpoint of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.readers.hub.errors import Repository
from kvplan.readers.hub.model import TOTAL_SECONDS, _import_hub, _parse, _within
from kvplan.readers.hub.ranged import read_range
from kvplan.readers.safetensors_header import (
    INDEX_NAME,
    MAX_HEADER,
    PREFIX,
    header_length,
    parse_header,
    parse_index,
)
from kvplan.weights.stored import Checkpoint, Stored

SINGLE_NAME = "model.safetensors"
FIRST_BYTES = 100_000
"""Most headers are shorter, so that one request is enough."""
WORKERS = 8


def hub_checkpoint(
    name: str, revision: str | None = None, *, endpoint: str | None = None
) -> Checkpoint | None:
    """The tensors of ``org/name``, or None where the repository has no safetensors files.

    Raises KvplanError(bad-model-id | bad-safetensors), CannotRunHere(missing-extra | offline | no-network |
    hub-refused | hub-unavailable).
    """
    repository = _parse(name, revision, endpoint)
    hub = _import_hub()
    if hub.constants.HF_HUB_OFFLINE:
        raise CannotRunHere(
            "offline",
            f"the headers of {repository.id} are on the hub, and HF_HUB_OFFLINE keeps kvplan off the network",
            help="unset HF_HUB_OFFLINE, or give the weights of one GPU yourself: --weights 15GiB",
        )
    return _within(TOTAL_SECONDS, lambda: _read(hub, repository))


def _read(hub: Any, repository: Repository) -> Checkpoint | None:
    token = hub.get_token()

    def fetch(file: str, start: int, count: int) -> bytes:
        url = hub.hf_hub_url(repository.id, file, revision=repository.revision, endpoint=repository.endpoint)
        return read_range(url, start, count, token=token)

    files = _files(fetch, f"{repository.id}/{INDEX_NAME}")
    if files is None:
        try:
            tensors = _header(fetch, SINGLE_NAME, repository.id)
        except KvplanError as error:
            if error.code == "no-such-file":
                return None
            raise
        return Checkpoint(tuple(tensors), f"hf:{repository.id}")
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = list(pool.map(lambda file: _header(fetch, file, repository.id), files))
    return Checkpoint(tuple(tensor for part in parts for tensor in part), f"hf:{repository.id}")


Fetch = Callable[[str, int, int], bytes]


def _files(fetch: Fetch, name: str) -> tuple[str, ...] | None:
    """The files that the index names, or None where there is no index."""
    try:
        data = fetch(INDEX_NAME, 0, MAX_HEADER)
    except KvplanError as error:
        if error.code == "no-such-file":
            return None
        raise
    return parse_index(data, name=name).files


def _header(fetch: Fetch, file: str, repository: str) -> list[Stored]:
    name = f"{repository}/{file}"
    data = fetch(file, 0, FIRST_BYTES)
    length = header_length(data, name)
    if len(data) < PREFIX + length:
        data += fetch(file, len(data), PREFIX + length - len(data))
    return parse_header(data[PREFIX : PREFIX + length], name)
