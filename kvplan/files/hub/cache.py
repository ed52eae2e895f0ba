"""The hub's cache on disk, laid out as huggingface_hub lays it out, so that each finds what the other kept.

``models--org--name/refs/<revision>`` holds a commit, ``snapshots/<commit>/<file>`` the files,
``.no_exist/<commit>/<file>`` is there where a repository is known to lack a file.
Source: huggingface/huggingface_hub docs/source/en/guides/manage-cache.md (2.4.0). Only a commit of forty
hexadecimal digits, a revision that `model.py` has checked and two file names of our own ever become a path.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.json_input import read_limited
from kvplan.files.writing import write_whole
from kvplan.record import record

_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_REF = 200


def is_commit(text: str | None) -> bool:
    """Whether it is a commit's whole name, and so fit to be part of a path."""
    return text is not None and _COMMIT.fullmatch(text) is not None


@record()
class RepositoryCache:
    """What of one repository is kept below the cache's folder."""

    folder: Path

    def commit(self, revision: str | None) -> str | None:
        """The commit that a branch, tag or commit was when it was last asked for."""
        if is_commit(revision):
            return revision
        try:
            text = read_limited(self.folder / "refs" / (revision or "main"), _MAX_REF).decode().strip()
        except (KvplanError, ValueError):
            return None
        return text if is_commit(text) else None

    def read(self, commit: str, file: str) -> bytes | None:
        """A kept file, or None where there is none. Raises KvplanError(unreadable-file | file-too-large)."""
        path = self.folder / "snapshots" / commit / file
        try:
            return read_limited(path) if path.is_file() else None
        except KvplanError as error:
            if error.code == "no-such-file":
                return None
            raise

    def lacks(self, commit: str, file: str) -> bool:
        """Whether the hub has said that the commit has no such file."""
        return (self.folder / ".no_exist" / commit / file).is_file()

    def keep(self, revision: str | None, commit: str, file: str, content: bytes | None) -> None:
        """Remember a file of a commit, or (None) that it is not there. A cache that cannot be written is
        left alone: the answer does not depend on it.
        """
        kind = ".no_exist" if content is None else "snapshots"
        path = self.folder / kind / commit / file
        try:
            if not path.exists():
                write_whole(path, content or b"", folders=True)
            if not is_commit(revision) and self.commit(revision) != commit:
                write_whole(self.folder / "refs" / (revision or "main"), commit, folders=True)
        except (KvplanError, OSError):
            pass


def cache_of(cache: Path, repository: str) -> RepositoryCache:
    """The cache of ``org/name``."""
    return RepositoryCache(cache / f"models--{repository.replace('/', '--')}")
