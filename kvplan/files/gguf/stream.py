"""A file read forwards in blocks, for headers whose counts and lengths nobody has checked yet."""

from __future__ import annotations

import struct
from typing import BinaryIO

from kvplan.units import KIB, MIB

BLOCK = 64 * KIB
MOST_READ = 512 * MIB
"""Bytes that one header may make a reader fetch. The largest vocabularies come to some 30 MiB."""


class CutError(Exception):
    """The file ends before what was asked for."""


class Stream:
    """Numbers, texts and gaps of a file of ``size`` bytes, one after the other.

    Memory: one block and what `take` is asked for. Time: MOST_READ bytes are fetched at most, whatever the
    counts say. Raises CutError where the file ends, ValueError where more would have to be fetched.
    """

    def __init__(self, file: BinaryIO, size: int, *, big_endian: bool = False) -> None:
        self._file, self._size = file, size
        self._order = ">" if big_endian else "<"
        self._block, self._start = b"", 0
        self._at = 0
        self._fetched = 0

    def has(self, count: int) -> bool:
        """Whether so many bytes follow."""
        return self._at + count <= self._size

    def skip(self, count: int) -> None:
        """Pass over so many bytes, which must be there."""
        if not self.has(count):
            raise CutError
        self._at += count

    def take(self, count: int) -> bytes:
        """The next bytes; the caller has bounded their number."""
        if not self.has(count):
            raise CutError
        end = self._at + count
        pieces = []
        while self._at < end:
            offset = self._held(1)
            piece = self._block[offset : offset + end - self._at]
            pieces.append(piece)
            self._at += len(piece)
        return b"".join(pieces)

    def number(self, code: str) -> int | float | bool:
        """One value in a format of `struct`."""
        shape = struct.Struct(self._order + code)
        value: int | float | bool = shape.unpack(self.take(shape.size))[0]
        return value

    def u32(self) -> int:
        return int(self.number("I"))

    def u64(self) -> int:
        return int(self.number("Q"))

    def skip_texts(self, count: int) -> None:
        """Pass over so many texts, each with its length in eight bytes before it."""
        length_of = struct.Struct(self._order + "Q").unpack_from
        for _ in range(count):
            offset = self._held(8)
            self._at += 8 + length_of(self._block, offset)[0]
            if self._at > self._size:
                raise CutError

    def _held(self, count: int) -> int:
        """Where the next bytes lie in the block, which is fetched where it has not so many."""
        offset = self._at - self._start
        if offset + count > len(self._block):
            if not self.has(count):
                raise CutError
            if self._fetched >= MOST_READ:
                raise ValueError(f"its header has more than {MOST_READ:,} bytes")
            self._file.seek(self._at)
            self._block, self._start, offset = self._file.read(BLOCK), self._at, 0
            self._fetched += BLOCK
            if len(self._block) < count:
                raise CutError
        return offset
