"""The header of a GGUF file: its keys and its list of tensors, read so that a bad file does no harm.

A download that has only begun can be read, a file of 100 GB costs what its header costs, and counts, lengths
and nesting are bounded before anything is kept. Format: ggml-org/ggml docs/gguf.md (versions 2 and 3).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from kvplan.architectures.config.view import MAX_LAYERS
from kvplan.architectures.gguf.read import ARRAY, BLOCKS, SCALARS, TEXT
from kvplan.errors import KvplanError
from kvplan.files.json_input import regular_size
from kvplan.record import Json, record
from kvplan.units import KIB, MIB

BLOCK = 64 * KIB
MOST_READ = 512 * MIB
"""Bytes that one header may make a reader fetch. The largest vocabularies come to some 30 MiB."""

VERSIONS = (2, 3)
MAX_KEYS = 65_536
MAX_TENSORS = 100_000
MAX_DIMS = 8
MAX_NAME = 65_535
# The longest vocabularies have some 300,000 entries and as many merges.
MAX_TEXTS = 4_000_000
MAX_VALUES = 1_000_000
MAX_KEPT_BYTES = 32 * MIB
LARGEST_TENSOR = 2**63 - 1
_START = 24
_TOKENIZER, _TOKENS = "tokenizer.", "tokenizer.ggml.tokens"
_OLD_MAGIC = (b"tjgg", b"lmgg", b"fmgg", b"ggjt", b"ggml", b"ggmf", b"ggla", b"algg")


@record()
class Header:
    """The keys of a file that say something about the model. ``vocab``: number of tokens listed, 0 if none.

    cut_in: the key in which the file ends, where it is incomplete. tensors: name → bytes, where asked for.
    """

    values: Json
    vocab: int = 0
    cut_in: str | None = None
    tensors: Mapping[str, int] | None = None


def read_header(path: Path, *, tensors: bool = False) -> Header:
    """The general.*, split.* and architecture's keys of a file, and its tensors.

    bytes of a tensor = elements / elements of a block · bytes of a block. Raises KvplanError: no-such-file,
    not-a-file, unreadable-file, bad-gguf.
    """
    size = regular_size(path)
    try:
        with path.open("rb") as file:
            start = file.read(_START)
            big_endian, count, keys = _check_start(start, size, path)
            stream = Stream(file, size, big_endian=big_endian)
            stream.skip(_START)
            return _Reader(stream, path).header(keys, count if tensors else None)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of the values, UnicodeDecodeError too
        raise _bad(path, str(error)[:120]) from error


def _bad(path: Path, why: str) -> KvplanError:
    return KvplanError("bad-gguf", f"{path} is not a readable GGUF file: {why}")


def _check_start(start: bytes, size: int, path: Path) -> tuple[bool, int, int]:
    """Whether the numbers are big-endian, the tensors and the keys; magic, version and counts are checked."""
    if start[:4] != b"GGUF":
        raise KvplanError("bad-gguf", f"{path} is not a GGUF file", help=_what_else(start))
    if len(start) < _START:
        raise KvplanError(
            "bad-gguf", f"{path} ends after {len(start)} bytes", help="is the download complete?"
        )
    big_endian = not struct.unpack_from("<I", start, 4)[0] & 0xFFFF
    version, tensors, keys = struct.unpack_from(">IQQ" if big_endian else "<IQQ", start, 4)
    if version not in VERSIONS:
        raise KvplanError(
            "bad-gguf",
            f"{path} is GGUF version {version}; versions 2 and 3 are read",
            help="convert the model again with a current llama.cpp" if version < 2 else (),
        )
    # A key takes 13 bytes at least: length, type, one byte of value.
    if keys > MAX_KEYS or (keys * 13 > size - _START and keys > 1000):
        raise KvplanError("bad-gguf", f"{path} claims {keys:,} keys in {size:,} bytes")
    return big_endian, tensors, keys


def _what_else(start: bytes) -> tuple[str, ...]:
    if start[:4] in _OLD_MAGIC:
        return ("this is an older GGML file: convert the model again with a current llama.cpp",)
    if start.startswith(b"version https://git-lfs"):
        return ("this is a Git LFS pointer: run `git lfs pull` to get the file itself",)
    return ()


class _Reader:
    """One pass over a header. Raises ValueError for what cannot be, CutError where the file ends."""

    def __init__(self, stream: Stream, path: Path) -> None:
        self._stream, self._path = stream, path
        self._values: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        self._key = ""
        self._texts = self._kept_bytes = self._kept_values = 0

    def header(self, keys: int, tensors: int | None) -> Header:
        """tensors: how many to read, None for none."""
        cut_in, found = None, None
        try:
            for _ in range(keys):
                self._read_key()
            self._key = "the list of tensors"
            found = None if tensors is None else self._read_tensors(tensors)
        except CutError:
            cut_in = self._key
        if cut_in is not None and tensors is None and not cut_in.startswith(_TOKENIZER):
            raise KvplanError(
                "bad-gguf",
                f"{self._path} ends inside its header ({cut_in[:80] or 'in the name of a key'})",
                help="a few more megabytes of the file are enough",
            )
        return Header(self._wanted(), self._lengths.get(_TOKENS, 0), cut_in, found)

    def _wanted(self) -> dict[str, object]:
        name = self._values.get("general.architecture")
        wanted = ("general.", "split.", *([f"{name}."] if isinstance(name, str) and name else []))
        for key, length in self._lengths.items():
            if key.startswith(wanted):
                raise KvplanError("bad-gguf", f"{self._path}: {key[:80]} has {length:,} entries")
        return {key: value for key, value in self._values.items() if key.startswith(wanted)}

    def _read_key(self) -> None:
        self._key = ""
        name = self._text(MAX_NAME, "the name of a key")
        if name in self._values or name in self._lengths:
            raise ValueError(f"{name[:80]!r} stands there twice")
        self._key = name
        kind = self._stream.u32()
        if name.startswith(_TOKENIZER):
            self._values[name] = None
            self._pass_over(kind)
        elif kind == ARRAY:
            self._array(name)
        else:
            self._values[name] = self._value(kind)

    def _value(self, kind: int) -> object:
        if kind == TEXT:
            return self._text(MAX_KEPT_BYTES, "a text")
        self._kept_values += 1
        if self._kept_values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values")
        return self._stream.number(_scalar(kind))

    def _text(self, most: int, what: str) -> str:
        length = self._stream.u64()
        if length > most and self._stream.has(length):
            raise ValueError(f"{what} of {length:,} bytes")
        self._kept_bytes += length
        if self._kept_bytes > MAX_KEPT_BYTES and self._stream.has(length):
            raise ValueError(f"names and texts of more than {MAX_KEPT_BYTES:,} bytes")
        return self._stream.take(length).decode("utf-8")

    def _array(self, name: str) -> None:
        """The values of a list that may be one value a layer; longer ones are passed over and counted."""
        kind, count = self._start_of_array()
        if count > MAX_LAYERS:
            self._lengths[name] = count
            self._pass_over_values(kind, count)
        else:
            self._values[name] = [self._value(kind) for _ in range(count)]

    def _start_of_array(self) -> tuple[int, int]:
        kind, count = self._stream.u32(), self._stream.u64()
        if kind == ARRAY:
            raise ValueError("an array of arrays")
        if kind != TEXT:
            _scalar(kind)
        return kind, count

    def _pass_over(self, kind: int) -> None:
        if kind != ARRAY:
            self._pass_over_values(kind, 1)
            return
        item, count = self._start_of_array()
        self._lengths[self._key] = count
        self._pass_over_values(item, count)

    def _pass_over_values(self, kind: int, count: int) -> None:
        if kind != TEXT:
            self._stream.skip(struct.calcsize(_scalar(kind)) * count)
            return
        self._texts += count
        if self._texts > MAX_TEXTS:
            raise ValueError(f"{self._texts:,} texts")
        self._stream.skip_texts(count)

    def _read_tensors(self, count: int) -> dict[str, int]:
        if count > MAX_TENSORS:
            raise ValueError(f"{count:,} tensors")
        found: dict[str, int] = {}
        for _ in range(count):
            name = self._text(MAX_NAME, "the name of a tensor")
            if name in found:
                raise ValueError(f"the tensor {name[:80]!r} stands there twice")
            dims = self._stream.u32()
            if dims > MAX_DIMS:
                raise ValueError(f"{name[:80]!r} has {dims:,} dimensions")
            elements = 1
            for _ in range(dims):
                elements *= self._stream.u64()
            kind = self._stream.u32()
            if kind not in BLOCKS:
                raise ValueError(f"{name[:80]!r} has the unknown type {kind}")
            _, of_block, size = BLOCKS[kind]
            found[name] = elements * size // of_block
            if found[name] > LARGEST_TENSOR:
                raise ValueError(f"{name[:80]!r} has {elements:,} elements")
            self._stream.skip(8)  # its place in the file
        return found


def _scalar(kind: int) -> str:
    if kind not in SCALARS:
        raise ValueError(f"{kind} is not a type of values")
    return SCALARS[kind]


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
