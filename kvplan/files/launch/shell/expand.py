"""Words of the shell: variables, defaults, arrays, sums, the output of commands that print what is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvplan.files.launch.given import value_of
from kvplan.files.launch.shell import sums
from kvplan.files.launch.shell.grammar import parse, plain, text_of
from kvplan.files.launch.shell.state import State, Variable, Words
from kvplan.files.launch.unknown import is_open, parts, shown, unknown
from kvplan.later import regex

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPED = regex(r"\\(\n|.)", re.DOTALL)
_IN_QUOTES = regex(r"\\([$`\"\\\n])")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "e": "\x1b", "0": "\0"}
_RANGE = regex(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}", re.ASCII)
_MOST = 256
"""Words of one range."""
_OPERATORS = (":-", ":=", ":+", ":?", "-", "=", "+", "?", "##", "#", "%%", "%", "//", "/", "^^", ",,", ":")
_BREAK = "\0"
"""Between two words of an array."""
Piece = tuple[str, bool]
"""(text, whether the shell splits it at its spaces)"""


class Expander:
    """Expands words as the shell would. world: the condition that is taken to be otherwise than assumed.
    used: takes the conditions on which what was read depends. output: of a command that stands for a value,
    None where that is not known."""

    def __init__(
        self, state: State, output: Callable[[Node, Expander], str | None], world: str | None = None
    ) -> None:
        self.state, self.output, self.world = state, output, world
        self.used: dict[str, None] = {}
        self.default = False  # whether a value that somebody may say otherwise was read

    def fields(self, node: Node) -> list[str]:
        """The words that one word comes to."""
        if node.type == "brace_expression" and (found := _RANGE.fullmatch(text_of(node))):
            first, last = int(found[1]), int(found[2])
            numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
            return [str(one) for one in numbers[:_MOST]]
        return _split(self._pieces(node))

    def text(self, node: Node) -> str:
        """A word that is not split, as in an assignment."""
        return "".join(" " if text == _BREAK else text for text, _ in self._pieces(node))

    def choose(self, condition: str, usual: bool) -> bool:
        """The outcome of a condition in this world."""
        self.used[condition] = None
        return usual != (self.world == condition)

    def lookup(self, name: str) -> Words | None:
        """The words of a variable; the conditions on which they depend are noted."""
        variable = self.state.variables.get(name)
        if variable is None:
            given = value_of(name)
            return None if given is None else (given,)
        self.used.update(dict.fromkeys(variable.others))
        self.default = self.default or variable.default
        return self.state.words(name, self.world)

    def _pieces(self, node: Node) -> Iterator[Piece]:
        kind, text = node.type, text_of(node)
        if kind == "raw_string":
            yield text[1:-1], False
        elif kind == "ansi_c_string":
            yield _ESCAPED.sub(lambda match: _ANSI.get(match[1], match[0]), text[2:-1]), False
        elif kind in ("string", "translated_string"):
            yield from self._quoted(node)
        elif kind in ("simple_expansion", "expansion"):
            yield from self._variable(node, quoted=False)
        elif kind in ("command_substitution", "arithmetic_expansion"):
            yield self._value(node), True
        elif kind in ("concatenation", "command_name"):
            yield from self._joined(node)
        elif kind == "process_substitution":
            yield unknown(text), False
        else:
            yield _ESCAPED.sub(lambda match: "" if match[1] == "\n" else match[1], text), False

    def _joined(self, node: Node) -> Iterator[Piece]:
        """The parts of a word; spaces between them (in a default) part it."""
        place = node.start_byte
        for child in node.children:
            between = self._between(node, place, child.start_byte)
            if between:
                yield between, True
            lead = text_of(child) if child.type == "word" else ""
            if lead[:1].isspace() and not lead.isspace():
                yield " ", True
                yield lead.strip(), False
            else:
                yield from self._pieces(child)
            place = child.end_byte

    @staticmethod
    def _between(node: Node, begin: int, end: int) -> str:
        source = node.text or b""
        return plain(source[begin - node.start_byte : end - node.start_byte])

    def _quoted(self, node: Node) -> Iterator[Piece]:
        """A text in double quotes; ``"${LIST[@]}"`` of no word is none."""
        found: list[Piece] = []
        inner = [one for one in node.children if one.type != '"' and one.type != '$"']
        for child in inner:
            if child.type in ("simple_expansion", "expansion"):
                lead = text_of(child)
                space = lead[: len(lead) - len(lead.lstrip())]
                found += [(space, False)] if space else []
                found += self._variable(child, quoted=True)
            elif child.type in ("command_substitution", "arithmetic_expansion"):
                found.append((self._value(child), False))
            else:
                found.append((_IN_QUOTES.sub(lambda match: match[1].strip("\n"), text_of(child)), False))
        alone = len(inner) == 1 and inner[0].type in ("simple_expansion", "expansion")
        yield from found if found or (alone and _is_list(inner[0])) else [("", False)]

    def body(self, node: Node) -> str:
        """The text of a here-document, with what it expands."""
        place, found = node.start_byte, ""
        for child in node.named_children:
            found += self._between(node, place, child.start_byte)
            if child.type in ("simple_expansion", "expansion"):
                found += "".join(text for text, _ in self._variable(child, quoted=True) if text != _BREAK)
            elif child.type in ("command_substitution", "arithmetic_expansion"):
                found += self._value(child)
            else:
                found += text_of(child)
            place = child.end_byte
        found += self._between(node, place, node.end_byte)
        return _IN_QUOTES.sub(lambda match: match[1].strip("\n"), found)

    def _value(self, node: Node) -> str:
        """A sum, or the output of a command; its own text where it is not known."""
        text = text_of(node)
        if text.startswith("$((") and text.endswith("))") and node.type == "command_substitution":
            inner = parse(f"x {text}").children[0].child_by_field_name("argument")
            return self._value(inner) if inner is not None and inner.type != node.type else unknown(text)
        if node.type == "arithmetic_expansion":
            number = sums.value(node, self._number)
            return unknown(text) if number is None else str(number)
        printed_text = self.output(node, self)
        return unknown(text) if printed_text is None else printed_text.rstrip("\n")

    def number(self, node: Node) -> int | None:
        """The value of a node of arithmetic."""
        return sums.value(node, self._number)

    def _number(self, node: Node) -> str:
        return self.text(node) if node.type not in ("variable_name", "word") else self._first(text_of(node))

    def _first(self, name: str) -> str:
        words = self.lookup(name)
        return unknown(name) if words is None else next(iter(words), "")

    def _variable(self, node: Node, *, quoted: bool) -> Iterator[Piece]:
        name, index, operator, rest = _parts(node)
        words = self._words_of(name, self.key(node, name, index), text_of(node).strip())
        if operator in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
            missing = words is None or (operator[0] == ":" and not any(words))
            if operator[-1] == "+":
                if words is None and rest:
                    missing = not self.choose(f"{name} is set", False)
                yield from self._rest(rest, quoted) if not missing else [("", not quoted)]
                return
            if missing and operator[-1] != "?":
                self.default = self.default or words is None
                if operator[-1] == "=":
                    text = "".join(text for text, _ in self._rest(rest, True))
                    self.state.put(name, Variable((text,), default=True))
                yield from self._rest(rest, quoted)
                return
        elif operator:
            words = self._changed(name, words, operator, rest, text_of(node).strip())
        if words is None:
            asked = f"${{{name}}}" if operator.endswith("?") else text_of(node).strip()
            yield unknown(asked), not quoted
            return
        if index == "*" and quoted:
            words = (" ".join(words),)
        for place, word in enumerate(words):
            if place:
                yield _BREAK, False
            yield word, not quoted

    def _rest(self, rest: list[Node], quoted: bool) -> Iterator[Piece]:
        """The word behind an operator."""
        for node in rest:
            if quoted and node.type in ("word", "concatenation"):
                for text, _ in self._joined(node) if node.children else [(text_of(node), False)]:
                    yield text, False
            elif node.type == "word":
                for place, part in enumerate(text_of(node).split(" ")):
                    if place:
                        yield " ", True
                    yield _ESCAPED.sub(r"\1", part), False
            else:
                yield from self._pieces(node)

    def keys(self, name: str) -> Words | None:
        """The keys of an associative array; None of anything else."""
        variable = self.state.variables.get(name)
        return None if variable is None else variable.keys

    def key(self, node: Node, name: str, index: str | None) -> str | None:
        """The index of an expansion or of an assignment, expanded where its array is associative."""
        if index in (None, "@", "*") or self.keys(name) is None:
            return index
        subscript = node if node.type == "subscript" else next(
            (one for one in node.children if one.type == "subscript"), None
        )  # fmt: skip
        inner = None if subscript is None else subscript.child_by_field_name("index")
        return index if inner is None else self.text(inner)

    def _words_of(self, name: str, index: str | None, written: str) -> Words | None:
        """The words of a variable, an argument or an array; none for an array that nothing sets."""
        state = self.state
        if name in ("@", "*"):
            return (unknown(written),) if state.arguments is None else state.arguments
        if name == "#":
            return (unknown("$#"),) if state.arguments is None else (str(len(state.arguments)),)
        if name in ("0", "BASH_SOURCE"):
            return (state.script,)
        if name.isdigit():
            place = int(name)
            if state.arguments is None:
                return None
            word = state.arguments[place - 1 : place] or ("",)
            return None if word == (unknown("$@"),) else word
        words = self.lookup(name)
        if index in ("@", "*"):
            return words if words is not None or state.missing or written.startswith("${#") else ()
        if words is not None and index is not None:
            return self._entry(name, words, index, written)
        return words if words is None else (words[:1] or ("",))

    def _entry(self, name: str, words: Words, index: str, written: str) -> Words:
        """One word of an array, by its place or its key."""
        keys = self.keys(name)
        if keys is not None:
            if is_open(index):
                return (unknown(f"${{{name}[{shown(index)}]}}"),)
            return (words[keys.index(index)],) if index in keys and len(words) == len(keys) else ("",)
        place = self._index(index)
        return (unknown(written),) if place is None else words[place : place + 1] or ("",)

    def _index(self, index: str) -> int | None:
        words = self.lookup(index.lstrip("$"))
        text = index if words is None else next(iter(words), "")
        return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else None

    def _changed(
        self, name: str, words: Words | None, operator: str, rest: list[Node], written: str
    ) -> Words | None:
        """``${#X}``, ``${X%.gguf}``, ``${X/a/b}``, ``${X:0:3}``, ``${!X}`` of what is known."""
        if words is None or any(map(is_open, words)):
            return None
        if operator == "length":
            return (str(len(words) if "[" in written else len("".join(words[:1]))),)
        every = re.search(r"\[[@*]\]|^\$\{[@*]", written) is not None
        if operator == "!" and every:
            keys = self.keys(name)
            return tuple(map(str, range(len(words)))) if keys is None else keys
        if operator == "!":
            return self.lookup(words[0]) if words else ()
        given = [self.text(one) for one in rest]
        if any(map(is_open, given)):
            return None
        if operator == ":" and every:
            shift = written.startswith(("${@", "${*"))
            return _sliced(("0", *words) if shift else words, given)
        return _changed(words, operator, given)


def _sliced(words: Words, given: list[str]) -> Words | None:
    """Some of a list: ``${@:2}``, ``${LIST[@]:1:3}``."""
    if not given or not all(re.fullmatch(r"\d{1,9}", one, re.ASCII) for one in given):
        return None
    begin, length = int(given[0]), int(given[1]) if len(given) > 1 else None
    return words[begin : None if length is None else begin + length]


def _changed(words: Words, operator: str, given: list[str]) -> Words | None:
    if operator not in _OPERATORS:
        return None
    if operator in ("^^", ",,"):
        return tuple(one.upper() if operator == "^^" else one.lower() for one in words)
    if operator == ":":
        if not all(re.fullmatch(r"\d{1,9}", one, re.ASCII) for one in given):
            return None
        begin, length = int(given[0]), int(given[1]) if len(given) > 1 else None
        return tuple(one[begin : None if length is None else begin + length] for one in words)
    pattern = given[0] if given else ""
    if operator == "/" and pattern[:1] in ("#", "%"):
        return None
    if operator in ("/", "//"):
        by = given[1] if len(given) > 1 else ""
        return tuple(_replaced(one, pattern, by, operator == "//") for one in words)
    return tuple(_cut(one, pattern, operator) for one in words)


def _is_list(node: Node) -> bool:
    name, index, _, _ = _parts(node)
    return name == "@" or index == "@"


def _parts(node: Node) -> tuple[str, str | None, str, list[Node]]:
    """(name, index, operator, what stands behind it) of ``$X`` and ``${X[0]:-1}``."""
    name, index, operator = "", None, ""
    rest: list[Node] = []
    for child in node.children:
        if child.type == "subscript":
            inner = child.child_by_field_name("index")
            name = text_of(child.children[0])
            index = "" if inner is None else text_of(inner)
        elif child.type in ("variable_name", "special_variable_name") and not name:
            name = text_of(child)
        elif child.is_named:
            rest.append(child)
        elif not name and text_of(child) in ("#", "!"):
            operator = "length" if text_of(child) == "#" else "!"
            if node.child_count == 3:  # ${#}
                name, operator = text_of(child), ""
        elif not operator and text_of(child).strip() not in ("$", "${", "}"):
            operator = text_of(child)
    return name, index, operator, rest


def _split(pieces: Iterator[Piece]) -> list[str]:
    words: list[str] = []
    current: str | None = None
    for text, split in pieces:
        if text == _BREAK:
            words += [] if current is None else [current]
            current = None
        elif not split:
            current = (current or "") + text
        else:
            for part in parts(text):
                if part.isspace():
                    words += [] if current is None else [current]
                    current = None
                elif part:
                    current = (current or "") + part
    return words + ([] if current is None else [current])


def _replaced(text: str, pattern: str, by: str, every: bool) -> str:
    if not pattern:
        return text
    glob = re.compile(translate(pattern).removesuffix(r"\Z").removesuffix(r"\z"))
    return glob.sub(lambda match: by, text, count=0 if every else 1)


def _cut(text: str, pattern: str, operator: str) -> str:
    """``#``, ``##``, ``%``, ``%%``: without the shortest or longest beginning or end of a pattern."""
    glob = re.compile(translate(pattern))
    lengths = range(len(text) + 1) if len(operator) == 1 else range(len(text), -1, -1)
    for length in lengths:
        part = text[:length] if operator[0] == "#" else text[len(text) - length :]
        if glob.match(part):
            return text[length:] if operator[0] == "#" else text[: len(text) - length]
    return text


def printed(words: list[str]) -> str | None:
    """Output of a command that only handles texts: ``echo``, ``printf``, ``seq``, ``dirname`` …"""
    name, given = words[0], words[1:]
    if name == "echo":
        return " ".join(given[1:] if given[:1] and re.fullmatch(r"-[neE]+", given[0]) else given)
    if name == "printf" and given:
        form, *values = given
        if "%" not in form:
            return form
        return form.replace("%s", values[0]) if form in ("%s", "%s\\n") and len(values) == 1 else None
    if name == "pwd":
        return "."
    if not given or any(map(is_open, given)):
        return None
    if name == "seq":
        return _sequence(given)
    if name == "dirname":
        return str(PurePosixPath(given[-1]).parent)
    return PurePosixPath(given[0]).name.removesuffix("".join(given[1:2])) if name == "basename" else None


def _sequence(given: list[str]) -> str | None:
    if not all(re.fullmatch(r"-?\d{1,6}", one, re.ASCII) for one in given) or len(given) > 3:
        return None
    first, last = (1, int(given[0])) if len(given) == 1 else (int(given[0]), int(given[-1]))
    step = int(given[1]) if len(given) == 3 else 1
    return "\n".join(map(str, range(first, last + 1, step)[:_MOST])) if step > 0 else None
