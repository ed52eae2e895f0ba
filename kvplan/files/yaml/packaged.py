"""The YAML of the cards and GPU specs that come with kvplan, read without PyYAML, which takes longer to load
than an answer to compute.

They keep a narrow form: mappings and lists by indentation or in brackets, texts plain, in quotes on one line
or after ``|``. What is written in another way is left to the strict reader (`read` returns None); tests hold
both against each other for every file, and for files with random changes.
"""

from __future__ import annotations

import json

from kvplan.files.yaml.marks import Located, Node, Source, Span
from kvplan.files.yaml.scalars import Trap, read_plain

_FOREIGN = ("&", "*", "!", "%", "@", "`", ">", "?", "|", "#", "- ", "{", "}", "[", "]", ",", ":")
"""No plain text begins so."""


class _OtherError(Exception):
    """Something that is left to the strict reader."""


def read(text: str) -> object:
    """The data of a packaged file; None where it is not written in the narrow form."""
    try:
        lines = _Lines(text)
        data = lines.block(0)
        if lines.at < len(lines.rows):
            return None
    except (_OtherError, IndexError, ValueError, RecursionError):
        return None
    return data


def located(content: bytes, name: str) -> Located:
    """The data of a packaged file, as the strict reader gives it but without places."""
    text = content.decode(errors="replace")
    data = read(text)
    if data is None or "\ufffd" in text:
        from kvplan.files.yaml.strict import load_yaml

        return load_yaml(content, name=name)
    return Located(data, Node(Span(0, 0, 0, 0)), Source(name, text))


class _Lines:
    """The rows of a text, read from the top; blank rows and comments are passed over between values."""

    def __init__(self, text: str) -> None:
        self.rows = text.replace("\r\n", "\n").split("\n")
        self.at = 0
        if not all(map(str.isprintable, self.rows)):
            raise _OtherError
        self._pass()

    def _pass(self) -> None:
        rows, count = self.rows, len(self.rows)
        while self.at < count and (not (row := rows[self.at].lstrip(" ")) or row[0] == "#"):
            self.at += 1

    def indent(self) -> int:
        """Of the row that comes next; -1 at the end."""
        if self.at >= len(self.rows):
            return -1
        row = self.rows[self.at]
        return len(row) - len(row.lstrip(" "))

    def block(self, indent: int) -> object:
        """The mapping or list that stands at that indentation."""
        if self.rows[self.at].startswith("- ", indent):
            return self.sequence(indent)
        return self.mapping(indent)

    def sequence(self, indent: int) -> list[object]:
        found: list[object] = []
        while self.indent() == indent and self.rows[self.at].startswith("- ", indent):
            row = self.rows[self.at]
            if _colon(row[indent + 2 :]) >= 0:
                # A mapping that begins on the row of its hyphen.
                self.rows[self.at] = f"{row[:indent]}  {row[indent + 2 :]}"
                found.append(self.mapping(indent + 2))
            else:
                found.append(self.value(row[indent + 2 :].strip(" "), indent))
        return found

    def mapping(self, indent: int) -> dict[object, object]:
        found: dict[object, object] = {}
        while self.indent() == indent:
            row = self.rows[self.at][indent:]
            end = _colon(row)
            if end < 0 or " #" in row[:end] or row.startswith(("---", "...")):
                raise _OtherError
            key = _scalar(row[:end])
            if key in found or isinstance(key, bool) or not isinstance(key, str | int):
                raise _OtherError
            found[key] = self.value(row[end + 1 :].strip(" "), indent)
        if self.indent() > indent:
            raise _OtherError
        return found

    def value(self, text: str, indent: int) -> object:
        """The value after a key or hyphen of that indentation, and on the rows below."""
        self.at += 1
        if text in ("|", "|-"):
            return self.literal(indent, "\n" if text == "|" else "")
        if text[:1] in ("{", "["):
            while not _closed(text):
                text += " " + self.continued(indent)
            self._pass()
            return _Flow(text).whole()
        if not text or text[0] == "#":
            self._pass()
            inner = self.indent()
            if inner > indent or (inner == indent and self.rows[self.at].startswith("- ", inner)):
                return self.block(inner)
            return None
        if text[0] not in "\"'":
            while self.indent() > indent and self.rows[self.at].strip(" "):
                text += " " + self.continued(indent)
                if "#" in text:
                    raise _OtherError
        self._pass()
        return _scalar(text)

    def continued(self, indent: int) -> str:
        """The row that continues a value of that indentation."""
        row = self.rows[self.at].strip(" ")
        if not row or self.indent() <= indent:
            raise _OtherError
        self.at += 1
        return row

    def literal(self, indent: int, end: str) -> str:
        """The rows below as they stand, without their indentation."""
        depth = self.indent()
        found: list[str] = []
        if depth <= indent or not self.rows[self.at].strip(" "):
            raise _OtherError
        while self.at < len(self.rows):
            row = self.rows[self.at]
            if row.strip(" ") and not row.startswith(" " * depth):
                break
            found.append(row[depth:])
            self.at += 1
        while found and not found[-1]:
            found.pop()
        self._pass()
        return "\n".join(found) + (end if found else "")


