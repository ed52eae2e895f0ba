"""The header of a GGUF file (llama.cpp's format) becomes a Model; the weights are not read."""

from __future__ import annotations

import re
from pathlib import Path

from kvplan.architectures.gguf.read import read_keys
from kvplan.errors import KvplanError
from kvplan.files.gguf.file import read_header
from kvplan.files.weight_sources import InGguf
from kvplan.model import Model
from kvplan.record import replace

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})")


def read_gguf(path: Path) -> Model:
    """The model in a GGUF file. A file that is cut off inside its token list is enough.

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
    model = read_keys(values, called=name, source=str(path), listed=header.vocab, cut_in=header.cut_in)
    return replace(model, weights=InGguf(path))


def _check_part(path: Path) -> None:
    """Only the first part of a model in several files has the keys."""
    part = _PART.fullmatch(path.stem)
    if part and int(part[2]) != 1:
        first = path.with_name(f"{part[1]}-00001-of-{part[3]}{path.suffix}")
        raise KvplanError(
            "not-first-part", f"{path.name} is part {int(part[2])} of {int(part[3])}", help=f"give {first}"
        )
