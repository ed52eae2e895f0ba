"""Files that kvplan writes: a regular file as a whole or not at all, anything else written through.

A name is resolved first: a link stays a link, and what it leads to is written. A device, a pipe or a stream
(``/dev/null``, ``/dev/stdout``, a FIFO) is never replaced.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.masking import hidden

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_STREAM = regex(r"/(?:dev|proc/self)/fd/([0-9]{1,6})")
_MODE = 0o644


def write_whole(path: Path, content: str | bytes, *, folders: bool = False) -> None:
    """Put the content in its place in one step: whoever reads sees the old file or the new one.

    A text is written without the run's secrets. folders: make the folder where it is missing. Raises
    KvplanError(cannot-write).
    """
    data = hidden(content).encode() if isinstance(content, str) else content
    try:
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        stream = _stream(path)
        if stream is not None:
            _pour(os.dup(stream), data)
        elif (mode := _mode(path)) is None or stat.S_ISREG(mode):
            _replace(Path(os.path.realpath(path)), data, _MODE if mode is None else stat.S_IMODE(mode))
        else:
            _pour(os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0)), data)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name, a character that it cannot hold
        raise cannot_write(path, error) from error


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet and its folder; a device or a pipe is written through.

    Raises KvplanError(file-exists | cannot-write).
    """
    try:
        mode = _mode(path)
        through = _stream(path) is not None or (mode is not None and not stat.S_ISREG(mode))
        if not through:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("x").close()
    except FileExistsError:
        raise KvplanError(
            "file-exists", f"{path} exists already", help="name another file, or remove it first"
        ) from None
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    try:
        write_whole(path, text)
    except KvplanError:
        if not through:
            path.unlink(missing_ok=True)
        raise


def cannot_write(path: Path, error: OSError | ValueError) -> KvplanError:
    """Why a file was not written."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return KvplanError("cannot-write", f"{path} cannot be written: {why}")


def _stream(path: Path) -> int | None:
    """The open stream that a name stands for: opened anew, a file behind it would be cut off."""
    name = path.as_posix()
    match = _STREAM.fullmatch(name)
    return int(match[1]) if match else _STREAMS.get(name)


def _mode(path: Path) -> int | None:
    """The mode of what the name leads to, or None where that does not exist."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _pour(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


def _replace(path: Path, data: bytes, mode: int) -> None:
    part = path.with_name(f".kvplan-{secrets.token_hex(6)}.part")
    try:
        _write_part(part, data, mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_part(path: Path, data: bytes, mode: int) -> None:
    """A file that has its name only once it is whole, where the system knows files without one (Linux)."""
    try:
        number = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, mode)
    except (AttributeError, OSError):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            _finish(stream.fileno(), data, mode)
        return
    with os.fdopen(number, "wb") as stream:
        _finish(number, data, mode)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            # With a folder's number Python asks for the link itself to be followed, as it must be here.
            os.link(f"/proc/self/fd/{number}", path.name, dst_dir_fd=folder)
        finally:
            os.close(folder)


def _finish(number: int, data: bytes, mode: int) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]
    if hasattr(os, "fchmod"):
        os.fchmod(number, mode)
    os.fsync(number)
