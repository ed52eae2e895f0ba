"""Strict YAML: one meaning for every word, and a line and column for every value, so that a complaint about
it can show the line with a caret.

Refused, each with a help line: keys given twice, ``yes``/``no``/``on``/``off``, octal, hexadecimal and
base-60 numbers, dates without quotes, NaN and infinities, tags, anchors and aliases, merge keys, text that is
not UTF-8. This module does not import pydantic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from kvplan.errors import KvplanError, Mark
from kvplan.files.json_input import check_text, regular_size
from kvplan.files.yaml.marks import Key, Located, Node, Source, Span
from kvplan.files.yaml.scalars import Trap, read_plain
from kvplan.later import regex
from kvplan.units import MIB

_FOREIGN_BREAKS = "\x85\u2028\u2029"
MAX_BYTES = 8 * MIB
MAX_DEPTH = 200
MAX_NODES = 500_000
MAX_KEYS = 10_000
"""Of one mapping."""
MAX_DOCUMENTS = 1000

_SURROGATE = regex("[\ud800-\udfff]")
_CONTROL = regex("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor or turn the direction of writing."""
_LIBYAML_TOO_DEEP = "exceeded maximum nesting depth"
"""The scanner's own limit of 1,000 levels, met before any event is given (PyYAML's wheels since 6.0.4)."""
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str | bytes, *, name: str) -> Located:
    """Read one YAML document.

    Args:
        text: the document; bytes must be UTF-8 (a byte order mark is accepted).
        name: what messages call it, as a rule the path the user typed.

    Returns:
        The data with its positions. An empty text gives `data` None.

    Raises:
        KvplanError: codes ``yaml-syntax``, ``yaml-encoding``, ``yaml-duplicate-key``, ``yaml-boolean``,
            ``yaml-null``, ``yaml-number``, ``yaml-date``, ``yaml-tag``, ``yaml-alias``, ``yaml-merge-key``,
            ``yaml-key``, ``yaml-too-deep``, ``yaml-too-large``, ``yaml-documents``.
    """
    source = Source(name, _decode(text, name))
    documents = _documents(source)
    first = next(documents, None)
    if first is None:
        return Located(None, Node(Span(0, 0, 0, 0)), source)
    second = next(documents, None)
    if second is not None:
        raise second.error(
            "yaml-documents",
            f"a second document begins in {name}",
            help="put each document in a file of its own",
        )
    return first


def load_yaml_documents(text: str | bytes, *, name: str) -> list[Located]:
    """Every document of a text that has something in it, in order. At most `MAX_DOCUMENTS`.

    Raises:
        KvplanError: as `load_yaml`; ``yaml-documents`` where there are too many.
    """
    found: list[Located] = []
    for one in _documents(Source(name, _decode(text, name))):
        if one.data is None:
            continue
        if len(found) >= MAX_DOCUMENTS:
            raise one.error("yaml-documents", f"more than {MAX_DOCUMENTS:,} documents in {name}")
        found.append(one)
    return found


def load_yaml_file(path: Path | str, *, name: str | None = None) -> Located:
    """Read the YAML file at `path`; `name` is what messages call it (default: the path).

    Raises:
        KvplanError: ``unreadable-file``, ``not-a-file``, or any code of `load_yaml`.
    """
    shown = name if name is not None else str(path)
    try:
        regular_size(Path(path))
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except KvplanError as problem:
        if problem.code != "no-such-file":
            raise
        raise KvplanError("unreadable-file", f"there is no file {shown}", help="check the path") from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise KvplanError(
            "unreadable-file", f"cannot read {shown}: {reason}", help="check the path"
        ) from None
    return load_yaml(content, name=shown)


