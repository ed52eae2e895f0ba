"""``ollama show`` of a model, and Ollama's and LM Studio's JSON, as rows of an Observation.

ollama/ollama 0.33 cmd/cmd.go (showInfo), api/types.go (ShowResponse, ProcessResponse), format/format.go
(HumanNumber); lmstudio-ai/lms src/subcommands/list.ts (psCommand: the SDK's ModelInstanceInfo with status,
queued and parallel).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from kvplan.engines.observed import Count, Rank, Row, exact_count
from kvplan.errors import KvplanError
from kvplan.files.gguf.shown import NUM_CTX, from_line, num_ctx, tensor_bytes, tensors_of
from kvplan.files.json_input import parse_json
from kvplan.later import regex
from kvplan.record import Json
from kvplan.units import GB, KB, MB

Read = tuple[tuple[Row, ...], str, str]
NOTHING: Read = ((), "", "")
NO_GGUF = "no GGUF"
"""The build of a model that LM Studio runs on MLX."""
SHOWN, PS, STUDIO = "output of ollama show", "list of ollama ps", "list of lms ps"
_SECTION = regex(r"\s{1,8}([A-Z][a-z]{3,20})\s*", re.ASCII)
_FACT = regex(
    r"\s+(arch|architecture|parameters|context length|embedding length|quantization)\s{2,}(\S.{0,80}?)\s*",
    re.ASCII,
)
_TENSOR = regex(r"\s+(\S{1,200})\s+([A-Z][A-Z0-9_]{1,10})\s+\[([\d ]{1,80})\]\s*", re.ASCII)
_NUMBER = regex(r"(\d{1,6})(?:\.(\d{1,3}))?([KMB]?)", re.ASCII)
_TIMES = {"": 1, "K": KB, "M": MB, "B": GB}


def show(text: str) -> Read:
    """The sections of ``ollama show``: the model's facts, ``num_ctx`` and, with -v, its tensors."""
    said: dict[str, tuple[str, int]] = {}
    section, context = "", None
    tensors: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if (head := _SECTION.fullmatch(line)) is not None:
            section = head[1]
        elif section == "Model" and (fact := _FACT.fullmatch(line)) is not None:
            said.setdefault(fact[1], (fact[2], number))
        elif section == "Parameters" and (found := NUM_CTX.fullmatch(line)) is not None:
            context = exact_count(int(found[1]), line=number)
        elif section == "Tensors" and (tensor := _TENSOR.fullmatch(line)) is not None:
            tensors.append(tensor_bytes(tensor[2], [int(size) for size in tensor[3].split()]))
    if not said.keys() & {"arch", "architecture"} or "quantization" not in said:
        return NOTHING
    row = Row(
        weights_bytes=_bytes(tensors),
        loaded_context=context,
        parameters=_rounded(said.get("parameters")),
        own_context=_whole(said.get("context length")),
        embedding_length=_whole(said.get("embedding length")),
        build=said["quantization"][0],
    )
    return (row,), "ollama", SHOWN


def in_json(text: str) -> Read:
    """The JSON of ``/api/show``, of ``/api/ps``, or of ``lms ps --json``."""
    if text.lstrip()[:1] not in ("{", "["):
        return NOTHING
    try:
        found = parse_json(f'{{"it": {text}}}'.encode(), name="the log")["it"]
    except KvplanError:
        return NOTHING
    if isinstance(found, list):
        return tuple(_instances(found)), "lmstudio", STUDIO
    if isinstance(found, Mapping) and isinstance(found.get("model_info"), Mapping):
        return (_described(found),), "ollama", SHOWN
    models = found.get("models") if isinstance(found, Mapping) else None
    if isinstance(models, list):
        return tuple(_running(models)), "ollama", PS
    return NOTHING


def _described(said: Json) -> Row:
    info, details = said["model_info"], said.get("details")
    details = details if isinstance(details, Mapping) else {}
    name = str(info.get("general.architecture") or details.get("family") or "")
    stated = info.get("general.parameter_count")
    parameters = _count(stated)
    if parameters is None:
        parameters = _rounded((str(details.get("parameter_size")), 0))
    return Row(
        Rank(from_line(said)),
        weights_bytes=_bytes([size for _, size, _ in tensors_of(said)]),
        loaded_context=_count(num_ctx(said)),
        parameters=parameters,
        own_context=_count(info.get(f"{name}.context_length")),
        embedding_length=_count(info.get(f"{name}.embedding_length")),
        build=_text(details.get("quantization_level")),
    )


def _running(models: Sequence[object]) -> Iterable[Row]:
    for one in models:
        size = _count(one.get("size")) if isinstance(one, Mapping) else None
        if not isinstance(one, Mapping) or size is None or not isinstance(one.get("name"), str):
            continue
        on_gpu, details = _count(one.get("size_vram")), one.get("details")
        share = None
        if on_gpu is not None and size.value:
            percent = 100 - round(Fraction(100 * (size.value - on_gpu.value), size.value))
            share = exact_count(percent, printed=f"{percent} %")
        yield Row(
            Rank(one["name"]),
            loaded_bytes=size,
            loaded_gpu_percent=share,
            loaded_context=_count(one.get("context_length")),
            build=_text(details.get("quantization_level")) if isinstance(details, Mapping) else None,
        )


def _instances(models: Sequence[object]) -> Iterable[Row]:
    for one in models:
        if not isinstance(one, Mapping) or not isinstance(one.get("modelKey"), str):
            continue
        build = one.get("quantization")
        is_gguf = one.get("format") in (None, "gguf")
        named = _text(build.get("name")) if isinstance(build, Mapping) else None
        yield Row(
            Rank(one["modelKey"] if is_gguf else str(one.get("path") or one["modelKey"])),
            file_bytes=_count(one.get("sizeBytes")),
            own_context=_count(one.get("maxContextLength")),
            loaded_context=_count(one.get("contextLength")),
            loaded_slots=_count(one.get("parallel")),
            build=named if is_gguf else NO_GGUF,
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> Count | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return exact_count(value)


def _whole(said: tuple[str, int] | None) -> Count | None:
    return exact_count(int(said[0]), line=said[1]) if said is not None and said[0].isdecimal() else None


def _rounded(said: tuple[str, int] | None) -> Count | None:
    """``8.2B``: half of the last digit to either side."""
    found = None if said is None else _NUMBER.fullmatch(said[0])
    if said is None or found is None:
        return None
    digits = found[2] or ""
    unit = Fraction(_TIMES[found[3]], 10 ** len(digits))
    value = int(found[1] + digits) * unit
    half = unit / 2 if unit > 1 else Fraction(0)
    return Count(int(value), int(value - half), int(value + half), said[0], said[1])


def _bytes(tensors: Sequence[int]) -> Count | None:
    """Σ; None where there are none, or one is of no known type."""
    return exact_count(sum(tensors)) if tensors and all(tensors) else None
