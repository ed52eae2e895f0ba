"""Which release a build is nearest to, by the source lines that its log prints: ``[gpu_worker.py:508]``.

``data/source_lines.tsv`` has the lines of every release (vllm-project/vllm, scripts/record_source_lines.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).parent / "data" / "source_lines.tsv"
HEAD = "file\tanchor\tlines"
FAR, NEAR = 400, 60
"""Lines between two places beyond which they say nothing more of how near two builds are; and how far apart
they may lie on average for one to be taken for the other (neighbouring releases: 2 to 40)."""


def nearest_release(places: Mapping[tuple[str, str], int]) -> tuple[str, bool] | None:
    """The release whose source logs at the places of a log, and whether all of them are its own; None where
    no place is known. places: (file, anchor) → line.

    Of two that are equally near the older one: a build between releases has what the older one had.
    """
    table = _table()
    known = {key: line for key, line in places.items() if key in table}
    if not known:
        return None
    scores: dict[str, int] = {}
    for release in _releases():
        scores[release] = sum(
            min(FAR, abs(table[key][release] - line)) if release in table[key] else FAR
            for key, line in known.items()
        )
    best = min(scores, key=scores.__getitem__)
    return None if scores[best] > NEAR * len(known) else (best, scores[best] == 0)


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, str], dict[str, int]]:
    table: dict[tuple[str, str], dict[str, int]] = {}
    for row in FILE.read_text(encoding="utf-8").splitlines()[1:]:
        file, anchor, lines = row.split("\t")
        pairs = (pair.partition("=") for pair in lines.split())
        table[file, anchor] = {release: int(line) for release, _, line in pairs}
    return table


@lru_cache(maxsize=1)
def _releases() -> tuple[str, ...]:
    names = {release for lines in _table().values() for release in lines}
    return tuple(sorted(names, key=lambda name: tuple(int(part) for part in name.split("."))))