def _decode(text: str | bytes, name: str) -> str:
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as problem:
        raise KvplanError(
            "yaml-encoding",
            f"{name} holds half of a surrogate pair (character {problem.start + 1})",
            help="save the file as UTF-8",
        ) from None
    if len(raw) > MAX_BYTES:
        raise KvplanError(
            "yaml-too-large",
            f"{name} is larger than {MAX_BYTES // MIB} MiB",
            help="check that this is the right file; plans, cards and specs are a few KiB",
        )
    if isinstance(text, bytes):
        check_text(raw, name)
    try:
        decoded = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        column = problem.start - (raw.rfind(b"\n", 0, problem.start) + 1) + 1
        raise KvplanError(
            "yaml-encoding",
            f"{name} is not UTF-8: byte 0x{raw[problem.start]:02x} has no meaning here",
            where=Mark(name, line, column, column + 1),
            help="save the file as UTF-8",
        ) from None
    _refuse_foreign_breaks(decoded, name)
    return decoded


def _refuse_foreign_breaks(text: str, name: str) -> None:
    """YAML 1.1 folds NEL, LS and PS into a blank as if they were line ends; JSON and 1.2 keep them."""
    for character in _FOREIGN_BREAKS:
        at = text.find(character)
        if at >= 0:
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            raise KvplanError(
                "yaml-character",
                f"{name} holds U+{ord(character):04X}, which ends a line in YAML 1.1 only",
                where=Mark(name, line, column, column + 1),
                help='write it as an escape in a quoted text ("\\N", "\\L" or "\\P")',
            )


def _documents(source: Source) -> Iterator[Located]:
    builder = _Builder(source)
    try:
        for event in yaml.parse(source.text, Loader=_LOADER):
            if builder.take(event):
                yield Located(builder.data, builder.root, source)
                builder = _Builder(source)
    except yaml.YAMLError as problem:
        _syntax_error(source, problem)


class _Builder:
    """Turns PyYAML's events of one document (libyaml's where it is compiled in) into data and positions, in a
    loop, not by recursion: neither depth nor aliases can exhaust memory before they are refused."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.data: Any = None
        self.root = Node(Span(0, 0, 0, 0))
        self._count = 0
        # One entry for each open collection: its data, its node, and the key that waits for a value.
        self._open: list[tuple[dict[Key, Any] | list[Any], Node]] = []
        self._keys: list[tuple[Key, Span] | None] = []

    def take(self, event: yaml.Event) -> bool:
        """Add one event; True when the document is complete."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._begin({}, event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin([], event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            node = self._open.pop()[1]
            self._keys.pop()
            end = _span(event)
            whole = Span(node.span.line, node.span.column, end.end_line, end.end_column)
            node.span = whole  # type: ignore[misc]  # known only here
        elif isinstance(event, yaml.AliasEvent):
            self._fail(
                "yaml-alias",
                f"`*{event.anchor}` repeats another value; aliases are not read",
                _span(event),
                "write the value out",
            )
        return isinstance(event, yaml.DocumentEndEvent)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        span = _span(event)
        self._refuse_extras(event, span)
        text: str = event.value
        value: Any = text
        if not text.isascii() and _SURROGATE.search(text):
            # Only an escape such as "\\ud800" can bring one in; libyaml refuses it by itself.
            self._fail(
                "yaml-encoding", "half of a surrogate pair is not text", span, "write the character itself"
            )
        control = None if text.isprintable() else _CONTROL.search(text)
        if control is not None:
            self._fail(
                "yaml-character",
                f"a text with the control character U+{ord(control[0]):04X}",
                span,
                "take it out: nothing that kvplan reads has one",
            )
        if event.implicit[0]:
            if text == "<<" and self._awaits_key():
                self._fail("yaml-merge-key", "merge keys (`<<`) are not read", span, "write the keys out")
            value = read_plain(text)
            if isinstance(value, Trap):
                raise KvplanError(value.code, value.message, where=self.source.place(span), help=value.help)
        if self._awaits_key():
            self._key(value, text, span)
        else:
            self._value(value, Node(span, text))

    def _begin(self, data: dict[Key, Any] | list[Any], event: yaml.CollectionStartEvent) -> None:
        span = _span(event)
        self._refuse_extras(event, span)
        if self._awaits_key():
            self._fail("yaml-key", "a key must be text or a whole number", span, "put the key in quotes")
        if len(self._open) >= MAX_DEPTH:
            _too_deep(self.source, span)
        node = Node(span)
        self._value(data, node)
        self._open.append((data, node))
        self._keys.append(None)

    def _awaits_key(self) -> bool:
        return bool(self._open) and self._keys[-1] is None and isinstance(self._open[-1][0], dict)

    def _key(self, key: Any, text: str, span: Span) -> None:
        if isinstance(key, bool) or not isinstance(key, str | int):
            shown = text or "(nothing)"
            self._fail(
                "yaml-key",
                f"`{shown}` cannot be a key: a key must be text or a whole number",
                span,
                f'write "{text}" for the text' if text else "write the key before the colon",
            )
        node = self._open[-1][1]
        first = node.keys.get(key)
        if first is not None:
            self._fail(
                "yaml-duplicate-key",
                f"the key `{key}` is given twice (first on line {first.line + 1})",
                span,
                "keep one of the two",
            )
        if len(node.keys) >= MAX_KEYS:
            self._fail(
                "yaml-too-large",
                f"more than {MAX_KEYS:,} keys in one mapping",
                span,
                "check that this is the right file",
            )
        node.keys[key] = span
        self._keys[-1] = (key, span)

    def _value(self, value: Any, node: Node) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            self._fail(
                "yaml-too-large",
                f"more than {MAX_NODES:,} values",
                node.span,
                "check that this is the right file",
            )
        if not self._open:
            self.data, self.root = value, node
            return
        data, parent = self._open[-1]
        if isinstance(data, list):
            parent.children[len(data)] = node
            data.append(value)
            return
        waiting = self._keys[-1]
        assert waiting is not None  # the parser gives a key before each value
        parent.children[waiting[0]] = node
        data[waiting[0]] = value
        self._keys[-1] = None

    def _refuse_extras(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, span: Span) -> None:
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._fail("yaml-tag", f"the tag `{tag}` is not read", span, "remove the tag")
        if event.anchor is not None:
            self._fail(
                "yaml-alias",
                f"the anchor `&{event.anchor}` is not read",
                span,
                "remove it and write values out",
            )

    def _fail(self, code: str, message: str, span: Span, help_line: str) -> NoReturn:
        raise KvplanError(code, message, where=self.source.place(span), help=help_line)


