"""A shell text as the tree of its grammar (tree-sitter-bash)."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING

from kvplan.files.launch.unknown import as_written, with_placeholders
from kvplan.later import regex

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_WORD = r"[A-Za-z_]\w*\+?=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|\"'()#<>\\]*)"
_ASSIGNMENTS = regex(rf"^([ \t]*{_WORD}(?:[ \t]+{_WORD})+)[ \t]*(?=$|#)", re.MULTILINE | re.ASCII)
"""The grammar takes the line below such a line for its command."""


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    """The tree of a text."""
    text = text.replace("\r\n", "\n").replace("\0", " ")
    text = with_placeholders(text)
    text = _ASSIGNMENTS.sub(r"\1;", text)
    return _parser().parse(text.encode("utf-8", "replace")).root_node


_PLAIN = regex(r"(?:[\w./:@%+=,^ \t-]|'[^'\n]*'|\"[^\"\\$`!\n]*\")+", re.ASCII)
_KEYWORDS = frozenset(
    ("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
     "select", "function", "time", "coproc", "declare", "typeset", "export", "readonly", "local", "unset")
)  # fmt: skip


def plain_words(text: str) -> list[str] | None:
    """The words of a text that is one command without any shell in it: it needs no grammar, which the page
    has none of. None for every other text."""
    line = text.replace("\r\n", "\n").replace("\\\n", " ").strip()
    if not _PLAIN.fullmatch(line) or with_placeholders(line) != line:
        return None
    words = shlex.split(line)
    return None if not words or "=" in words[0] or words[0] in _KEYWORDS else words


def text_of(node: Node) -> str:
    """The source of a node."""
    return plain(node.text or b"")


def plain(source: bytes) -> str:
    """Source with the signs of placeholders as they were written."""
    return as_written(source.decode("utf-8", "replace"))


def named(node: Node) -> list[Node]:
    """The children that are no punctuation and no comment."""
    return [one for one in node.named_children if one.type != "comment"]


def broken_lines(root: Node) -> list[int]:
    """The lines at which the grammar reads no shell."""
    if not root.has_error:
        return []
    found, left = [], [root]
    while left:
        node = left.pop()
        if node.type == "ERROR" or node.is_missing:
            found.append(node.start_point[0] + 1)
        elif node.has_error:
            left += node.children
    return sorted(set(found))
