"""The keys of a GGUF file, read so that an incomplete or a hostile file does no harm.

The values are decoded by the ``gguf`` package (extra ``gguf``), through a subclass of its reader that stops
at the end of the file, passes over long arrays and leaves the tensors alone: a download that has only begun
can be read, and a file of 100 GB costs what its header costs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.readers.json_input import regular_size
from kvplan.readers.view import MAX_LAYERS
from kvplan.record import record

VERSIONS = (2, 3)
MAX_KEYS = 65_536
# The longest vocabularies have some 300,000 entries and as many merges.
MAX_TEXTS = 4_000_000
MAX_VALUE_BYTES = 1 << 28
_OLD_MAGIC = (b"tjgg", b"lmgg", b"fmgg", b"ggjt", b"ggml", b"ggmf", b"ggla", b"algg")


@record()
class Header:
    """The keys of a file that say something about the model. ``vocab``: number of tokens listed, 0 if none.

    cut_in: the key in which the file ends, where it is incomplete.
    """

    values: Mapping[str, Any]
    vocab: int = 0
    cut_in: str | None = None


def read_header(path: Path) -> Header:
    """The general.*, split.* and architecture's keys of a file. Raises as `read_gguf`."""
    size = regular_size(path)
    try:
        with path.open("rb") as stream:
            _check_start(stream.read(24), size, path)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from error
    made = reader_class()
    try:
        reader = made(str(path))
        return _collect(reader, path)
    except KvplanError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, OSError) as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        raise KvplanError("bad-gguf", f"{path} is not a readable GGUF file: {text[:120]}") from error


def _check_start(start: bytes, size: int, path: Path) -> None:
    """Magic, version and counts, before the library believes them."""
    if start[:4] != b"GGUF":
        raise KvplanError("bad-gguf", f"{path} is not a GGUF file", help=_what_else(start))
    if len(start) < 24:
        raise KvplanError(
            "bad-gguf", f"{path} ends after {len(start)} bytes", help="is the download complete?"
        )
    order = "<" if struct.unpack_from("<I", start, 4)[0] & 0xFFFF else ">"
    version, _, keys = struct.unpack_from(f"{order}IQQ", start, 4)
    if version not in VERSIONS:
        raise KvplanError(
            "bad-gguf",
            f"{path} is GGUF version {version}; versions 2 and 3 are read",
            help="convert the model again with a current llama.cpp" if version < 2 else (),
        )
    # A key takes 13 bytes at least: length, type, one byte of value.
    if keys > MAX_KEYS or (keys * 13 > size - 24 and keys > 1000):
        raise KvplanError("bad-gguf", f"{path} claims {keys:,} keys in {size:,} bytes")


def _what_else(start: bytes) -> tuple[str, ...]:
    if start[:4] in _OLD_MAGIC:
        return ("this is an older GGML file: convert the model again with a current llama.cpp",)
    if start.startswith(b"version https://git-lfs"):
        return ("this is a Git LFS pointer: run `git lfs pull` to get the file itself",)
    return ()


def _collect(reader: Any, path: Path) -> Header:
    name = _text_of(reader.fields.get("general.architecture"))
    wanted = ("general.", "split.", f"{name}.")
    values: dict[str, Any] = {}
    for key, field in reader.fields.items():
        if not key.startswith(wanted):
            continue
        if key in reader.passed_over:
            raise KvplanError("bad-gguf", f"{path}: {key[:80]} has {reader.passed_over[key]:,} entries")
        values[key] = field.contents()
    if reader.cut_in is not None and not reader.cut_in.startswith("tokenizer."):
        raise KvplanError(
            "bad-gguf",
            f"{path} ends inside its header ({reader.cut_in[:80] or 'in the name of a key'})",
            help="a few more megabytes of the file are enough",
        )
    tokens = "tokenizer.ggml.tokens"
    field = reader.fields.get(tokens)
    vocab = reader.passed_over.get(tokens) or (len(field.data) if field is not None else 0)
    return Header(values, vocab, reader.cut_in)


def _text_of(field: Any) -> str:
    value = field.contents() if field is not None else ""
    return value if isinstance(value, str) else ""


class _CutError(Exception):
    """The file ends here."""


def reader_class() -> Any:
    """gguf.GGUFReader made fit for files that are cut off or hostile. Raises CannotRunHere(missing-extra)."""
    try:
        import numpy as np
        from gguf import GGUFEndian, GGUFReader, GGUFValueType
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra", "reading a GGUF file needs the gguf package", help="pip install 'kvplan[gguf]'"
        ) from error

    class HeaderReader(GGUFReader):  # type: ignore[misc]
        """cut_in: the key in which the file ends; passed_over: key → length of an array that was not read."""

        def __init__(self, path: str) -> None:
            self.cut_in: str | None = None
            self.passed_over: dict[str, int] = {}
            self._key = ""
            self._texts = 0
            super().__init__(path)

        def _build_fields(self, offs: int, count: int) -> int:
            try:
                return int(super()._build_fields(offs, count))
            except _CutError:
                self.cut_in = self._key
                return offs

        def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list[Any]]:
            return offs, []

        def _get(self, offset: int, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            size = np.dtype(dtype).itemsize * int(count)
            if offset + size > len(self.data):
                raise _CutError
            if size > MAX_VALUE_BYTES:
                raise ValueError(f"a value of {size:,} bytes")
            return super()._get(offset, dtype, count, override_order)

        def _push_field(self, field: Any, skip_sum: bool = False) -> int:
            pushed = int(super()._push_field(field, skip_sum))
            # What follows is the next key's; its name is known once it has been read.
            self._key = ""
            return pushed

        def _get_field_parts(self, orig_offs: int, raw_type: Any) -> Any:
            if int(raw_type) != int(GGUFValueType.ARRAY):
                return super()._get_field_parts(orig_offs, raw_type)
            item, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            kind, count = GGUFValueType(int(item[0])), int(length[0])
            if kind == GGUFValueType.ARRAY:
                raise ValueError("an array of arrays")
            if count <= MAX_LAYERS:
                return super()._get_field_parts(orig_offs, raw_type)
            self.passed_over[self._key] = count
            size = self._texts_size(orig_offs + 12, count) if kind == GGUFValueType.STRING else None
            if size is None:
                size = np.dtype(self.gguf_scalar_to_np[kind]).itemsize * count
            if orig_offs + 12 + size > len(self.data):
                raise _CutError
            return 12 + size, [item, length], [], [GGUFValueType.ARRAY, kind]

        def _texts_size(self, start: int, count: int) -> int:
            """Bytes of so many texts, each with its length before it."""
            self._texts += count
            if self._texts > MAX_TEXTS:
                raise ValueError(f"{self._texts:,} texts")
            length_of = struct.Struct("<Q" if self.endianess == GGUFEndian.LITTLE else ">Q").unpack_from
            data, end, offset = self.data, len(self.data), start
            for _ in range(count):
                if offset + 8 > end:
                    raise _CutError
                offset += 8 + length_of(data, offset)[0]
            return offset - start

        def _get_str(self, offset: int) -> Any:
            parts = super()._get_str(offset)
            if not self._key:
                self._key = bytes(parts[1][:200]).decode("utf-8", "replace")
            return parts

    return HeaderReader
