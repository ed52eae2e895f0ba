"""Dynamo's workers: how each starts its engine, and which release of it is in which image.

ai-dynamo/dynamo components/src/dynamo/vllm/backend_args.py (--is-prefill-worker, until 1.0;
--disaggregation-mode from then on), components/src/dynamo/sglang; releases: docs/fern/assets/releases.json
at 1.3.0, and the pages "Compatibility" of its documentation for 1.3.1 to 1.5.1; 1.6.0 and 1.6.1: what the
package ai-dynamo requires of its extras, which is what the pages say of 1.0.2 to 1.5.1 too.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvplan.engines.folders import part_of
from kvplan.engines.release_rules import reached
from kvplan.record import record

FILE = Path(__file__).parent / "data" / "dynamo_releases.tsv"
REGISTRY = "nvcr.io/nvidia/ai-dynamo/"
OWNER = "ai-dynamo/"
PREFILL, DECODE = "prefill", "decode"
_MODE_SINCE = "1.0"


@record()
class Worker:
    """One engine's worker. image: in the registry; start: the words before its own; model: the option that
    names the checkpoint; legacy: role → the switch of releases before 1.0; sides: words of both kinds where
    some engines read prompts and others answer; renamed: (the server's option, the worker's)."""

    image: str
    start: tuple[str, ...]
    model: str
    legacy: tuple[tuple[str, str], ...] = ()
    sides: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def role(self, role: str, release: str | None) -> tuple[str, ...]:
        """The words that give a worker one role; release: of Dynamo, None for one that nobody knows."""
        old = release is not None and not reached(release, _MODE_SINCE)
        return (dict(self.legacy)[role],) if old and self.legacy else ("--disaggregation-mode", role)


PARSERS = (
    ("--tool-call-parser", "--dyn-tool-call-parser"),
    ("--reasoning-parser", "--dyn-reasoning-parser"),
    ("--chat-template", "--custom-jinja-template"),
)
"""Tasks of the engine's server that Dynamo's frontend takes over (components/src/dynamo/common)."""


def worker_of(engine: str) -> Worker | None:
    """The engine's worker; None where Dynamo has none whose words are known."""
    part = part_of(engine, "dynamo")
    return None if part is None else part.WORKER


WRAPPED = tuple((own, server) for server, own in PARSERS)
"""(The worker's option, the server's)."""


@cache
def releases() -> tuple[tuple[str, dict[str, str]], ...]:
    """(Dynamo's release, engine → its release in it), the newest first."""
    head, *rows = FILE.read_text(encoding="utf-8").splitlines()
    engines = head.split("\t")[1:]
    cells = (row.split("\t") for row in rows)
    return tuple((first, dict(zip(engines, rest, strict=True))) for first, *rest in cells)


def engine_in(engine: str, tag: str) -> str | None:
    """The engine's release in an image of a tag (``1.5.1``, ``1.5.0-efa``); None where that is not known."""
    return dict(releases()).get(tag.partition("-")[0], {}).get(engine)


def release_with(engine: str, version: str) -> str | None:
    """The newest release of Dynamo with that release of an engine: ``0.28`` is any of its patches."""
    asked = version.split(".")
    known = ((release, pins[engine].split(".")) for release, pins in releases() if engine in pins)
    return next((release for release, own in known if own[: len(asked)] == asked), None)


def newest_with(engine: str) -> tuple[str, str]:
    """(The newest release of Dynamo, the engine's in it)."""
    return next((release, pins[engine]) for release, pins in releases() if engine in pins)
