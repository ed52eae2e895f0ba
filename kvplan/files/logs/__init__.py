"""A running engine's log as an Observation.

    observation = read_log("server.log")
    observation.get("available_kv_bytes")

vLLM (V0 and V1), SGLang, TensorRT-LLM and llama.cpp; which one it is follows from the lines. Logs are
streamed: a gigabyte takes the memory of a chunk.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from kvplan.engines.folders import having
from kvplan.engines.observed import Observation
from kvplan.engines.observed.assemble import Reading
from kvplan.engines.observed.rules import Dialect
from kvplan.engines.observed.stream import CHUNK, Scanner
from kvplan.errors import KvplanError, did_you_mean
from kvplan.files.json_input import check_text
from kvplan.files.logs.listed import listed_in

DIALECTS: tuple[Dialect, ...] = tuple(part.DIALECT for part in having("log").values())
SPEAKING = tuple(dialect.engine for dialect in DIALECTS)
_JSON = 4 * CHUNK
"""Of what begins as JSON: /api/show lists every tensor of a model."""
SURE_SCORE = 12
"""A dialect this far ahead of the others is the log's; the others are no longer looked for."""


def read_log(path: Path | str, *, engine: str | None = None) -> Observation:
    """The observation of a log file. Raises KvplanError(no-such-file | not-a-file |
    unreadable-file | unknown-log)."""
    file = Path(path).expanduser()
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise KvplanError("not-a-file", f"{path} is no file", help="a log comes from a file or a pipe")
        with file.open("rb") as stream:
            return parse_log(blocks(stream), engine=engine, name=str(path))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise KvplanError("no-such-file", f"{path} does not exist") from error
    except OSError as error:
        raise KvplanError("unreadable-file", f"{path} cannot be read: {error.strerror}") from error


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """A binary stream in blocks, as `parse_log` likes them (reads what is there; a pipe may give less)."""
    read = getattr(stream, "read1", stream.read)
    while block := read(CHUNK):
        yield block


def parse_log(pieces: Iterable[bytes], *, engine: str | None = None, name: str = "the log") -> Observation:
    """The observation of a log given as bytes in pieces (lines, blocks; cut anywhere).

    engine: take it for this engine's log instead of finding out. name: what messages call it.
    Raises KvplanError(unknown-log) where no line of any engine is found, (unknown-engine).
    """
    readings = {id(rule): reading for reading in _readings(engine) for rule in reading.dialect.rules}
    candidates = list(dict.fromkeys(readings.values()))
    scanner = Scanner([rule for reading in candidates for rule in reading.dialect.rules])
    narrowed = len(candidates) == 1
    began: list[bytes] = []
    for hit in scanner.hits(_noted(pieces, began)):
        reading = readings[id(hit.rule)]
        reading.take(hit, cut=hit.cut)
        if not narrowed and reading.score >= SURE_SCORE:
            rest = max(other.score for other in candidates if other is not reading)
            if reading.score >= 4 * rest + SURE_SCORE:
                narrowed, scanner.rules = True, reading.dialect.rules
    best = max(candidates, key=lambda reading: reading.score)
    if best.score == 0:
        listed = listed_in(b"".join(began).decode("utf-8", "replace"))
        if listed is not None:
            return listed
        check_text(began[0] if began else b"", name)
        raise KvplanError(
            "unknown-log",
            f"{name} holds no start-up line of {'an engine' if engine is None else engine} that kvplan knows",
            detail=f"lines searched: {scanner.lines:,}, for those of {', '.join(SPEAKING)}",
            help="give the log from the start of the server, with the lines about memory and KV cache",
        )
    return best.observation(lines=scanner.lines, cut=scanner.cut)


def _noted(pieces: Iterable[bytes], began: list[bytes]) -> Iterator[bytes]:
    """The pieces, of which the first bytes are kept."""
    kept = 0
    for piece in pieces:
        if kept < (_JSON if began and began[0].lstrip()[:1] in (b"{", b"[") else CHUNK):
            began.append(piece)
            kept += len(piece)
        yield piece


def _readings(engine: str | None) -> list[Reading]:
    if engine is None:
        return [Reading(dialect) for dialect in DIALECTS]
    found = [Reading(dialect) for dialect in DIALECTS if dialect.engine == engine]
    if not found:
        near = did_you_mean(engine, SPEAKING)
        raise KvplanError(
            "unknown-engine",
            f"logs of {engine!r} are not known",
            help=f"did you mean {near}?" if near else f"one of {', '.join(SPEAKING)}",
        )
    return found
