"""The header of a GGUF file (llama.cpp's format) becomes a Model; the weights are not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.architectures.config.read import strip_sources
from kvplan.errors import KvplanError, did_you_mean
from kvplan.families import NoCache
from kvplan.model import GGUF_HEADER, Encoder, EncoderInput, Layer, Model, Provenance, runs_of
from kvplan.readers.gguf.architectures import (
    NO_CACHE,
    PLAIN,
    REFUSED,
    SPECIAL,
    Architecture,
    known_architectures,
)
from kvplan.readers.gguf.file import read_header
from kvplan.readers.gguf.layers import Stack, read_stack, refuse_unless_plain
from kvplan.readers.gguf.types import FILE_TYPES, GUESSED
from kvplan.readers.gguf.view import HEADS, GgufView
from kvplan.readers.weight_sources import InGguf

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})")
_FLOATS = {"all_f32": "float32", "f16": "float16", "bf16": "bfloat16"}


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
    name = _architecture_name(values, path)
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    part = _PART.fullmatch(stem)
    view = GgufView(values, name)
    stack, reason = _stack(view, name)
    trunk, keys = strip_sources(stack.trunk)
    drafts, _ = strip_sources(stack.drafts)
    file_type = _file_type(values.get("general.file_type"))
    cut = (f"the file ends inside {header.cut_in}: keys behind it were not seen",) if header.cut_in else ()
    return Model(
        id=part[1] if part else stem,
        source=str(path),
        model_type=name,
        architecture=None,
        runs=runs_of(trunk),
        dtype=_FLOATS.get(file_type or ""),
        max_model_len=_plain(view.optional_integer("context_length")),
        num_attention_heads=int(max(view.per_layer(HEADS, lowest=0) or [0])),
        hidden_size=int(view.optional_integer("embedding_length") or 0),
        vocab_size=int(view.optional_integer("vocab_size", lowest=0) or header.vocab),
        quantization=None if file_type in _FLOATS else file_type,
        encoder=Encoder(EncoderInput.TEXT) if SPECIAL.get(name, Architecture()).encoder_decoder else None,
        draft_layers=tuple(drafts),
        weights=InGguf(path),
        no_cache_reason=reason,
        provenance=Provenance(how=GGUF_HEADER, keys=keys),
        warnings=(*cut, *stack.warnings),
    )


def _plain(value: int | None) -> int | None:
    return None if value is None else int(value)


def _architecture_name(values: Mapping[str, Any], path: Path) -> str:
    kind = values.get("general.type", "model")
    if kind != "model":
        raise KvplanError(
            "not-a-model",
            f"{path}: general.type is {_short(kind)}, not 'model'",
            help="give the model's own GGUF file",
        )
    name = values.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise KvplanError("bad-gguf", f"{path} has no general.architecture")
    if name in REFUSED:
        raise KvplanError("not-a-model", f"general.architecture {name!r} {REFUSED[name]}")
    return name


def _stack(view: GgufView, name: str) -> tuple[Stack, str | None]:
    """The layers, and the reason why there is no cache where there is none."""
    if name in NO_CACHE:
        return Stack([Layer((NoCache(),))] * view.block_count, []), NO_CACHE[name]
    if name in SPECIAL:
        return read_stack(view, SPECIAL[name]), None
    if name not in PLAIN:
        refuse_unless_plain(view)
        stack = read_stack(view, Architecture())
        near = did_you_mean(name, known_architectures())
        hint = f" (nearest known: {near})" if near else ""
        warning = f"general.architecture {_short(name)} is not known{hint}: read as a plain decoder"
        return Stack(stack.trunk, stack.drafts, (warning, *stack.warnings)), None
    return read_stack(view, Architecture()), None


def _check_part(path: Path) -> None:
    """Only the first part of a model in several files has the keys."""
    part = _PART.fullmatch(path.stem)
    if part and int(part[2]) != 1:
        first = path.with_name(f"{part[1]}-00001-of-{part[3]}{path.suffix}")
        raise KvplanError(
            "not-first-part", f"{path.name} is part {int(part[2])} of {int(part[3])}", help=f"give {first}"
        )


def _file_type(number: Any) -> str | None:
    """``q4_k_m`` for general.file_type 15."""
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    number &= ~GUESSED
    return FILE_TYPES.get(number, f"file type {number}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
