"""Files that commands write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kvplan.errors import KvplanError


def write_whole(path: Path, text: str) -> None:
    """Write a file, or what it was before, as a whole or not at all. Raises KvplanError(cannot-write)."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise KvplanError("cannot-write", f"{path} cannot be written: {error.strerror or error}") from None


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet and its folder. Raises KvplanError(file-exists | cannot-write)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        raise KvplanError(
            "file-exists", f"{path} exists already", help="name another file, or remove it first"
        ) from None
    except OSError as error:
        raise KvplanError("cannot-write", f"{path} cannot be written: {error.strerror or error}") from None
