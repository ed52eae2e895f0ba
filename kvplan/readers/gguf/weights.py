"""Bytes of the tensors in a GGUF file: names, dimensions and types from its header; no weights are read."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError, RefusedError
from kvplan.readers.gguf.file import reader_class

MAX_TENSORS = 100_000
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)


def tensor_bytes(path: Path) -> dict[str, int]:
    """Name → bytes, over every part of a model in several files.

    bytes = elements / elements of a block · bytes of a block, by the ggml type (gguf.GGML_QUANT_SIZES).
    Raises KvplanError(no-weights) where a part is missing, cut off or has a type that gguf does not know.
    """
    found: dict[str, int] = {}
    for part in _parts(path):
        found.update(_of_file(part))
    if not found:
        raise _unknown(f"{path} lists no tensors")
    return found


def _parts(path: Path) -> list[Path]:
    part = _PART.fullmatch(path.name)
    if part is None:
        return [path]
    count = int(part[3])
    files = [path.with_name(f"{part[1]}-{index:05d}-of-{part[3]}.gguf") for index in range(1, count + 1)]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise _unknown(f"{missing.name} is not beside {path.name}")
    return files


def _of_file(path: Path) -> dict[str, int]:
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    base: Any = reader_class()
    found: dict[str, int] = {}

    class TensorReader(base):  # type: ignore[misc]
        def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list[Any]]:
            if self.cut_in is not None or count > MAX_TENSORS:
                raise ValueError
            for _ in range(int(count)):
                length = int(self._get(offs, np.uint64)[0])
                name = bytes(self._get(offs + 8, np.uint8, length)).decode("utf-8")
                offs += 8 + length
                ranks = int(self._get(offs, np.uint32)[0])
                if ranks > 8:
                    raise ValueError
                dims = [int(value) for value in self._get(offs + 4, np.uint64, ranks)]
                offs += 4 + 8 * ranks
                kind = GGMLQuantizationType(int(self._get(offs, np.uint32)[0]))
                elements, size = GGML_QUANT_SIZES[kind]
                found[name] = prod(dims) * size // elements
                offs += 12
            return offs, []

    try:
        TensorReader(str(path))
    # The file's end is an exception of its own, private to the reader; any of them means the same here.
    except Exception as error:
        raise _unknown(f"the list of tensors in {path} cannot be read") from error
    return found


def _unknown(problem: str) -> KvplanError:
    return RefusedError("no-weights", problem, help="give the weights of one GPU yourself: --weights 15GiB")
