"""Shared by the readers of files: the surroundings of a server, and one that cannot be read."""

from __future__ import annotations

from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.named import NamedTuple


class Broken(NamedTuple):
    """A server of a file that cannot be read."""

    name: str
    error: KvplanError


class Beside(NamedTuple):
    """Facts beside a file. name: of its server where there is one. engine: ``vllm@0.32`` in place of
    what an image says. folder: from which its files are meant. file: its own name."""

    name: str
    engine: str | None = None
    folder: Path = Path()
    file: str = ""
