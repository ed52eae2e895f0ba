"""An engine's Prometheus page: the pool as an Observation, the load as a LiveSample.

The names on the page are each engine's own (``metrics`` in its folder).

Of the text format, as far as an engine's gauges and counters need it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from kvplan.engines.folders import having
from kvplan.engines.observed import Observation
from kvplan.later import regex
from kvplan.record import record

MAX_LABELS = 300
_LINE = regex(r"\s*([A-Za-z_:][\w:]{0,199})\s*(\{)?", re.ASCII)
_LABEL = regex(r'\s*([A-Za-z_]\w{0,199})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\})?', re.ASCII)
_NOTHING_MORE = regex(r"\s*\}")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

MAX_ENGINES = 4096
Combine = Callable[[Iterable["Sample"]], Any]
Live = Mapping[str, tuple[Combine, tuple[str, ...]]]
"""Figure of a `LiveSample` → how samples of it are combined, and its names by release."""
Found = Mapping[str, list["Sample"]]
"""Samples by name."""


def speaking(body: bytes) -> tuple[str, Any, Found] | None:
    """(engine, its part ``metrics``, samples by name) of a page; None where no engine speaks there."""
    parts = having("metrics")
    found = _named(samples(body, prefixes := tuple(f"{name}:" for name in parts)), prefixes)
    for name, part in parts.items():
        if any(each.startswith(f"{name}:") for each in found):
            return name, part, found
    return None


def observation_of_metrics(body: bytes) -> Observation | None:
    """Pool figures out of a metrics page; None where no engine speaks there."""
    spoken = speaking(body)
    if spoken is None:
        return None
    observation: Observation = spoken[1].observation(spoken[2])
    return observation


def live_sample(body: bytes) -> LiveSample | None:
    """The load out of a metrics page; None where no engine speaks there."""
    spoken = speaking(body)
    if spoken is None:
        return None
    engine, part, found = spoken
    names: Live = part.LIVE
    values: dict[str, Any] = {}
    for field, (combine, choices) in names.items():
        values[field] = next((combine(found[name]) for name in choices if name in found), None)
    queries, hits = values.get("queries"), values.get("hits")
    if queries and hits is not None:
        values["hit_rate"] = Fraction(hits, queries)
    return LiveSample(engine, **values)


def _named(found: Iterable[Sample], prefixes: tuple[str, ...]) -> dict[str, list[Sample]]:
    """Samples by name, in the spelling with a colon and without a counter's ``_total``."""
    named: dict[str, list[Sample]] = {}
    for each in found:
        name = each.name
        for prefix in prefixes:
            if name.startswith(prefix.replace(":", "_")):
                name = prefix + name[len(prefix) :]
        named.setdefault(name.removesuffix("_total"), []).append(each)
    return named


def _engine_key(each: Sample) -> str:
    """Which data-parallel engine a sample is of; tensor-parallel ranks of one engine repeat each other."""
    labels = each.labels
    return f"{labels.get('engine', '')} {labels.get('dp_rank', '')} {labels.get('model_name', '')}"


def _by_engine(found: Iterable[Sample]) -> dict[str, Fraction]:
    largest: dict[str, Fraction] = {}
    for each in found:
        value = each.value
        if value is not None:
            key = _engine_key(each)
            largest[key] = max(value, largest.get(key, value))
    return largest


def most(found: Iterable[Sample]) -> Fraction | None:
    """The largest over the engines of a server."""
    return max(_by_engine(found).values(), default=None)


def sum_of(found: Iterable[Sample]) -> int | None:
    """The sum over the engines of a server."""
    values = _by_engine(found).values()
    return int(sum(values)) if values else None


@record()
class Sample:
    """One line: ``name{label="x"} 1.5``. text is the value as printed."""

    name: str
    labels: Mapping[str, str]
    text: str

    @property
    def value(self) -> Fraction | None:
        """The value; None for NaN, infinities and what is no number."""
        return number(self.text)


def samples(body: bytes, prefixes: tuple[str, ...]) -> Iterator[Sample]:
    """The samples whose names start so; a colon in a prefix also stands for an underscore.

    Lines that are no samples are skipped.
    """
    wanted = tuple(
        prefix.encode() for prefix in (*prefixes, *(prefix.replace(":", "_") for prefix in prefixes))
    )
    for line in body.splitlines():
        stripped = line.strip()
        if stripped.startswith(wanted):
            found = _sample(stripped.decode("utf-8", "replace"))
            if found is not None:
                yield found


def number(text: str) -> Fraction | None:
    """A printed float as the fraction its digits say; None where there is none."""
    if len(text) > 60:
        return None
    try:
        # float first: it turns 1e999999999 into infinity, which as a fraction would fill the memory.
        return Fraction(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def _sample(line: str) -> Sample | None:
    head = _LINE.match(line)
    if head is None:
        return None
    at = head.end()
    labels: dict[str, str] = {}
    while head[2] and len(labels) <= MAX_LABELS:
        label = _LABEL.match(line, at)
        if label is None:
            end = _NOTHING_MORE.match(line, at)
            if end is None:
                return None
            at = end.end()
            break
        labels[label[1]] = re.sub(r"\\[\\n\"]", lambda match: _ESCAPES[match[0]], label[2])
        at = label.end()
        if label[3] == "}":
            break
    words = line[at : at + 200].split()
    return Sample(head[1], labels, words[0]) if words else None


@record()
class LiveSample:
    """The load of a server at one moment, summed over its engines; counters count from the server's start.

    usage: share of the pool that live requests hold, the fullest engine's. queries and hits: tokens looked
    up in and served from the prefix cache. preemptions: what SGLang calls retractions. None = not said.
    """

    engine: str
    usage: Fraction | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    queries: int | None = None
    hits: int | None = None
    hit_rate: Fraction | None = None
    used_tokens: int | None = None
    swa_usage: Fraction | None = None
    mamba_usage: Fraction | None = None

    def hit_rate_since(self, earlier: LiveSample) -> Fraction | None:
        """Share of the tokens asked since `earlier` that the prefix cache held; the server's own where it
        counts none.

        None where nothing was asked, or where the counters went back (the server restarted).
        """
        if self.queries is None or self.hits is None or earlier.queries is None or earlier.hits is None:
            return self.hit_rate
        asked, held = self.queries - earlier.queries, self.hits - earlier.hits
        return Fraction(held, asked) if asked > 0 and held >= 0 else None

    def preemptions_since(self, earlier: LiveSample) -> int | None:
        """Requests thrown out since `earlier`; None where not counted or the counter went back."""
        if self.preemptions is None or earlier.preemptions is None:
            return None
        new = self.preemptions - earlier.preemptions
        return new if new >= 0 else None
