"""The headers of safetensors files: names, element types and shapes of all tensors, without the data.

Format: eight bytes with the header's length (little endian), then a JSON object of tensors with dtype, shape
and data_offsets, and ``__metadata__``. Source: huggingface/safetensors README.md, "Format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from kvplan.errors import KvplanError
from kvplan.files.folders import is_file
from kvplan.files.json_input import read_limited, regular_size
from kvplan.record import record
from kvplan.units import MIB, ceil_div
from kvplan.weights.facts import Index
from kvplan.weights.stored import DTYPE_BITS, Checkpoint, Stored

INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER = 64 * MIB
"""Of one file, and of all files of a checkpoint together."""
MAX_TENSORS = 300_000
"""Of a checkpoint: the largest published ones have about 210,000."""
MAX_VALUES = 2_500_000
"""Of a header or an index, about eight for each tensor: they bound what it takes once it is read."""
MAX_FILES = 10_000
_LARGEST = 2**53
PREFIX = 8


def read_checkpoint(directory: Path) -> Checkpoint | Index | None:
    """Read the files next to a config: all headers; or only the index, where the files are not there; or
    nothing.

    Raises KvplanError(bad-safetensors | bad-json | unreadable-file).
    """
    index = directory / INDEX_NAME
    if is_file(index):
        listed = parse_index(read_limited(index, MAX_HEADER), name=str(index))
        files = [directory / name for name in listed.files]
        if not all(is_file(file) for file in files):
            return listed.index
    else:
        files = sorted(directory.glob("*.safetensors"))
        # Some repositories hold the same weights twice, once in the maker's own layout.
        own = [file for file in files if not file.name.startswith("consolidated")]
        files = own or files
    if not files:
        return None
    headers = Headers()
    for file in files:
        _read_file(file, headers)
    return Checkpoint(tuple(headers.tensors), str(directory))


class Headers:
    """The headers of a checkpoint's files, read one after the other and bounded together."""

    def __init__(self) -> None:
        self.tensors: list[Stored] = []
        self._names: set[str] = set()
        self._bytes = 0

    def expect(self, length: int, name: str) -> None:
        """A header of that length is going to be read. Raises KvplanError(bad-safetensors)."""
        self._bytes += length
        if self._bytes > MAX_HEADER:
            raise _bad(name, f"the headers of its files are larger than {MAX_HEADER // MIB} MiB")

    def add(self, data: bytes, name: str, *, data_bytes: int | None = None) -> None:
        """The tensors of one more header. Raises KvplanError(bad-safetensors)."""
        found = parse_header(data, name, data_bytes=data_bytes)
        self.tensors += found
        if len(self.tensors) > MAX_TENSORS:
            raise _bad(name, f"its files have more than {MAX_TENSORS:,} tensors")
        twice = next((one.name for one in found if one.name in self._names), None)
        if twice is not None:
            raise _bad(name, f"{twice[:80]!r} stands in another of its files too: there are two checkpoints")
        self._names.update(one.name for one in found)


def _read_file(path: Path, headers: Headers) -> None:
    size = regular_size(path)
    try:
        with path.open("rb") as stream:
            _read(stream, size, str(path), headers)
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror or error}") from error


def _read(stream: BinaryIO, size: int, name: str, headers: Headers) -> None:
    length = header_length(stream.read(PREFIX), name)
    if PREFIX + length > size:
        raise _bad(name, f"its header of {length:,} bytes is longer than the file")
    headers.expect(length, name)
    headers.add(stream.read(length), name, data_bytes=size - PREFIX - length)


def header_length(prefix: bytes, name: str) -> int:
    """The length that the first eight bytes state, checked against the limit."""
    if len(prefix) < PREFIX:
        raise _bad(name, "it has fewer than 8 bytes")
    length = int.from_bytes(prefix[:PREFIX], "little")
    if prefix.startswith(b"version "):
        raise _bad(name, "it is a Git LFS pointer: run `git lfs pull` to get the file itself")
    if not 2 <= length <= MAX_HEADER:
        raise _bad(name, f"its header would have {length:,} bytes")
    return length


