"""``hf:org/name``: the headers of a checkpoint on the Hugging Face hub, read as ranges of bytes.

Only the index and the headers are fetched, some hundred kilobytes of a checkpoint of any size.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.place import TOTAL_SECONDS, Hub, Repository, hub_of, repository_of, within
from kvplan.files.hub.ranged import Deadline, each, read_range
from kvplan.files.safetensors_header import (
    INDEX_NAME,
    MAX_HEADER,
    PREFIX,
    Headers,
    header_length,
    parse_index,
)
from kvplan.weights.stored import Checkpoint

SINGLE_NAME = "model.safetensors"
FIRST_BYTES = 100_000
"""Most headers are shorter, so that one request is enough."""
WORKERS = 8
MOST_FILES = 1_000
"""Shards that are asked for: the largest checkpoints have some 200, and each costs a request."""


def hub_checkpoint(
    name: str, revision: str | None = None, *, endpoint: str | None = None
) -> Checkpoint | None:
    """The tensors of ``org/name``, or None where the repository has no safetensors files.

    Raises KvplanError(too-many-files | bad-model-id | bad-url | bad-token | bad-safetensors),
    CannotRunHere(offline | no-network | hub-refused | hub-unavailable).
    """
    repository = repository_of(name, revision, endpoint)
    hub = hub_of(os.environ, endpoint=repository.endpoint)
    if hub.offline:
        raise CannotRunHere(
            "offline",
            f"the headers of {repository.id} are on the hub, and HF_HUB_OFFLINE keeps kvplan off the network",
            help="unset HF_HUB_OFFLINE, or give the weights of one GPU yourself: --weights 15GiB",
        )
    return within(TOTAL_SECONDS, lambda: _read(hub, repository))


Fetch = Callable[[str, int, int], bytes]


def _read(hub: Hub, repository: Repository) -> Checkpoint | None:
    deadline = Deadline(TOTAL_SECONDS)

    def fetch(file: str, start: int, count: int) -> bytes:
        url = hub.url(repository.id, file, repository.revision)
        return read_range(url, start, count, token=hub.token, deadline=deadline)

    headers, lock = Headers(), threading.Lock()

    def begin(file: str) -> tuple[str, int, bytes]:
        """The part of a header that the first request brings."""
        data = fetch(file, 0, FIRST_BYTES)
        length = header_length(data, f"{repository.id}/{file}")
        with lock:
            headers.expect(length, f"{repository.id}/{file}")  # before the rest is fetched
        return file, length, data[PREFIX : PREFIX + length]

    def finish(begun: tuple[str, int, bytes]) -> tuple[str, bytes]:
        file, length, data = begun
        missing = length - len(data)
        return file, data + fetch(file, PREFIX + len(data), missing) if missing else data

    files = _files(fetch, f"{repository.id}/{INDEX_NAME}")
    try:
        begun = each(begin, files or (SINGLE_NAME,), workers=WORKERS)
    except KvplanError as error:
        if files is None and error.code == "no-such-file":
            return None
        raise
    for file, data in each(finish, begun, workers=WORKERS):
        headers.add(data, f"{repository.id}/{file}")
    return Checkpoint(tuple(headers.tensors), f"hf:{repository.id}")


def _files(fetch: Fetch, name: str) -> tuple[str, ...] | None:
    """The files that the index names, or None where there is no index."""
    try:
        data = fetch(INDEX_NAME, 0, MAX_HEADER)
    except KvplanError as error:
        if error.code == "no-such-file":
            return None
        raise
    files = parse_index(data, name=name).files
    if len(files) > MOST_FILES:
        raise KvplanError(
            "too-many-files",
            f"{name} names {len(files):,} files; kvplan asks a hub for at most {MOST_FILES:,} headers",
            help=(
                "download the checkpoint and give its directory: its headers are read there",
                "give the weights of one GPU yourself: --weights 15GiB",
            ),
        )
    return files
