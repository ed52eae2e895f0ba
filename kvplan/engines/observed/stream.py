"""Finding anchored lines in a stream of any size, in constant memory.

The stream is searched a chunk at a time for each anchor with a plain substring search; only lines that hold
one are cut out and decoded. Carriage returns end a line too (progress bars, Windows), colour codes are taken
out, bytes that are no UTF-8 become replacement characters, and of a line longer than `LINE_LIMIT` only the
part around the anchor is looked at. A line that is a JSON record (as container runtimes write them) is the
text in it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from kvplan.engines.observed.rules import Rule
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import KIB

CHUNK = 512 * KIB
LINE_LIMIT = 32 * KIB
HITS_PER_LINE = 4
_COLOUR = regex(rb"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b[()][A-Z0-9]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)")
_COLOURS = regex(_COLOUR.pattern.decode())


@record()
class Hit:
    """A line that holds a rule's anchor at character `at`. cut: the stream ended inside this line."""

    rule: Rule
    text: str
    at: int
    number: int
    cut: bool


class Scanner:
    """Hits of some rules in a stream; the rules may be narrowed while it runs (once the engine is known)."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.lines = 0
        self.cut = False

    def hits(self, pieces: Iterable[bytes]) -> Iterator[Hit]:
        """All hits, in the order of the text. The pieces may be cut anywhere."""
        for chunk, last in _chunks(pieces):
            text = _COLOUR.sub(b"", chunk) if b"\x1b" in chunk else chunk
            self.cut = last and not text.endswith((b"\n", b"\r"))
            yield from self._chunk_hits(text, self.cut)
            self.lines += text.count(b"\n")
        self.lines += self.cut

    def _chunk_hits(self, text: bytes, cut: bool) -> Iterator[Hit]:
        found: list[tuple[int, int]] = []
        rules = self.rules  # whoever reads the hits may change them before the next chunk
        for index, rule in enumerate(rules):
            found += ((at, index) for at in _find_all(text, rule.anchor))
        found.sort()
        counted, number = 0, self.lines + 1
        for at, index in found:
            number += text.count(b"\n", counted, at)
            counted = at
            rule = rules[index]
            start, end = _line_around(text, at)
            before = text[start:at].decode("utf-8", "replace")
            line = before + text[at:end].decode("utf-8", "replace")
            place = len(before)
            if line.startswith("{"):
                line, place = _unwrapped(line, place, rule.anchor.decode())
            yield Hit(rule, line, place, number, cut and end == len(text))


def _unwrapped(line: str, at: int, anchor: str) -> tuple[str, int]:
    """The line that a JSON record holds (``{"log":"…","stream":"stderr"}``) and where the anchor stands in
    it; the line itself where it is no such record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line, at
    texts = (value for value in record.values() if isinstance(value, str)) if isinstance(record, dict) else ()
    for text in texts:
        plain = _COLOURS.sub("", text)
        place = plain.find(anchor)
        if place >= 0:
            start = plain.rfind("\n", 0, place) + 1
            end = plain.find("\n", place)
            return plain[start : end if end >= 0 else len(plain)].rstrip("\r"), place - start
    return line, at


def _find_all(text: bytes, anchor: bytes) -> Iterator[int]:
    """Where the anchor stands, at most a few times a line."""
    at, line_end, on_line = text.find(anchor), -1, 0
    while at >= 0:
        if at > line_end:
            line_end, on_line = _end_of_line(text, at), 0
        on_line += 1
        yield at
        at = text.find(anchor, at + len(anchor) if on_line < HITS_PER_LINE else max(line_end, at + 1))


def _end_of_line(text: bytes, at: int) -> int:
    ends = [end for end in (text.find(b"\n", at), text.find(b"\r", at, at + LINE_LIMIT)) if end >= 0]
    return min(ends, default=len(text))


def _line_around(text: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line around `at`, no further than the limits."""
    low, high = max(0, at - LINE_LIMIT // 8), at + LINE_LIMIT
    start = max(text.rfind(b"\n", low, at), text.rfind(b"\r", low, at)) + 1
    ends = [end for end in (text.find(b"\n", at, high), text.find(b"\r", at, high)) if end >= 0]
    return max(start, low), min(ends, default=min(high, len(text)))


def _chunks(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Chunks that end where a line ends (or, without line ends, where the chunk is full); the flag marks the
    last.
    """
    held = bytearray()
    for piece in _as_utf8(pieces):
        for start in range(0, len(piece), CHUNK):
            held += piece[start : start + CHUNK]
            if len(held) >= CHUNK:
                end = max(held.rfind(b"\n"), held.rfind(b"\r")) + 1 or len(held)
                yield bytes(held[:end]), False
                del held[:end]
    if held:
        yield bytes(held), True


def _as_utf8(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The stream as it is, but UTF-16 with a byte order mark (a Windows shell's redirection) as UTF-8."""
    decode: Callable[[bytes], str] | None = None
    first = b""
    started = False
    for piece in pieces:
        if not started:
            first += piece
            if len(first) < len(codecs.BOM_UTF16_LE):
                continue
            started, piece = True, first
            if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        yield decode(piece).encode("utf-8", "replace") if decode else piece
    if not started and first:
        yield first