def _colon(row: str) -> int:
    """The place of the colon behind a row's key; -1 where it has none."""
    if row[:1] in ("{", "["):
        return -1
    if row[:1] in ('"', "'"):
        end = row.find(row[0], 1) + 1
        return end if end and row[end : end + 1] == ":" and row[end + 1 : end + 2] in ("", " ") else -1
    end = row.find(": ")
    return len(row) - 1 if end < 0 and row.endswith(":") else end


def _scalar(text: str) -> object:
    """A text in quotes or a plain one, which may have a comment behind it."""
    if text[0] == '"':
        if text.find('"', 1) != len(text) - 1:
            raise _OtherError
        quoted: str = json.loads(text)
        if not quoted.isprintable():
            raise _OtherError
        return quoted
    if text[0] == "'":
        if text.find("'", 1) != len(text) - 1:
            raise _OtherError
        return text[1:-1]
    plain = text.partition(" #")[0].rstrip(" ")
    if plain == "-" or plain.startswith(_FOREIGN) or ": " in plain or plain.endswith(":"):
        raise _OtherError
    value = read_plain(plain)
    if isinstance(value, Trap):
        raise _OtherError
    return value


def _closed(text: str) -> bool:
    """Whether as many brackets are closed as opened, outside of quotes."""
    if '"' in text or "'" in text:
        parts = text.split('"')
        if len(parts) % 2 == 0:
            return False
        text = "".join(parts[::2])
        if "'" in text:
            raise _OtherError
    return text.count("{") == text.count("}") and text.count("[") == text.count("]")


class _Flow:
    """A value in brackets."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def whole(self) -> object:
        value = self.value()
        rest = self.text[self.at :].strip(" ")
        if rest and not rest.startswith("#"):
            raise _OtherError
        return value

    def value(self) -> object:
        self._blanks()
        sign = self.text[self.at]
        if sign == "{":
            return self._mapping()
        if sign == "[":
            return self._list()
        return self._word(",]}")

    def _blanks(self) -> None:
        while self.text[self.at] == " ":
            self.at += 1

    def _list(self) -> list[object]:
        found: list[object] = []
        self.at += 1
        while not self._ends("]"):
            found.append(self.value())
            self._comma("]")
        return found

    def _mapping(self) -> dict[object, object]:
        found: dict[object, object] = {}
        self.at += 1
        while not self._ends("}"):
            self._blanks()
            key = self._word(":")
            if key in found or isinstance(key, bool) or not isinstance(key, str | int):
                raise _OtherError
            if not self.text.startswith(": ", self.at):
                raise _OtherError
            self.at += 2
            found[key] = self.value()
            self._comma("}")
        return found

    def _ends(self, sign: str) -> bool:
        self._blanks()
        if self.text[self.at] != sign:
            return False
        self.at += 1
        return True

    def _comma(self, sign: str) -> None:
        self._blanks()
        if self.text[self.at] == ",":
            self.at += 1
        elif self.text[self.at] != sign:
            raise _OtherError

    def _word(self, ends: str) -> object:
        """A text in quotes, or a plain one up to one of those signs."""
        text, begin = self.text, self.at
        if text[begin] in "\"'":
            self.at = text.index(text[begin], begin + 1) + 1
            return _scalar(text[begin : self.at])
        while (sign := text[self.at]) not in ends:
            if sign in "{}[]#,":
                raise _OtherError
            self.at += 1
        return _scalar(text[begin : self.at].rstrip(" "))