def _span(event: yaml.Event) -> Span:
    start, end = event.start_mark, event.end_mark
    assert start is not None  # the stubs allow for events made by hand
    assert end is not None
    return Span(start.line, start.column, end.line, end.column)


def _too_deep(source: Source, span: Span) -> NoReturn:
    raise KvplanError(
        "yaml-too-deep",
        f"more than {MAX_DEPTH} levels of nesting",
        where=source.place(span),
        help="check the brackets or indents",
    )


def _syntax_error(source: Source, problem: yaml.YAMLError) -> NoReturn:
    """Raise PyYAML's own error in kvplan's form."""
    if not isinstance(problem, yaml.MarkedYAMLError):
        # A character that YAML forbids; PyYAML gives its number and place in the text.
        at = getattr(problem, "position", 0)
        before = source.text[: at if isinstance(at, int) else 0]
        line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
        raise KvplanError(
            "yaml-encoding",
            f"{source.name} holds a character that YAML does not allow",
            where=source.place(Span(line, column, line, column + 1)),
            help="remove the control character",
        ) from None
    mark = problem.problem_mark or problem.context_mark
    if problem.problem == _LIBYAML_TOO_DEEP and mark is not None:
        _too_deep(source, Span(mark.line, mark.column, mark.line, mark.column + 1))
    what = ", ".join(part for part in (problem.context, problem.problem) if part) or "not valid YAML"
    where: Mark | str = source.name
    if mark is not None:
        where = source.place(Span(mark.line, mark.column, mark.line, mark.column + 1))
    help_line = "check the indentation, the colons and the quotes near this place"
    if mark is not None and source.text[mark.index : mark.index + 1] == "\t":
        help_line = "indent with spaces: YAML does not allow tabs there"
    raise KvplanError("yaml-syntax", f"not valid YAML: {what}", where=where, help=help_line) from None
