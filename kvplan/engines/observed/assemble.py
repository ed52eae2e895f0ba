"""From figures, one line after another, to the Observation of one start of the engine."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvplan.engines.observed import (
    ROW_FIGURES,
    Count,
    Figure,
    Note,
    Observation,
    Pool,
    Rank,
    Refusal,
    Row,
    Setting,
    total,
)
from kvplan.engines.observed.rules import Dialect, Values
from kvplan.engines.observed.settings import from_figure, settings_from
from kvplan.engines.observed.stream import Hit
from kvplan.later import regex
from kvplan.record import JsonDict

MAX_ROWS = 4096
MAX_POOLS = 256
MAX_NOTES = 50
MAX_SETTINGS = 200
TEXT_SHOWN = 400
_POOL_FIELDS = frozenset(item.name for item in dataclasses.fields(Pool))
_REFUSAL_FIELDS = frozenset(item.name for item in dataclasses.fields(Refusal)) - {"kind", "text", "line"}
_BUFFERS = ("kv_bytes", "state_bytes")
_ROW_FIELDS = frozenset(ROW_FIGURES)
_PLACE = regex(r"\[(?:[\w.-]{1,60}/){0,12}([\w-]{1,60}\.py):(\d{1,6})\][^\[\]]{0,60}\Z", re.ASCII)
"""``[gpu_worker.py:508] `` before what a line says."""


@dataclass(slots=True)
class _Row:
    rank: Rank
    figures: dict[str, Figure] = field(default_factory=dict)
    added: dict[str, list[Count]] = field(default_factory=dict)
    pools: list[Pool] = field(default_factory=list)
    closed: bool = False

    def whole(self) -> Row:
        sums: JsonDict = {name: total(parts) for name, parts in self.added.items()}
        figures: JsonDict = {**self.figures, **sums}
        return Row(self.rank, **figures, pools=tuple(self.pools))


class Start:
    """One start of an engine while its log is being read."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.version: str | None = None
        self.generation: str | None = None
        self.settings: dict[str, Setting] = {}
        self.rows: dict[str, _Row] = {}
        self.refusal: Refusal | None = None
        self.notes: dict[str, int] = {}
        self.next_pool = ""
        self.further = False
        self.said: set[tuple[bytes, str]] = set()
        self.places: dict[tuple[str, str], int] = {}

    @property
    def has_figures(self) -> bool:
        return self.refusal is not None or any(
            row.figures or row.added or row.pools for row in self.rows.values()
        )

    def take(self, hit: Hit, values: Values) -> None:
        """Book what a line said."""
        rule, number = hit.rule, hit.number
        place = _PLACE.search(hit.text, max(0, hit.at - 200), hit.at)
        if place is not None and len(self.places) < MAX_SETTINGS:
            self.places.setdefault((place[1], rule.anchor.decode()), int(place[2]))
        version = values.pop("version", None)
        if isinstance(version, str):
            self.version = version.lstrip("v")
        generation = values.pop("generation", None)
        if isinstance(generation, str):
            self.generation = generation
        if rule.kind == "items":
            self._settle(
                settings_from(
                    hit.text,
                    hit.at + len(rule.anchor.decode()),
                    self.dialect.known_settings,
                    line=number,
                    source=rule.text,
                )
            )
        elif rule.kind == "pool":
            self._pool(hit, values)
        elif rule.kind == "refusal":
            kept: JsonDict = {name: value for name, value in values.items() if name in _REFUSAL_FIELDS}
            for name in values.keys() - _REFUSAL_FIELDS:
                self._settle({name: from_figure(values[name], number, "refusal")})
            if self.refusal is None or self.refusal.kind != rule.text or kept:
                self.refusal = Refusal(rule.text, hit.text[hit.at :][:TEXT_SHOWN].strip(), number, **kept)
        elif rule.kind == "second":
            self._second(number)
        elif rule.kind == "name":
            label = values.get("label")
            self.next_pool = label.strip().lower() if isinstance(label, str) else ""
        elif rule.kind != "note":
            self._figures(hit, values)
        if rule.kind in ("note", "boot") and rule.text:
            self.note(_filled(rule.text, values), number)

    def _second(self, number: int) -> None:
        """A model or context begins. It is a further one where the first has its buffers; a rehearsal has
        none.
        """
        if any(
            part.value > 0
            for row in self.rows.values()
            for name in _BUFFERS
            for part in row.added.get(name, ())
        ):
            if not self.further:
                self.note("a second model or context (a draft?) was loaded beside the first", number)
            self.further = True
        else:
            for row in self.rows.values():
                row.pools.clear()

    def said_before(self, hit: Hit) -> bool:
        """True where the same process said a line of this shape before in this start."""
        said = (hit.rule.anchor, self.dialect.rank_of(hit.text[: hit.at]).label)
        before = said in self.said
        if len(self.said) < MAX_ROWS:
            self.said.add(said)
        return before

    def note(self, text: str, number: int) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.setdefault(text, number)

    def _figures(self, hit: Hit, values: Values) -> None:
        device = values.pop("device", None)
        rank = Rank(device + " draft" * self.further) if isinstance(device, str) else None
        for name, value in values.items():
            if name not in _ROW_FIELDS:
                self._settle({name: from_figure(value, hit.number, hit.rule.text or "log")})
            elif isinstance(value, str) or value is None:
                continue
            else:
                row = self._row(rank or self._rank(hit))
                row.closed = row.closed or hit.rule.closes
                if hit.rule.add and isinstance(value, Count):
                    if len(row.added.setdefault(name, [])) < MAX_POOLS:
                        row.added[name].append(value)
                elif hit.rule.again is not None and name in row.figures:
                    self._once_more(row, hit.rule.again, name, value)
                elif not _sharper(row.figures.get(name), value):
                    row.figures[name] = value

    def _once_more(self, row: _Row, again: str, name: str, value: Figure) -> None:
        """A figure of the draft, which says the target's lines again: only what is free counts anew, and only
        before there are caches."""
        if again.endswith(f"_{name}"):
            row.figures[again] = value
        elif name == "free_after_weights_bytes" and not row.pools:
            row.figures[name] = value

    def _rank(self, hit: Hit) -> Rank:
        return self.dialect.rank_of(hit.text[: hit.at])

    def _pool(self, hit: Hit, values: Values) -> None:
        row = self._row(self._rank(hit))
        label = values.pop("label", None)
        name = (
            label.strip().lower()
            if isinstance(label, str) and label.strip()
            else self.next_pool or hit.rule.text
        )
        name, self.next_pool = "draft " * self.further + name, ""
        kept: JsonDict = {key: value for key, value in values.items() if key in _POOL_FIELDS}
        if row.closed:
            row.pools.clear()
            row.closed = False
        if len(row.pools) < MAX_POOLS:
            row.pools.append(Pool(_filled(name, values), **kept, line=hit.number))

    def _row(self, rank: Rank) -> _Row:
        found = self.rows.get(rank.label)
        if found is None:
            found = _Row(rank)
            if len(self.rows) < MAX_ROWS:
                self.rows[rank.label] = found
        return found

    def _settle(self, settings: Mapping[str, Setting]) -> None:
        for name, setting in settings.items():
            if self.further:
                # What a draft model says of itself is not the server's setting.
                if name == "model":
                    self.settings.setdefault("speculative_model", setting)
                continue
            if name in self.dialect.first_counts and name in self.settings:
                continue
            if name in self.settings or len(self.settings) < MAX_SETTINGS:
                self.settings[name] = setting

    def observation(self, *, starts: int, lines: int, cut: bool) -> Observation:
        """The collected observation, with the engine's last touches."""
        rows = tuple(row.whole() for row in self.rows.values() if row.figures or row.added or row.pools)
        notes = [Note(text, number) for text, number in self.notes.items()]
        if starts > 1:
            notes.append(
                Note(f"the log holds {starts} starts; the last that printed figures is the one read")
            )
        return self.dialect.finish(
            Observation(
                engine=self.dialect.engine,
                engine_version=self.version,
                generation=self.generation,
                settings=MappingProxyType(dict(self.settings)),
                rows=rows,
                refusal=self.refusal,
                notes=tuple(notes),
                starts=starts,
                lines=lines,
                cut=cut,
                places=MappingProxyType(dict(self.places)),
            )
        )


