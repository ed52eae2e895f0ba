"""Lists that programs in front of an engine print of their models, as an Observation.

``ollama ps`` (ollama/ollama 0.33 cmd/cmd.go, ListRunningHandler; format/bytes.go: GB of 1000³, from 10 on
without decimals and cut, below with one and rounded), ``lms load --estimate-only`` (lmstudio-ai/lms
src/subcommands/load.ts: GiB of 1024³ with two decimals) and ``lms ps`` (list.ts: sizes of files;
formatBytes.ts: GB of 1000³, two decimals). ``ollama show`` and JSON: `kvplan.files.logs.shown`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from kvplan.engines.doors import door_of
from kvplan.engines.observed import Count, Note, Observation, Rank, Row, Setting
from kvplan.engines.observed.printed import parse_count
from kvplan.files.logs.shown import NOTHING, STUDIO, Read, in_json, show
from kvplan.later import regex
from kvplan.units import GB, GIB, KB, MB, MIB, TB

PROGRAM = "program"
"""The setting of an observation that was made of such a list: the program's name."""
_ESTIMATE = "estimate of lms load"
_ESCAPES = regex(r"\x1b\[[0-9;]{0,20}m")
_OLLAMA = regex(r"^NAME\s+ID\s+SIZE\s+PROCESSOR(?P<context>\s+CONTEXT)?\s+UNTIL\s*$", re.MULTILINE)
_ROW = regex(
    r"^(?P<name>\S{1,200})\s+[0-9a-f]{6,64}\s+(?P<size>\d{1,6}(?:\.\d)?) (?P<unit>[KMGT]B)\s+"
    r"(?:100% (?P<one>[CG]PU)|\d{1,3}%/(?P<gpu>\d{1,3})% CPU/GPU)(?:\s+(?P<context>\d{1,9}))?(?:\s|$)",
    re.ASCII,
)
_UNITS = {"B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": TB}
_LMS = regex(r"^\s*(Model|Context Length|Estimated GPU Memory|Estimated Total Memory):\s*(\S.{0,200}?)\s*$")
_PS_HEAD = regex(r"^\s*IDENTIFIER {2,}MODEL {2,}STATUS {2,}SIZE {2,}CONTEXT")
_SIZE = regex(r"(\d{1,6}(?:\.\d{1,2})?) ([KMGT]?B)", re.ASCII)
_AMOUNT = regex(r"(?P<size>\d{1,3}(?:,\d{3})*(?:\.\d{1,3})?) ?(?P<unit>GiB|MiB)", re.ASCII)


def listed_in(text: str) -> Observation | None:
    """The models of a list; None where the text is none."""
    text = _ESCAPES.sub("", text)
    for read in _READERS:
        rows, program, source = read(text)
        if rows:
            settings = {PROGRAM: Setting(program)}
            lines = text.count("\n") + 1
            said = "LM Studio estimates it before it loads: no bytes were taken"
            notes = (Note(said),) if source == _ESTIMATE else ()
            return Observation(
                door_of(program).engine, source=source, settings=settings, rows=rows, notes=notes, lines=lines
            )
    return None


def _ollama(text: str) -> Read:
    head = _OLLAMA.search(text)
    found = []
    for number, line in enumerate(text.splitlines() if head is not None else (), 1):
        row = _ROW.match(line.strip())
        if row is None:
            continue
        size = _human(row["size"], _UNITS[row["unit"]], f"{row['size']} {row['unit']}", number)
        share = row["gpu"] or ("100" if row["one"] == "GPU" else "0")
        context = row["context"]
        found.append(
            Row(
                Rank(row["name"]),
                loaded_bytes=size,
                loaded_gpu_percent=_percent(int(share), number),
                loaded_context=None if context is None else parse_count(context, "n", line=number),
            )
        )
    return tuple(found), "ollama", "list of ollama ps"


def _human(size: str, unit: int, printed: str, line: int) -> Count:
    """Bytes that print so: cut from 10 on, rounded to a tenth below."""
    value = Fraction(size)
    if value >= 10:
        low, high = value * unit, (value + 1) * unit - 1
    else:
        low, high = (value - Fraction(1, 20)) * unit, (value + Fraction(1, 20)) * unit
    return Count(int(value * unit), int(low), int(high), printed, line)


def _percent(share: int, line: int) -> Count:
    """A share that was rounded; all or nothing is exact."""
    return Count(share, share, share, f"{share} %", line)


def _lms(text: str) -> Read:
    said: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (found := _LMS.match(line)) is not None:
            said.setdefault(found[1], (found[2], number))
    total = _amount(said.get("Estimated Total Memory"))
    if "Model" not in said or total is None:
        return NOTHING
    context = said.get("Context Length")
    row = Row(
        Rank(said["Model"][0]),
        loaded_bytes=total,
        loaded_context=None if context is None else parse_count(context[0], "n", line=context[1]),
    )
    return (row,), "lmstudio", _ESTIMATE


def _amount(said: tuple[str, int] | None) -> Count | None:
    found = None if said is None else _AMOUNT.match(said[0])
    if said is None or found is None:
        return None
    unit = GIB if found["unit"] == "GiB" else MIB
    return _decimals(found["size"].replace(",", ""), unit, f"{found['size']} {found['unit']}", said[1])


def _lms_ps(text: str) -> Read:
    """Columns are told apart by two spaces and named in the head; the last may be empty."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _PS_HEAD.match(line)), None)
    if start is None:
        return NOTHING
    names = _cells(lines[start])
    found = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        cells = dict(zip(names, _cells(line)))
        size = _SIZE.fullmatch(cells.get("SIZE", ""))
        if size is not None and cells["MODEL"]:
            file_bytes = _decimals(size[1], _UNITS[size[2]], size[0], number)
            context, slots = (cells.get(name, "") for name in ("CONTEXT", "PARALLEL"))
            found.append(
                Row(
                    Rank(cells["MODEL"]),
                    file_bytes=file_bytes,
                    loaded_context=parse_count(context, "n", line=number) if context.isdecimal() else None,
                    loaded_slots=parse_count(slots, "n", line=number) if slots.isdecimal() else None,
                )
            )
    return tuple(found), "lmstudio", STUDIO


def _cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def _decimals(size: str, unit: int, printed: str, line: int) -> Count:
    """A figure that was rounded to its last decimal."""
    value, step = Fraction(size) * unit, Fraction(unit, 2 * 10 ** len(size.partition(".")[2]))
    step = step if unit > 1 else Fraction(0)
    return Count(int(value), int(value - step), int(value + step), printed, line)


_READERS: tuple[Callable[[str], Read], ...] = (_ollama, _lms, _lms_ps, show, in_json)
