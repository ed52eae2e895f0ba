"""A GGUF file (llama.cpp's format) becomes a Model by its header, which lists the bytes of its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kvplan.architectures.gguf.read import read_keys
from kvplan.errors import KvplanError, RefusedError
from kvplan.files.folders import is_file
from kvplan.files.gguf.file import read_header
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.weights.facts import WeightSources, no_source

_SHARD = regex(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)

_PART = regex(r"(.*)-(\d{5})-of-(\d{5})")


@record()
class InGguf:
    """The tensors that a GGUF file lists, read when somebody asks for them."""

    path: Path

    def sources(self, model: Model) -> WeightSources:
        return WeightSources(problem=no_source(model.id), named=lambda: tensor_bytes(self.path))


def read_gguf(path: Path, *, as_draft: bool = False) -> Model:
    """The model in a GGUF file. A file that is cut off inside its token list is enough. as_draft: it is to
    draft for another.

    Raises:
        KvplanError: no-such-file, bad-gguf (not GGUF, cut off, values that cannot be), not-first-part,
            not-a-model, missing-key, bad-config, unknown-model-type, unknown-layer-type.
    """
    _check_part(path)
    header = read_header(path)
    values = header.values
    if values.get("split.no"):
        raise KvplanError("not-first-part", f"{path} is not the first part of a model in several files")
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    part = _PART.fullmatch(stem)
    name = part[1] if part else stem
    model = read_keys(
        values, called=name, source=str(path), listed=header.vocab, cut_in=header.cut_in, as_draft=as_draft
    )
    return replace(model, weights=InGguf(path))


def _check_part(path: Path) -> None:
    """Only the first part of a model in several files has the keys."""
    part = _PART.fullmatch(path.stem)
    if part and int(part[2]) != 1:
        first = path.with_name(f"{part[1]}-00001-of-{part[3]}{path.suffix}")
        raise KvplanError(
            "not-first-part", f"{path.name} is part {int(part[2])} of {int(part[3])}", help=f"give {first}"
        )


def tensor_bytes(path: Path) -> Mapping[str, int]:
    """Name → bytes, over every part of a model in several files; read once while the files are the same.

    Raises KvplanError(no-weights) where a part is missing, cut off or has a type that is not known.
    """
    found: dict[str, int] = {}
    for part in _parts(path):
        try:
            state = part.stat()
        except OSError as error:
            raise _unknown(f"{part} cannot be read: {error.strerror or error}") from error
        found.update(_of_file(part, state.st_size, state.st_mtime_ns))
    if not found:
        raise _unknown(f"{path} lists no tensors")
    return found


def _parts(path: Path) -> list[Path]:
    part = _SHARD.fullmatch(path.name)
    if part is None:
        return [path]
    count = int(part[3])
    files = [path.with_name(f"{part[1]}-{index:05d}-of-{part[3]}.gguf") for index in range(1, count + 1)]
    missing = next((file for file in files if not is_file(file)), None)
    if missing is not None:
        raise _unknown(f"{missing.name} is not beside {path.name}")
    return files


@lru_cache(maxsize=256)
def _of_file(path: Path, size: int, changed: int) -> Mapping[str, int]:
    """size, changed: of the file, for which the answer is kept."""
    try:
        header = read_header(path, tensors=True)
    except KvplanError as error:
        raise _unknown(f"the list of tensors in {path} cannot be read: {error.message}") from error
    if header.tensors is None:
        raise _unknown(f"{path} ends inside {header.cut_in or 'its keys'}, before its list of tensors does")
    return header.tensors


def _unknown(problem: str) -> KvplanError:
    return RefusedError("no-weights", problem, help="give the weights of one GPU yourself: --weights 15GiB")