def parse_header(data: bytes, name: str, *, data_bytes: int | None = None) -> list[Stored]:
    """The tensors of a header; data_bytes: what follows it, where that is known.

    They lie one behind the other, without holes and from the first byte on, as the library that loads them
    demands: huggingface/safetensors safetensors/src/tensor.rs, Metadata.validate @ 000a16f.
    """
    table = _object(data, name)
    found = [_tensor(key, entry, name, data_bytes) for key, entry in table.items() if key != "__metadata__"]
    end = 0
    for tensor, (start, stop) in sorted(found, key=lambda one: one[1]):
        if start != end:
            raise _bad(
                name, f"{tensor.name[:80]!r} begins at byte {start:,}, and what is before ends at {end:,}"
            )
        end = stop
    if data_bytes is not None and end != data_bytes:
        raise _bad(name, f"its tensors end at byte {end:,} of {data_bytes:,}")
    return [tensor for tensor, _ in found]


def _object(data: bytes, name: str) -> dict[str, object]:
    """A JSON object whose size the caller has bounded; its values are counted before it is read."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise _bad(name, f"it has more than {MAX_VALUES:,} values")
    try:
        table = json.loads(data, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _bad(name, f"it is not JSON: {error}") from error
    if not isinstance(table, dict) or len(table) > MAX_TENSORS:
        raise _bad(name, "it is not a table of tensors")
    return table


def _tensor(key: str, entry: object, name: str, data_bytes: int | None) -> tuple[Stored, tuple[int, int]]:
    if not isinstance(entry, Mapping):
        raise _bad(name, f"{key[:80]!r} is not a tensor")
    dtype = entry.get("dtype")
    shape, offsets = _whole_numbers(entry.get("shape")), _whole_numbers(entry.get("data_offsets"))
    if dtype not in DTYPE_BITS:
        raise _bad(name, f"{key[:80]!r} has the unknown dtype {str(dtype)[:20]!r}")
    if shape is None or offsets is None or len(offsets) != 2:
        raise _bad(name, f"{key[:80]!r} has no proper shape and offsets")
    tensor = Stored(key, dtype, shape)
    if tensor.elements > _LARGEST:
        raise _bad(name, f"{key[:80]!r} has {tensor.elements:,} elements")
    span = offsets[1] - offsets[0]
    if span != ceil_div(tensor.elements * DTYPE_BITS[dtype], 8):
        raise _bad(name, f"{key[:80]!r} has {span:,} bytes for {tensor.elements:,} × {dtype}")
    if data_bytes is not None and offsets[1] > data_bytes:
        raise _bad(name, f"{key[:80]!r} ends beyond the file: it is cut off")
    return tensor, (offsets[0], offsets[1])


def _whole_numbers(value: Any) -> tuple[int, ...] | None:
    """A list of sizes, or None where it is none."""
    fine = isinstance(value, list) and all(
        isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry <= _LARGEST for entry in value
    )
    return tuple(value) if fine else None


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return table


@record()
class Listed:
    """An index: the names of the files, and what it says about the weights."""

    files: tuple[str, ...]
    index: Index


def parse_index(data: bytes, *, name: str) -> Listed:
    """model.safetensors.index.json. Raises KvplanError(bad-safetensors | bad-json)."""
    table = _object(data, name)
    names, metadata = table.get("weight_map"), table.get("metadata")
    if not isinstance(names, Mapping) or not names:
        raise _bad(name, "it has no weight_map")
    files = sorted({str(file) for file in names.values()})
    if len(files) > MAX_FILES or any(not _is_plain(file) for file in files):
        raise _bad(name, "its weight_map names something other than files beside it")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total <= _LARGEST:
        raise _bad(name, "it does not say how many bytes there are (metadata.total_size)")
    return Listed(tuple(files), Index(total, tuple(str(key) for key in names), name))


def _is_plain(file: str) -> bool:
    """A file name without folders, so that an index cannot point outside its directory."""
    return (
        file.endswith(".safetensors")
        and not any(sign in file for sign in ("/", "\\", "\0"))
        and ".." not in file
    )


def _bad(name: str, why: str) -> KvplanError:
    return KvplanError("bad-safetensors", f"{name} is not a safetensors checkpoint: {why}")
