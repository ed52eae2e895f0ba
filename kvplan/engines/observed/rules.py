"""Log lines as templates: one row of an engine's table says how a line reads and which figures it holds.

    "Available KV cache memory: {available_kv_bytes:GiB} GiB"

``{name:unit}`` stands for a printed figure or word, ``[[ … ]]`` for a part that some releases leave out, a
blank for any number of blanks or none. Every rule has an *anchor*, the text that is searched for first (a
plain substring search, so that a gigabyte of other lines costs little); the pattern is tried only around it.
All repetitions are bounded, so no line can make a pattern slow.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from kvplan.engines.observed import Count, Figure, Observation, Pool, Rank, Ratio, Row, total
from kvplan.engines.observed.printed import BYTE_UNITS, parse_count, parse_decimal, parse_ratio
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import MIB

_COORDINATE = regex(r"(?<![A-Z])(DP|PP|TP|EP|DCP)(\d{1,5})")

_LISTED = {
    "gpu_listed": ("GPU 0:", "GPU 0,1"),
    "gpu_beside": ("GPU 1:", "GPU 1,2"),
    "gpu_third": ("GPU 2:", "GPU 2,3"),
}

WHOLE = r"[+-]?\d(?:[\d,]{0,28}\d)?"
NUMBER = WHOLE + r"(?:\.\d{1,12})?"
DOWN = "MiBdown"
"""Whole MiB, rounded down."""
_UNITS = {
    **dict.fromkeys(BYTE_UNITS, rf"({NUMBER})"),
    DOWN: rf"({WHOLE})",
    "n": rf"({WHOLE})",
    "x": rf"({NUMBER})",
    "u": rf"({NUMBER})",
    "opt": rf"({WHOLE}|None)",
    "word": r"([\w.:+-]{1,120})",
    "name": r"(\S{1,400})",
    "path": r"(\S.{0,399}?)",
    "rest": r"(\S.{0,199})",
    "device": r"([\w.:\[\]-]{1,40})",
    "label": r"((?:[\w.-]{1,24} ){0,5})",
    "num": NUMBER,
    "any": r".{0,160}?",
    "far": r".{0,6000}?",
}
_PLACE = regex(r"\{(\w*):(\w+)\}|\[\[|\]\]")
LOOK_BACK = 130
"""Characters before the anchor that a pattern may begin in."""
REACH = 8000
"""Characters after the anchor that a pattern may need."""

Value = Figure | str | None
Values = dict[str, Value]


@record()
class Rule:
    """One line shape. kind says what its figures are:

    row: figures of the process that spoke (or of the ``{device}`` named in the line); pool: one allocated
    cache; settings: settings; items: a dict, namespace or comma list of settings follows the anchor;
    refusal; boot: the engine starts; second: a further model or context begins; name: what the next pool is
    called; note: only worth telling.
    """

    anchor: bytes
    head: re.Pattern[str] | None
    tail: re.Pattern[str]
    names: tuple[tuple[str, str], ...]
    kind: str = "row"
    text: str = ""
    when: Callable[[Values], bool] | None = None
    add: bool = False
    again: str | None = None
    weight: int = 1
    begins: bool = False
    closes: bool = False
    says: tuple[tuple[str, str], ...] = ()

    def read(self, line: str, at: int, number: int, *, cut: bool) -> Values | None:
        """The figures of a line whose anchor stands at `at`; None where the line is of another shape.

        cut: the line may end inside a number, so one that touches its end is dropped.
        """
        tail = self.tail.match(line, at, at + REACH)
        if tail is None:
            return None
        groups = [(tail[index], tail.end(index)) for index in range(1, len(tail.groups()) + 1)]
        if self.head is not None:
            head = self.head.search(line[max(0, at - LOOK_BACK) : at])
            if head is None:
                return None
            groups = [(text, 0) for text in head.groups()] + groups
        values: Values = {}
        for (name, unit), (text, end) in zip(self.names, groups):
            if text is not None and not (cut and end == len(line)):
                values[name] = _value(text, unit, number)
        if self.when is not None and not self.when(values):
            return None
        values.update(self.says)
        return values


def rule(
    template: str,
    *,
    kind: str = "row",
    anchor: str | None = None,
    text: str = "",
    when: Callable[[Values], bool] | None = None,
    add: bool = False,
    again: str | None = None,
    weight: int = 1,
    begins: bool = False,
    closes: bool = False,
    says: Mapping[str, str] | None = None,
) -> Rule:
    """A rule from its template; the anchor is the longest plain run unless it is named.

    add: figures of several such lines are summed (buffers, captures). again: the name that a second such
    line of the same process fills (the draft model's weights); empty: a second one does not count. weight:
    how much a hit says about which engine this is. begins: a process that says this a second time has been
    started anew. closes: the pools said so far are allocated; further ones take their place. says: what the
    line tells by being there.
    """
    chosen = anchor or _longest(template)
    before, found, after = template.partition(chosen)
    if not found:
        raise ValueError(f"{chosen!r} does not stand in {template!r}")
    head, head_names = _compile(before)
    tail, tail_names = _compile(after)
    return Rule(
        chosen.encode(),
        re.compile(head + r"\Z") if head else None,
        re.compile(re.escape(chosen) + tail),
        (*head_names, *tail_names),
        kind,
        text,
        when,
        add,
        again,
        weight,
        begins,
        closes,
        tuple((says or {}).items()),
    )


def _longest(template: str) -> str:
    """The longest plain text that no release leaves out."""
    certain = re.sub(r"\[\[.*?\]\]", "{:any}", template)
    return max((part.strip() for part in _PLACE.split(certain)[::3]), key=len)


def _compile(template: str) -> tuple[str, list[tuple[str, str]]]:
    """The template as a regular expression, and (name, unit) of each of its groups."""
    source, at = "", 0
    names: list[tuple[str, str]] = []
    for place in _PLACE.finditer(template):
        source += _plain(template[at : place.start()])
        at = place.end()
        if place[0] in ("[[", "]]"):
            source += "(?:" if place[0] == "[[" else ")?"
            continue
        source += _UNITS[place[2]]
        if _UNITS[place[2]].startswith("("):
            names.append((place[1], place[2]))
    return source + _plain(template[at:]), names


def _plain(text: str) -> str:
    return r"\s{0,24}".join(re.escape(part) for part in re.split(r" +", text))


def _value(text: str, unit: str, line: int) -> Value:
    if unit in BYTE_UNITS or unit == "n":
        return parse_count(text, unit, line=line)
    if unit == DOWN:
        found = parse_count(text, "MiB", line=line)
        return Count(found.value, found.value, found.value + MIB - 1, found.printed, line)
    if unit == "opt":
        return None if text == "None" else parse_count(text, "n", line=line)
    if unit == "x":
        return parse_ratio(text, line=line)
    if unit == "u":
        value = parse_decimal(text)
        return Ratio(value, value, value, text, line)
    return text.strip()


def positive(name: str) -> Callable[[Values], bool]:
    """A condition on a line: its figure called `name` is above nought."""

    def holds(values: Values) -> bool:
        figure = values.get(name)
        return isinstance(figure, Count) and figure.value > 0

    return holds


def machine_rules() -> tuple[Rule, ...]:
    """Rules of one dialect (a rule belongs to one): the names are settings, and tell no engine."""
    found = []
    for name, (one, several) in _LISTED.items():
        for anchor, shape in ((one, one), (several, f"{several}[[,{{:name}}]]:")):
            text = f"{shape} {{{name}:rest}}"
            found.append(rule(text, kind="settings", anchor=anchor, text="machine", weight=0))
    return tuple(found)


@record()
class Dialect:
    """How one engine logs: its line shapes, who speaks in a line, the settings it prints, and its last
    touches.

    finish: what can only be told from all rows together (which of two pools is the draft's, say).
    first_counts: settings of which the first line tells: a draft model says its own after it.
    """

    engine: str
    rules: tuple[Rule, ...]
    rank_of: Callable[[str], Rank]
    known_settings: Mapping[str, str]
    finish: Callable[[Observation], Observation] = lambda observation: observation
    first_counts: frozenset[str] = frozenset(("architecture",))


def at_coordinates(label: str, text: str) -> Rank:
    """A rank whose place in the parallel groups `text` tells: ``DP0_TP3_EP3``."""
    places = {kind: int(number) for kind, number in _COORDINATE.findall(text)}
    return Rank(
        label,
        dp=places.get("DP"),
        pp=places.get("PP"),
        tp=places.get("TP"),
        ep=places.get("EP"),
        dcp=places.get("DCP"),
    )


def with_rows(observation: Observation, change: Callable[[Row], Row]) -> Observation:
    """The observation with every row changed."""
    return dataclasses.replace(observation, rows=tuple(change(row) for row in observation.rows))


def summed(pools: Sequence[Pool], name: str) -> Count | None:
    """The sum of one figure over pools; None where a pool lacks it."""
    counts = [getattr(pool, name) for pool in pools]
    return total(counts) if counts and all(isinstance(count, Count) for count in counts) else None
