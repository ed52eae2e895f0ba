"""Output to the user: colour or none, UTF-8 or ASCII, a pipe that closes early."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from kvplan.errors import EXIT_OK, KvplanError, shortened
from kvplan.named import NamedTuple
from kvplan.report.layout import WIDTH, Screen, plain, printable, to_ascii
from kvplan.shown import SECRETS

COLOR_WORDS = ("auto", "always", "never")
_STYLES = {"bold": "bold", "dim": "dim", "good": "bold green", "bad": "bold red", "warn": "yellow"}


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


def width_of(stream: TextIO | None, environment: Mapping[str, str] | None = None) -> int:
    """Columns of a terminal; what COLUMNS says counts first, and a pipe is as wide as most terminals."""
    asked = (os.environ if environment is None else environment).get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and int(asked[:6]) > 0:
        return int(asked[:6])
    if stream is not None and not stream.closed and stream.isatty():
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or WIDTH
    return WIDTH


def render(screen: Screen, *, color: bool) -> str:
    """The screen as text; with colour the same text with rich's escapes around the styled pieces."""
    if not color:
        return plain(screen)
    from rich.style import Style

    styles = {name: Style.parse(words) for name, words in _STYLES.items()}
    rows = []
    for row in screen:
        pieces = [piece._replace(text=shortened(printable(piece.text))) for piece in row]
        text = "".join(
            styles[piece.style].render(piece.text) if piece.style and piece.text.strip() else piece.text
            for piece in pieces
        )
        rows.append(text.rstrip() + "\n")
    return "".join(rows)


def write(text: str, stream: TextIO | None) -> None:
    """Write and flush, the run's secrets masked. ASCII where the stream is not UTF-8; a reader that has gone
    away is not an error.

    Raises KvplanError(cannot-write) where the stream is closed, or the disk behind it is full.
    """
    if stream is None or stream.closed:
        raise KvplanError("cannot-write", "the answer cannot be written: standard output is closed")
    if SECRETS.get():
        from kvplan.masking import hidden  # only where a file held one

        text = hidden(text)
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


def is_watched(stream: TextIO | None) -> bool:
    """Whether somebody sees what is drawn over again on this stream."""
    return stream is not None and not stream.closed and stream.isatty() and os.environ.get("TERM") != "dumb"


class Answer(NamedTuple):
    """Exactly one of screen, text, data and stream is written; a stream's pieces as they come."""

    screen: Screen | None = None
    text: str | None = None
    data: Any = None
    code: int = EXIT_OK
    stream: Iterator[Screen | str] | None = None

    def plainly(self) -> str:
        """The screen or the text as a pipe gets it."""
        pieces = self.stream or [piece for piece in (self.screen, self.text) if piece is not None]
        return "".join(piece if isinstance(piece, str) else plain(piece) for piece in pieces)
