"""What goes to the user: colour or none, UTF-8 or ASCII, a pipe that closes early."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, TextIO

from kvplan.errors import KvplanError
from kvplan.report.layout import Screen, plain, printable, to_ascii

COLOR_WORDS = ("auto", "always", "never")
_STYLES: dict[str, dict[str, Any]] = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "good": {"fg": "green", "bold": True},
    "bad": {"fg": "red", "bold": True},
    "warn": {"fg": "yellow"},
}


def wants_color(choice: str, stream: TextIO | None, environment: Mapping[str, str] | None = None) -> bool:
    """``--color`` first, then NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal."""
    environment = os.environ if environment is None else environment
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    force = environment.get("FORCE_COLOR")
    if force is not None and force != "":
        return force != "0"
    return stream is not None and not stream.closed and stream.isatty() and environment.get("TERM") != "dumb"


def render(screen: Screen, *, color: bool) -> str:
    """The screen as text; with colour the same text with escapes around the styled pieces."""
    if not color:
        return plain(screen)
    import typer

    rows = []
    for row in screen:
        pieces = [piece._replace(text=printable(piece.text)) for piece in row]
        text = "".join(
            typer.style(piece.text, **_STYLES[piece.style])
            if piece.style and piece.text.strip()
            else piece.text
            for piece in pieces
        )
        rows.append(text.rstrip() + "\n")
    return "".join(rows)


def write(text: str, stream: TextIO | None) -> None:
    """Write and flush. ASCII where the stream is not UTF-8; a reader that has gone away is not an error.

    Raises KvplanError(cannot-write) where the stream is closed, or the disk behind it is full.
    """
    if stream is None or stream.closed:
        raise KvplanError("cannot-write", "the answer cannot be written: standard output is closed")
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    if not encoding.startswith("utf"):
        text = to_ascii(text)
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)
    except OSError as error:
        silence(stream)
        raise KvplanError(
            "cannot-write", f"the answer cannot be written: {error.strerror or error}"
        ) from error


def write_error(text: str, stream: TextIO | None) -> None:
    """Write where errors go; where nothing can be written, nobody can be told."""
    with contextlib.suppress(KvplanError):
        write(text, stream)


def silence(stream: TextIO) -> None:
    """Point the stream's file at nothing, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())


def color_choice(arguments: list[str]) -> str:
    """The ``--color`` of a command line that may not even parse, for errors."""
    for at, argument in enumerate(arguments):
        if argument == "--color" and at + 1 < len(arguments):
            argument = f"--color={arguments[at + 1]}"
        if argument.startswith("--color=") and argument[8:] in COLOR_WORDS:
            return argument[8:]
    return "auto"