class Reading:
    """All starts that one log tells of, in one engine's dialect; only the present one and the last good are
    kept.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.present = Start(dialect)
        self.good: Start | None = None
        self.starts = 0
        self.score = 0

    def take(self, hit: Hit, *, cut: bool) -> None:
        values = hit.rule.read(hit.text, hit.at, hit.number, cut=cut)
        if values is None:
            return
        self.score += hit.rule.weight
        if hit.rule.kind == "boot" or (hit.rule.begins and self.present.said_before(hit)):
            self._begin()
            self.present.said_before(hit)
        self.present.take(hit, values)

    def _begin(self) -> None:
        """A new start: what was said before belongs to an earlier one."""
        if self.present.has_figures:
            self.good = self.present
        if self.starts or self.present.has_figures:
            self.starts = max(self.starts, 1) + 1
            self.present = Start(self.dialect)
        else:
            self.starts = 1

    def observation(self, *, lines: int, cut: bool) -> Observation:
        start = self.good if self.good is not None and not self.present.has_figures else self.present
        return start.observation(starts=max(1, self.starts), lines=lines, cut=cut)


def _sharper(old: Figure | None, new: Figure) -> bool:
    """True where the figure at hand is printed with more decimals than a new one that agrees with it."""
    if not isinstance(old, Count) or not isinstance(new, Count):
        return False
    return old.low <= new.high and new.low <= old.high and old.high - old.low < new.high - new.low


def _filled(text: str, values: Values) -> str:
    """A note's text with the line's figures in it."""
    shown = {name: _shown(value) for name, value in values.items()}
    try:
        return text.format_map(shown)
    except (KeyError, IndexError, ValueError):
        return text


def _shown(value: object) -> str:
    printed = getattr(value, "printed", value)
    return str(printed)[:80]
