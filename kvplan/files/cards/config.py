"""The config that a card carries: JSON text in the YAML, parsed when a weight or a width is asked for.

A variant has only the keys on the top in which it differs from its card (``config``) and the names of those
that it lacks (``config_without``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 96


class CardConfig(Mapping[str, Any]):
    """A config that is parsed at its first use: most questions asked of a card never look at it.

    Raises KvplanError(bad-json | bad-config) then, naming the card.
    """

    __slots__ = ("_base", "_name", "_parsed", "_text", "_without")

    def __init__(
        self,
        text: str,
        name: str,
        base: Mapping[str, Any] | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        self._text = text
        self._name = name
        self._base = base
        self._without = without
        self._parsed: dict[str, Any] | None = None

    def _values(self) -> dict[str, Any]:
        if self._parsed is None:
            from kvplan.files.json_input import parse_json

            own = parse_json(self._text.encode(), name=f"{self._name}: config") if self._text else {}
            kept = {key: value for key, value in (self._base or {}).items() if key not in self._without}
            self._parsed = {**kept, **own}
        return self._parsed

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())


def changed_keys(base: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys on the top in which ``other`` differs from ``base``, and those that it lacks."""
    absent = object()
    order = dict.fromkeys((*base, *other))
    different = {key: other[key] for key in order if key in other and base.get(key, absent) != other[key]}
    return different, tuple(key for key in base if key not in other)


def config_lines(config: Mapping[str, Any]) -> list[str]:
    """The config as JSON, broken after commas so that a line has at most about 100 columns."""
    lines: list[str] = []
    for piece in json.dumps(dict(config), ensure_ascii=False, separators=(",\n", ": ")).split("\n"):
        if lines and len(lines[-1]) + len(piece) < _WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines
