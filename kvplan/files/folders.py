"""Looking through folders: bounded, in order, once where links lead back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kvplan.errors import KvplanError

MAX_FILES = 100_000


def is_folder(path: Path) -> bool:
    """Whether a name leads to a folder; a name that no file can have does not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # longer than a name may be, a NUL in it
        return False


def is_file(path: Path) -> bool:
    """Whether a name leads to a regular file; a name that no file can have does not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is something of that name; of a name that no file can have there is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def files_below(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """The regular files with one of the suffixes (lower case) below a folder, unsorted; nothing hidden.

    A folder that a link leads back to is read once; one that cannot be read is passed over, but the first.
    Raises KvplanError(too-many-files | unreadable-file).
    """
    seen: set[tuple[int, int]] = set()
    waiting = [path]
    looked = 0
    while waiting:
        folder = waiting.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if folder == path:
                raise KvplanError("unreadable-file", f"cannot read {path}: {error.strerror}") from None
            continue
        for entry in listed:
            looked += 1
            if looked > MAX_FILES:
                raise KvplanError(
                    "too-many-files", f"more than {MAX_FILES:,} files in {path}", help="name a folder inside"
                )
            if entry.name.startswith("."):
                continue
            if _is(entry, "dir"):
                waiting.append(folder / entry.name)
            elif entry.name.lower().endswith(suffixes) and _is(entry, "file"):
                yield folder / entry.name


def _is(entry: os.DirEntry[str], what: str) -> bool:
    try:
        return entry.is_dir() if what == "dir" else entry.is_file()
    except OSError:  # a link in a circle
        return False
