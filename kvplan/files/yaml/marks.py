"""Where each value of a YAML text stands, and how a place in it is shown to a person.

`Located` holds plain Python data beside a tree of positions with the same shape. Nothing here reads YAML and
nothing here needs a third-party package.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kvplan.errors import KvplanError, Mark
from kvplan.record import field, record

Key = str | int
Path = tuple[Key, ...]


@record()
class Span:
    """A stretch of text: lines and columns count from 0; `end` is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@record()
class Node:
    """The position of one value, and of the values inside it.

    `keys` holds the span of each key of a mapping; `text` is the scalar as it was written (None for
    collections).
    """

    span: Span
    text: str | None = None
    keys: dict[Key, Span] = field(default_factory=dict)
    children: dict[Key, Node] = field(default_factory=dict)


@lru_cache(maxsize=8)
def _lines_of(text: str) -> tuple[str, ...]:
    """Split by hand: str.splitlines also breaks at characters that YAML reads as content. Once a text: each
    of its thousands of keys asks for a line."""
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


@record()
class Source:
    """A text and the name it is known by in messages."""

    name: str
    text: str

    def place(self, span: Span) -> Mark:
        """The span as a place, with its first line."""
        from kvplan.masking import masked  # no place is asked for while cards are read

        lines = _lines_of(self.text)
        above = lines[span.line - 1] if 0 < span.line <= len(lines) else ""
        line = masked(lines[span.line], above) if span.line < len(lines) else None
        end = span.end_column if span.end_line == span.line else len(line or "")
        return Mark(self.name, span.line + 1, span.column + 1, max(end, span.column + 1) + 1, line)


@record()
class Located:
    """Plain data read from a text, with the position of every part of it.

    `data` consists of dict, list, str, int, float, bool and None only.
    """

    data: Any
    root: Node
    source: Source

    @property
    def name(self) -> str:
        return self.source.name

    def node(self, path: Sequence[Key] = ()) -> Node | None:
        """The position of the value at `path`, or None where there is no such value."""
        found: Node | None = self.root
        for part in path:
            found = found.children.get(part) if found is not None else None
        return found

    def text(self, path: Sequence[Key]) -> str | None:
        """The scalar at `path` as it was written in the file."""
        found = self.node(path)
        return found.text if found is not None else None

    def where(self, path: Sequence[Key] = (), *, at_key: bool = False) -> Mark:
        """The place of `path`.

        `at_key` points at the key instead of the value. A path that leads out of the data is shown at its
        last part that exists.
        """
        node = self.root
        span = node.span
        for index, part in enumerate(path):
            is_last = index == len(path) - 1
            key_span = node.keys.get(part)
            child = node.children.get(part)
            if child is None:
                break
            span = key_span if key_span is not None and is_last and at_key else child.span
            node = child
        return self.source.place(span)

    def error(
        self,
        code: str,
        message: str,
        path: Sequence[Key] = (),
        *,
        at_key: bool = False,
        help: str | Sequence[str] = (),  # noqa: A002 - the word that is printed
    ) -> KvplanError:
        """An error that points at `path`; the caller raises it."""
        return KvplanError(code, message, where=self.where(path, at_key=at_key), help=help)

    def mapping(self, what: str = "the file") -> dict[Key, Any]:
        """The data as a mapping.

        Raises:
            KvplanError: ``yaml-not-a-mapping``.
        """
        if isinstance(self.data, dict):
            return self.data
        got = "nothing" if self.data is None else "a list" if isinstance(self.data, list) else "one value"
        raise self.error(
            "yaml-not-a-mapping",
            f"{what} must hold `key: value` lines, and this holds {got}",
            help="write one `key: value` pair a line, beginning in the first column",
        )


def path_text(path: Sequence[Key]) -> str:
    """A path as people write it: ``layers[3].head_dim``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out
