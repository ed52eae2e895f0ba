"""What each attention backend of vLLM takes, by release: ``data/backends.tsv``.

The file is written by scripts/make_vllm_backends.py from the backends' own classes in the wheels of
vllm-project/vllm 0.11 to 0.33 (vllm/v1/attention/backends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kvplan.engines.base import parse_version

FILE = Path(__file__).parent / "data" / "backends.tsv"
HEADER = (
    "backend", "since", "until", "kind", "capabilities", "heads", "blocks", "kv", "dtypes", "sinks", "prefix",
)  # fmt: skip


class BackendRow(NamedTuple):
    """One backend in a run of releases (empty: the oldest or newest that was read).

    kind: plain, mla or sparse. capabilities: NVIDIA's, or any. heads: widths, ``>=32``, ``<=256`` or any.
    blocks: kernel block sizes, ``x16`` for any multiple, ``preferred=64`` where it prefers another than the
    usual. kv: words of --kv-cache-dtype. ``?``: its code asks for more than these.
    """

    name: str
    since: str
    until: str
    kind: str
    capabilities: str
    heads: str
    blocks: str
    kv: str
    dtypes: str
    sinks: str
    prefix: str

    def takes_width(self, width: int) -> bool:
        """Whether heads (or latents) of a width are served; so is any where its code could not be asked."""
        if self.heads in ("any", "?"):
            return True
        if self.heads[:2] in (">=", "<="):
            bound = int(self.heads[2:])
            return width >= bound if self.heads[0] == ">" else width <= bound and width % 8 == 0
        return str(width) in self.heads.split(",")

    def takes_kv(self, word: str) -> bool:
        """Whether it keeps a cache of this word."""
        return self.kv == "any" or word in self.kv.split(",")

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether it runs on NVIDIA GPUs of a compute capability."""
        if self.capabilities in ("any", "?"):
            return True
        return f"{capability[0]}.{capability[1]}" in self.capabilities.split(",")

    def block_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        """(bases of multiples, exact sizes, the size it prefers where that is not the usual)."""
        words = [] if self.blocks == "?" else self.blocks.split(",")
        preferred = next((int(word[10:]) for word in words if word.startswith("preferred=")), None)
        multiples = tuple(int(word[1:]) for word in words if word.startswith("x"))
        exact = tuple(int(word) for word in words if word.isdigit())
        return multiples, exact, preferred


def read_rows(text: str) -> list[BackendRow]:
    """The rows below the header."""
    header, *lines = text.splitlines()
    assert tuple(header.split("\t")) == HEADER
    return [BackendRow(*line.split("\t")) for line in lines]


def rows_text(rows: Iterable[BackendRow]) -> str:
    """The file's text."""
    return "\n".join("\t".join(row) for row in (HEADER, *rows)) + "\n"


@cache
def backend_rows() -> Mapping[str, tuple[BackendRow, ...]]:
    """Every backend's rows, oldest first."""
    found: dict[str, list[BackendRow]] = {}
    for row in read_rows(FILE.read_text(encoding="utf-8")):
        found.setdefault(row.name, []).append(row)
    return MappingProxyType({name: tuple(rows) for name, rows in found.items()})


@cache
def row_of(name: str, version: str) -> BackendRow | None:
    """The backend as a release has it; None where that release has none of the name."""
    asked = parse_version(version)[:2]
    for row in backend_rows().get(name, ()):
        since, until = parse_version(row.since or "0")[:2], parse_version(row.until or "99")[:2]
        if since <= asked <= until:
            return row
    return None
